"""Write the pages of docs/reference from the code's own tables: `python docs/reference.py`.

The page about Python names the public objects; mkdocstrings fills in their docstrings when the site
is built.
"""

import importlib
import inspect
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

FOLDER = Path(__file__).with_suffix("")
SHARED = 2
"""Commands from which on an option is explained once for all."""

SHORT = re.compile(r";|, (?:which|such as|from which|of which|as|in place of) ")
"""Where the explanation of a field begins to say more than what it is."""

MOST_OTHERS = 6
"""Options in which two commands that share most of theirs may differ."""

WRITTEN = "*Written by `python docs/reference.py`; a test fails when the code disagrees.*"

ENVIRONMENT = {
    "FORERUN_TRACKING_URI": "MLflow store that `forerun train` writes runs and versions to; "
    "`MLFLOW_TRACKING_URI` where it is not set, else `mlflow.db` in FORERUN_HOME",
    "FORERUN_MIRROR": "folder with copies of upstream files; `forerun data pull` reads it in place "
    "of the network",
    "FORERUN_REFERENCE": "folder of bundles by dataset, where `forerun evaluate` finds graphs that "
    "neither the folder under evaluation nor the pulled bundle has",
    "FORERUN_DEBUG": "when set, an internal error shows its traceback",
    "FORERUN_CHECK_SHAPES": "set by the tests: shapes of arrays are checked in every call",
}


EXTENSIONS = (
    "forerun.data.query.Query",
    "forerun.data.device.Device",
    "forerun.data.device.DeviceCatalog",
    "forerun.data.software.Software",
    "forerun.models.predictor.Predictor",
    "forerun.models.prediction.Prediction",
    "forerun.models.contract.PredictorContract",
    "forerun.models.artifact.sealed_folder",
    "forerun.data.errors",
)
"""What packages that extend forerun import."""

OWN_TABLES = """\
`forerun evaluate DATASET --data DIR` reads these tables (`.parquet` or `.csv`); one of a
dataset's is enough. Tables that say what the workloads are may be left out: they are taken from the
pulled bundle of that dataset, else from FORERUN_REFERENCE. `--by` groups by any key of the rows
(`device`, `batch`, `precision`, `phase`, `runtime`, `workload`, the dataset's own such as `family`
and `model`) and by `interval`, tenths of the rows by the size of their interval; `--rows` writes
`task`, `metric`, `predictor`, `seed`, all keys, `measured`, `predicted`, `low`, `high` and
`in_domain` of every answer. Rows that cannot be evaluated are counted under `left_out`; where none
can be, the exit code is 2."""


def pages() -> dict[str, str]:
    """Every page by file name, each ending in a line break."""
    return {
        "metrics.md": _page(
            "Metrics, operators and scores",
            "## Metrics\n\n" + metrics(),
            "## Operator kinds\n\n" + operator_kinds(),
            "## Scores\n\nScores that `forerun evaluate` prints.\n\n" + scores(),
        ),
        "predictors.md": _page(
            "Predictors",
            "In the order in which they are asked (`forerun.models.catalog`).",
            predictors(),
        ),
        "tables.md": _page("Tables of your own", OWN_TABLES, own_tables()),
        "http.md": _page(
            "HTTP",
            "In short; the running service explains every field at `/docs`, with examples, and as "
            "OpenAPI at `/openapi.json`.",
            "## Endpoints\n\n" + endpoints(),
            "## Parameters\n\n" + parameters(),
            "## Problems\n\n"
            "Errors are `application/problem+json` (RFC 9457): `type` ends in one of these words, "
            "`title` and `detail` say what is wrong and how to fix it. On the command line each "
            "is one line on standard error.\n\n" + problems(),
            "## Requests\n\nFields in bold are required.\n\n" + requests(),
        ),
        "command-line.md": _page(
            "Command line",
            "Exit codes: 0 done, 2 the input is wrong, 1 an internal error. `--help` says more.",
            verbs(),
        ),
        "python.md": _page(
            "Python",
            "What other programs may import and rely on. Everything else is internal and may move.",
            public_names(),
            "## For packages that extend forerun",
            "\n\n".join(f"::: {name}" for name in EXTENSIONS),
        ),
        "settings.md": _page("Settings", "Environment variables.", settings()),
    }


