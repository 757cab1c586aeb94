"""Write the pages of docs/reference from the code's own tables: `python docs/reference.py`.

The page about Python names the public objects; mkdocstrings fills in their docstrings when the site
is built.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_suffix("")

WRITTEN = "*Written by `python docs/reference.py`; a test fails when the code disagrees.*"

ENVIRONMENT = {
    "FORERUN_TRACKING_URI": "MLflow store that `forerun train` writes runs and versions to; "
    "`MLFLOW_TRACKING_URI` where it is not set, else `mlflow.db` in FORERUN_HOME",
    "FORERUN_MIRROR": "folder with copies of upstream files; `forerun data pull` reads it in place "
    "of the network",
    "FORERUN_REFERENCE": "folder of bundles by dataset, where `forerun evaluate` finds graphs that "
    "neither the folder under evaluation nor the pulled bundle has",
    "FORERUN_DEBUG": "when set, a fault of ours shows where it happened",
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
            "The running service shows the same at `/docs`.",
            "## Endpoints\n\n" + endpoints(),
            "## Parameters and bodies\n\n" + operations(),
            "## Problems\n\n"
            "Errors are `application/problem+json` (RFC 9457); `type` ends in the slug. On the "
            "command line each is one line on standard error.\n\n" + problems(),
            "## Schemas\n\nFields of bodies and answers.\n\n" + schemas(),
        ),
        "command-line.md": _page(
            "Command line", "Exit codes: 0 done, 2 the input is wrong, 1 a fault of ours.", verbs()
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
    from forerun.training.scores.errors import Score

    text = inspect.getdoc(Score) or ""
    lines = text.split("Attributes:\n")[1].split("\n\n")[0].splitlines()
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

    found = (getattr(forerun, name) for name in getattr(forerun, "__all__", ()))
    named = [
        f"::: {one.__module__}.{one.__qualname__}" for one in found if hasattr(one, "__qualname__")
    ]
    return "\n\n".join(["## `import forerun`", *named])


def endpoints() -> str:
    """Table of endpoints, from the OpenAPI document."""
    rows = [
        [f"`{place}`", _first_line(operation.get("description", ""))]
        for place, operation in _operations()
    ]
    return _table(["endpoint", "answer"], rows)


def operations() -> str:
    """Parameters, body and answer of each endpoint that has any, from the OpenAPI document."""
    parts = []
    for place, operation in _operations():
        lines = [
            f"| `{p['name']}` | {p['in']} | {_type(p.get('schema', {}))} "
            f"| {_cell(p.get('description') or p.get('schema', {}).get('description') or '')} |"
            for p in operation.get("parameters", ())
        ]
        bodies = _bodies(operation)
        if lines or bodies:
            table = ["| parameter | in | type | meaning |", "| --- | --- | --- | --- |", *lines]
            parts.append(f"### `{place}`\n\n" + "\n".join(bodies))
            parts += ["\n".join(table)] if lines else []
            parts += [f"```json\n{json.dumps(one, indent=2)}\n```" for one in _examples(operation)]
    return "\n\n".join(parts)


def schemas() -> str:
    """Fields of every schema of the OpenAPI document."""
    parts = []
    for name, schema in sorted(_document()["components"]["schemas"].items()):
        parts.append(f"### {name} {{#{name.lower()}}}")
        if text := _first_line(schema.get("description", "")):
            parts.append(text)
        needed = set(schema.get("required", ()))
        rows = [
            [
                f"`{field}`" + (" (required)" if field in needed else ""),
                _type(about),
                _first_line(about.get("description", "")),
            ]
            for field, about in schema.get("properties", {}).items()
        ]
        if rows:
            parts.append(_table(["field", "type", "meaning"], rows))
        elif schema.get("enum"):
            parts.append("One of " + ", ".join(f"`{value}`" for value in schema["enum"]) + ".")
    return "\n\n".join(parts)


def _operations() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Method and path of each endpoint, and what the OpenAPI document says of it."""
    for path, methods in sorted(_document()["paths"].items()):
        for method, operation in sorted(methods.items()):
            yield f"{method.upper()} {path}", operation