STUB = FOLDER.parents[1] / "service/python/run_options.pyi"


def stub(**keywords: Mapping[str, Any]) -> str:
    """The stub of keywords, for type checkers.

    Args:
        keywords: name of a dictionary -> its names with their types.
    """
    from forerun.data import software, training_options, workload
    from forerun.data.language_models import training

    modules = (software, training_options, workload, training)
    names = {
        found: name
        for module in modules
        for name, found in vars(module).items()
        if get_origin(found) is Literal
    }
    homes = {
        name: module.__name__
        for module in reversed(modules)
        for name, kind in vars(module).items()
        if get_origin(kind) is Literal
    }
    classes = []
    for called, given in keywords.items():
        classes.append(f"\nclass {called}(TypedDict, total=False):")
        classes += [f"    {name}: {_spelled(kind, names)}" for name, kind in given.items()]
    used = set(re.findall(r"\w+", " ".join(classes))) & set(names.values())
    imports = [
        f"from {module.__name__} import (\n"
        + "".join(f"    {name},\n" for name in sorted(used) if homes[name] == module.__name__)
        + ")"
        for module in sorted(modules, key=lambda module: module.__name__)
    ]
    return "\n".join(
        [
            '"""Keywords of Python; written by `python docs/reference.py` from descriptions."""\n',
            "from collections.abc import Mapping, Sequence",
            "from typing import Any, Final, Literal, TypedDict\n",
            *imports,
            "\nREADING: Final[Mapping[str, Any]]",
            *classes,
            "",
        ]
    )


def _spelled(kind: Any, names: Mapping[Any, str]) -> str:
    """A type as source code, with the names of types that have one."""
    if kind in names:
        return names[kind]
    if get_origin(kind) in (Union, UnionType):
        return " | ".join(_spelled(each, names) for each in get_args(kind))
    if get_origin(kind) is Literal:
        return f"Literal[{', '.join(json.dumps(each) for each in get_args(kind))}]"
    if kind is NoneType:
        return "None"
    return (
        kind.__name__
        if type(kind) is type
        else re.sub(r"(collections\.abc|typing)\.", "", str(kind))
    )


def _page(title: str, *parts: str) -> str:
    return "\n\n".join((f"# {title}", WRITTEN, *parts)) + "\n"


def metrics() -> str:
    """Table of metrics."""
    from forerun.data.metrics import METRICS

    head = ["metric", "unit", "operators combine by", "meaning"]
    return _table(head, [[f"`{m.name}`", m.unit or "1", m.combine, m.meaning] for m in METRICS])


def operator_kinds() -> str:
    """Table of canonical operator kinds."""
    from forerun.features.operators.kinds import KINDS

    head = ["kind", "class", "seen as", "FLOPs"]
    spoken = {"gemm": "matrix product", "rows": "rows", "none": "elements"}
    return _table(
        head,
        [
            [
                f"`{k.name}`",
                k.op_class,
                spoken[k.view],
                "2 m n k a batch entry"
                if k.view == "gemm"
                else f"{k.flops_per_element:g} an element",
            ]
            for k in KINDS
        ],
    )


def predictors() -> str:
    """Table of predictors and of the datasets that train and evaluate them."""
    from forerun.models.catalog import PREDICTORS

    head = ["predictor", "answers", "trained on", "also evaluated on", "contains"]
    rows = [
        [
            f"`{name}`",
            entry.answers,
            "; ".join(" and ".join(sources) for sources in entry.trained_on),
            ", ".join(entry.evaluated_on),
            ", ".join(f"`{part}`" for part in entry.contains),
        ]
        for name, entry in PREDICTORS.items()
        if entry.trained_on or entry.evaluated_on
    ]
    return _table(head, rows)


def scores() -> str:
    """The list of score fields, from the docstring that defines them."""
    from forerun.training.scores.errors import score

    text = inspect.getdoc(score) or ""
    lines = text.split("Returns:\n")[1].split("\n\n")[0].splitlines()
    fields: list[str] = []
    for line in lines:
        if line.startswith("     "):
            fields[-1] += " " + line.strip()
        else:
            fields.append(line.strip())
    return "\n".join(f"- `{name}`: {rest}" for name, _, rest in (f.partition(": ") for f in fields))


def own_tables() -> str:
    """Table of tables and columns that evaluation reads."""
    from forerun.training.protocols import DATASET_PROTOCOLS

    rows = []
    for cls in sorted(DATASET_PROTOCOLS, key=lambda one: one.dataset):
        for table, columns in cls.reads.items():
            optional = cls.optional.get(table, {})
            rows.append(
                [
                    cls.dataset,
                    f"`{table}`",
                    ", ".join(f"`{name}`" for name in columns),
                    ", ".join(f"`{name}` ({value or 'none'})" for name, value in optional.items()),
                    ", ".join(f"`{name}`" for name in cls.joined),
                ]
            )
    head = ["dataset", "table", "columns", "may be missing (then taken as)", "joined"]
    return _table(head, rows)


def public_names() -> str:
    """A directive of mkdocstrings for every name of the package."""
    import forerun

    listed = [getattr(forerun, name) for name in getattr(forerun, "__all__", ())]
    modules = [one for one in listed if inspect.ismodule(one)]
    found = [*listed, *(getattr(one, name) for one in modules for name in one.__all__)]
    named = [
        f"::: {one.__module__}.{one.__qualname__}" for one in found if hasattr(one, "__qualname__")
    ]
    return "\n\n".join(["## `import forerun`", *named])


def endpoints() -> str:
    """Table of endpoints with body, answer and parameters, from the OpenAPI document."""
    from forerun.service.schemas.run_options import RunIn

    rows = []
    for place, operation in _operations():
        names = [one["name"] for one in _given(operation)]
        of_run = set(RunIn.model_fields) if len(names) > len(RunIn.model_fields) else set()
        given = ", ".join(f"`{name}`" for name in names if name not in of_run)
        given += ", and options of a run as of `forerun predict`" if of_run else ""
        sent = _content(operation.get("requestBody", {}))
        answered = _content(operation.get("responses", {}).get("200", {}))
        text = _first_line(operation.get("description", ""))
        rows.append([f"`{place}`", text, sent, answered, given])
    return _table(["endpoint", "what it does", "body", "answer", "parameters"], rows)


def parameters() -> str:
    """Table of the parameters that are not fields of a request."""
    fields = {name for one in _sent() for name in _schemas()[one].get("properties", ())}
    found = {
        one["name"]: [f"`{one['name']}`", _type(one["schema"]), _meaning(one)]
        for _, operation in _operations()
        for one in _given(operation)
        if one["name"] not in fields
    }
    return _table(["parameter", "type", "meaning"], list(found.values()))


def requests() -> str:
    """Fields of every schema that a request may hold, each explained once."""
    parts: list[str] = []
    shown: dict[tuple[str, ...], str] = {}
    for name in _sent():
        schema, rows, again = _schemas()[name], [], defaultdict(list)
        for field, about in schema.get("properties", {}).items():
            named = f"**`{field}`**" if field in schema.get("required", ()) else f"`{field}`"
            row = (field, _type(about), _meaning(about))
            if shown.setdefault(row, name) == name:
                rows.append([named, *row[1:]])
            else:
                again[shown[row]].append(named)
        parts += [f"### {name}", *([_table(["field", "type", "meaning"], rows)] if rows else [])]
        parts += [f"As in {_link(other)}: {', '.join(ones)}." for other, ones in again.items()]
    return "\n\n".join(parts)