def _bodies(operation: Mapping[str, Any]) -> list[str]:
    """A line each for the body and for the answer of an endpoint, where they have a schema."""
    sent = operation.get("requestBody", {}).get("content", {})
    answered = operation.get("responses", {}).get("200", {}).get("content", {})
    lines = []
    for title, content in (("Body", sent), ("Answer", answered)):
        kinds = [f"`{kind}` {_type(about.get('schema', {}))}" for kind, about in content.items()]
        if kinds:
            lines.append(f"- {title}: {', '.join(kinds)}")
    return lines


def _examples(operation: Mapping[str, Any]) -> list[Any]:
    """Example bodies of an endpoint, from the schema of its JSON body."""
    sent = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
    name = sent.get("schema", {}).get("$ref", "").rpartition("/")[2]
    schema = _document()["components"]["schemas"].get(name, {})
    return [*schema.get("examples", ())][:1]


@cache
def _document() -> dict[str, Any]:
    from forerun.service.http.app import create_app

    return create_app().openapi()


def _type(schema: Mapping[str, Any]) -> str:
    """The type of a field in a word or two, with a link where it is a schema of its own."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for union in ("anyOf", "oneOf", "allOf"):
        if union in schema:
            return " or ".join(dict.fromkeys(_type(one) for one in schema[union]))
    if "const" in schema:
        return f"`{schema['const']}`"
    if "enum" in schema:
        return ", ".join(f"`{value}`" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    if isinstance(schema.get("additionalProperties"), Mapping):
        return f"mapping to {_type(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def problems() -> str:
    """Table of errors that the asker can mend."""
    from forerun.data.errors import InputError
    from forerun.service.problems import STATUSES

    modules = set(_modules_with_problems())
    for name in sorted(modules):
        importlib.import_module(name)
    found = {
        error.slug: [str(error.status), _first_line(error.__doc__ or "")]
        for error in _tree(InputError)
        if error.__module__ in modules
    }
    for status, (slug, title) in STATUSES.items():
        found[slug] = [str(status), f"{title}."]
    rows = [[f"`{slug}`", *found[slug]] for slug in sorted(found)]
    return _table(["slug", "status", "meaning"], rows)


def _modules_with_problems() -> Iterator[str]:
    """Names of the modules that define errors with a slug of their own."""
    package = Path(__file__).parents[1] / "src" / "forerun"
    for room in ("data", "features", "models", "training", "service"):
        for file in (package / room).rglob("*.py"):
            if re.search(r"^    slug\b", file.read_text(encoding="utf-8"), re.MULTILINE):
                yield "forerun." + ".".join(file.relative_to(package).with_suffix("").parts)


def verbs() -> str:
    """Each verb with its arguments and options."""
    import typer

    from forerun.service.cli import app

    return "\n\n".join(_verbs(typer.main.get_command(app), "forerun"))


def settings() -> str:
    """Table of environment variables."""
    from forerun.service.settings import Settings

    rows = []
    for name, field in Settings.model_fields.items():
        default = "~/.cache/forerun" if name == "home" else field.default
        shown = "" if default is None else f"`{default}`"
        rows.append([f"`FORERUN_{name.upper()}`", field.description or "", shown])
    rows += [[f"`{name}`", text, ""] for name, text in ENVIRONMENT.items()]
    return _table(["variable", "meaning", "default"], rows)


def _verbs(command: Any, name: str) -> Iterator[str]:
    for verb, found in sorted(getattr(command, "commands", {}).items()):
        is_group = hasattr(found, "commands")
        if not is_group or (found.invoke_without_command and found.params):
            parts = [f"## `{name} {verb}`", _first_line(found.help or "")]
            if found.params:
                parts.append("\n".join(f"- {_parameter(p)}: {p.help or ''}" for p in found.params))
            yield "\n\n".join(parts)
        if is_group:
            yield from _verbs(found, f"{name} {verb}")


def _parameter(parameter: Any) -> str:
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
    return "\n".join("| " + " | ".join(_cell(c) for c in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