def _operations() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Method and path of each endpoint, and what the OpenAPI document says of it."""
    for path, methods in sorted(_document()["paths"].items()):
        for method, operation in sorted(methods.items()):
            yield f"{method.upper()} {path}", operation


def _given(operation: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Parameters of a query or a header; those of the path are in its template."""
    return [one for one in operation.get("parameters", ()) if one["in"] != "path"]


def _content(about: Mapping[str, Any]) -> str:
    """Types of a body; kinds of files are named where it is not JSON."""
    kinds = about.get("content", {}).items()
    named = (_type(one.get("schema", {})) if "json" in kind else f"`{kind}`" for kind, one in kinds)
    return " or ".join(dict.fromkeys(named))


def _linked(about: Any) -> list[str]:
    """Names of the schemas that a part of the document refers to, in their order."""
    return list(dict.fromkeys(re.findall(r"#/components/schemas/(\w+)", json.dumps(about))))


@cache
def _sent() -> tuple[str, ...]:
    """Names of the schemas that a request may hold, sorted."""
    found: set[str] = set()
    left = [n for _, one in _operations() for n in _linked(one.get("requestBody", {}))]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += _linked({k: v for k, v in _schemas()[name].items() if k != "examples"})
    return tuple(sorted(found))


def _schemas() -> Mapping[str, Any]:
    found: Mapping[str, Any] = _document()["components"]["schemas"]
    return found


@cache
def _document() -> dict[str, Any]:
    from forerun.service.http.app import create_app

    return create_app().openapi()


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a field with its bounds, and a link where it is a schema of its own."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            kinds = (_type(one) for one in schema[union] if one.get("type") != "null")
            return " or ".join(dict.fromkeys(kinds))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum") or [schema["const"]]
        return ", ".join(f"`{value}`" for value in values)
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"mapping to {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any")) + _bounds(schema)


def _link(name: str) -> str:
    """A link to a schema that a request may hold; the name alone of one of answers."""
    return f"[{name}](#{name.lower()})" if name in _sent() else f"`{name}`"


def _bounds(schema: Mapping[str, Any]) -> str:
    """The range of a number, such as ` 1–64`."""
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f" {low:,.10g}–{high:,.10g}"
    words = {"exclusiveMinimum": "above ", "minimum": "from ", "maximum": "to "}
    given = ((word, schema.get(name)) for name, word in words.items())
    return "".join(f" {word}{value:,.10g}" for word, value in given if value is not None)


def _meaning(about: Mapping[str, Any]) -> str:
    """What a field is, in short, with its default."""
    schema = about.get("schema", about)
    text = _first_line(about.get("description") or schema.get("description") or "")
    default = schema.get("default")
    shown = f" [{default}]" if default not in (None, "", [], {}) else ""
    return SHORT.split(text)[0] + shown


def problems() -> str:
    """Types of errors that the asker can mend, by HTTP status."""
    from forerun.data.errors import InputError
    from forerun.service.problems import STATUSES

    modules = set(_modules_with_problems())
    for name in sorted(modules):
        importlib.import_module(name)
    found = {one.slug: one.status for one in _tree(InputError) if one.__module__ in modules}
    found |= {slug: status for status, (slug, _) in STATUSES.items()}
    rows = [
        [str(status), ", ".join(f"`{slug}`" for slug in sorted(found) if found[slug] == status)]
        for status in sorted(set(found.values()))
    ]
    return _table(["status", "types"], rows)


def _modules_with_problems() -> Iterator[str]:
    """Names of the modules that define errors that the asker can mend."""
    from forerun.data import errors

    kinds = "|".join(one.__name__ for one in (errors.InputError, *_tree(errors.InputError)))
    package = Path(__file__).parents[1] / "src" / "forerun"
    for room in ("data", "features", "models", "training", "service"):
        for file in (package / room).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            if re.search(rf"^class \w+\((?:{kinds})\):", text, re.MULTILINE):
                yield "forerun." + ".".join(file.relative_to(package).with_suffix("").parts)


def verbs() -> str:
    """Each verb with its arguments and options; those of several verbs are explained once.

    Of an option that means different things, only what it means most often is explained so.
    """
    import typer

    from forerun.service.cli import app

    found = list(_verbs(typer.main.get_command(app), "forerun"))
    counts = Counter(_parameter(one) for _, verb in found for one in verb.params)
    usual: dict[str, str] = {}
    for text, count in counts.most_common():
        if count >= SHARED:
            usual.setdefault(text.split("`")[1], text)
    shared = set(usual.values())
    parts = ["## Options of several commands", _options(sorted(shared))]
    shown: dict[str, str] = {}
    listed: dict[str, list[str]] = {}
    for name, verb in found:
        texts = {_parameter(one): _names(one).split(",")[0] for one in verb.params}
        again: defaultdict[str, list[str]] = defaultdict(list)
        for text in texts:
            if text not in shared and shown.setdefault(text, name) != name:
                again[shown[text]].append(texts[text])
        own = [text for text in texts if shown.get(text) == name]
        listed[name] = [names for text, names in texts.items() if text in shared]
        parts += [f"## `{name}`", _first_line(verb.help or "") + _also(name, listed)]
        parts += [_options(own)] if own else []
        parts += [f"As of `{other}`: {', '.join(ones)}." for other, ones in again.items()]
    return "\n\n".join(parts)


def _also(name: str, listed: Mapping[str, Sequence[str]]) -> str:
    """The shared options of a verb: all, or how they differ from those of one before it."""
    own = listed[name]
    for other, theirs in listed.items():
        without = ", ".join(one for one in theirs if one not in own)
        alike = other != name and min(len(own), len(theirs)) > 2 * MOST_OTHERS
        if alike and len(without.split()) <= MOST_OTHERS:
            more = "".join(f", and {one}" for one in own if one not in theirs)
            but = f" without {without}" if without else ""
            return f" Also the shared options of `{other}`{but}{more}."
    return f" Also {', '.join(own)}." if own else ""


def _options(texts: Sequence[str]) -> str:
    return _table(["option", "meaning"], [text.split(": ", 1) for text in texts])


def settings() -> str:
    """Table of environment variables."""
    from forerun.data.described import field_texts
    from forerun.service.settings import Settings

    rows, texts = [], field_texts(Settings)
    for name, field in Settings.model_fields.items():
        default = "~/.cache/forerun" if name == "home" else field.default
        shown = "" if default is None else f"`{default}`"
        rows.append([f"`FORERUN_{name.upper()}`", SHORT.split(texts[name])[0], shown])
    rows += [[f"`{name}`", text, ""] for name, text in ENVIRONMENT.items()]
    return _table(["variable", "meaning", "default"], rows)


def _verbs(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Every verb that does something, with its words."""
    for verb, found in sorted(getattr(command, "commands", {}).items()):
        is_group = hasattr(found, "commands")
        if not is_group or (found.invoke_without_command and found.params):
            yield f"{name} {verb}", found
        if is_group:
            yield from _verbs(found, f"{name} {verb}")


def _parameter(parameter: Any) -> str:
    """Names of an option, and what it means in short, with its default and its choices."""
    text = parameter.help or ""
    short, end = SHORT.split(text)[0], re.search(r"( \[[^]]*])?( \([^()]*\))?$", text)
    assert end is not None
    return f"{_names(parameter)}: {short.removesuffix(end[0])}{end[0]}"


def _names(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return f"`{parameter.name.upper()}`"
    return ", ".join(f"`{option}`" for option in parameter.opts)


def _tree(error: type) -> Iterator[Any]:
    yield error
    children: list[type] = error.__subclasses__()
    for child in children:
        yield from _tree(child)


def _first_line(text: str) -> str:
    return " ".join(inspect.cleandoc(text).split("\n\n")[0].split())


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"|{'|'.join(_cell(c) for c in line)}|" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    from forerun.service.python.run_options import LlmSizes, RunOptions, TrainingRun

    own = {each.__name__: get_type_hints(each) for each in (RunOptions, LlmSizes, TrainingRun)}
    STUB.write_text(stub(**own), encoding="utf-8")
