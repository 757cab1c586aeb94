"""Names of the fields of a deployment as vLLM, SGLang, TensorRT-LLM and AIConfigurator write them.

A request may use these names at its top level, or those of a part within that part. Fields that are
given twice must agree.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, Final

from forerun.service.requests.faults import SHORT, fault_in

ALSO: Final[Mapping[str, tuple[str, ...]]] = {
    "device": ("system",),
    "device_count": ("num_gpus", "total_gpus"),
    "input_tokens": ("isl", "input_len", "random_input_len"),
    "output_tokens": ("osl", "output_len", "random_output_len"),
    "concurrency": ("max_concurrency",),
    "requests_per_s": ("request_rate",),
    "model.quantization": ("quantization",),
    "model.cache_format": ("kv_cache_dtype",),
    "engine.name": ("backend",),
    "engine.version": ("backend_version",),
    "engine.max_batched_tokens": (
        *("max_num_batched_tokens", "max_num_tokens", "chunked_prefill_size"),
    ),
    "engine.max_sequences": ("max_num_seqs", "max_running_requests", "max_batch_size"),
    "engine.max_request_tokens": ("max_model_len", "context_length", "max_seq_len"),
    "engine.chunked_prefill": ("enable_chunked_prefill",),
    "engine.memory_share": ("gpu_memory_utilization", "mem_fraction_static"),
    "engine.block_tokens": ("block_size", "page_size", "tokens_per_block"),
    "engine.draft_tokens": ("num_speculative_tokens", "nextn"),
    "parallelism.tensor": ("tp", "tp_size", "tensor_parallel_size"),
    "parallelism.pipeline": ("pp", "pp_size", "pipeline_parallel_size"),
    "parallelism.attention_data": ("dp", "dp_size", "attention_dp_size", "data_parallel_size"),
    "parallelism.expert": ("ep", "ep_size", "moe_ep_size", "expert_parallel_size"),
}
"""Path of a field -> further names of it."""

NEGATED: Final[Mapping[str, str]] = {
    "enforce_eager": "engine.graphs",
    "disable_cuda_graph": "engine.graphs",
}
"""Name of a switch -> path of the field that is its opposite."""

PATHS: Final = {name: path for path, names in ALSO.items() for name in names} | dict(NEGATED)
"""Further name of a field -> its path."""

WRITTEN: Final = "; also written "


FIELD: Final = re.compile(
    r"(?<![\w.`-])[a-z]+(?:_[a-z0-9]+)+(?![\w.`])|(?<=\bgive )[a-z]+\b(?![\w.`])"
)
"""The name of a field in a message: of several words, as one may as well be English, or what is to
be given."""


def renamed(text: str, names: Mapping[str, str]) -> str:
    """A message with other names of fields.

    Args:
        text: the message.
        names: field -> its other name.
    """
    return FIELD.sub(lambda found: names.get(found[0], found[0]), text)


def also(path: str) -> str:
    """The further names of a field, for its description; empty where there are none."""
    own = (name for name in ALSO.get(path, ()) if name != path.rpartition(".")[2])
    names = (*own, *(f"not {name}" for name, of in NEGATED.items() if of == path))
    return f"{WRITTEN}{', '.join(names)}" if names else ""


def without_also(description: str) -> str:
    """A description without the further names of its field."""
    return description.partition(WRITTEN)[0]


def written_as(path: Sequence[str | int], given: Mapping[str, Any]) -> str | None:
    """The further name of a field under which an object gives it; None where there is none.

    Args:
        path: keys and positions that end in those of the field, such as parallelism and tensor.
        given: the object that the request has where the path's own keys are missing.
    """
    parts = [str(step) for step in path]
    own = {".".join(parts[start:]) for start in range(len(parts))}
    return next((name for name in given if PATHS.get(name) in own), None)


def name_in(given: Any, path: str) -> str:
    """How an object writes a field of a path, or a part; the path where it has no further name.

    Args:
        given: a request, or the part that holds the field.
        path: path of the field or part from the request, such as `parallelism.tensor`.
    """
    if not isinstance(given, Mapping) or path in given:
        return path
    own = [name for name in given if PATHS.get(name) == path]
    inner = [name for name in given if PATHS.get(name, "").startswith(f"{path}.")]
    return next(iter((*own, *inner)), path)


def names_written(given: Any, part: str = "") -> dict[str, str]:
    """Path of a field, from the part on -> its further name, for all that an object gives so.

    Args:
        given: the content of a request, or of a part of one.
        part: name of the part; empty for the request.
    """
    if not isinstance(given, Mapping):
        return {}
    inner = f"{part}." if part else ""
    paths = {name: PATHS[name] for name in given if name in PATHS}
    if not part:
        paths |= {name: f"{name}.name" for name in SHORT if isinstance(given.get(name), str)}
    return {
        path.removeprefix(inner): name for name, path in paths.items() if path.startswith(inner)
    }


def in_own_names(
    given: Any, known: Mapping[str, Any], part: str = "", paths: Collection[str] = ()
) -> Any:
    """A request, or a part of one, with the names of its fields as the schema has them.

    Args:
        given: the content; what is no object is returned as it is.
        known: names of the schema's fields, at this level.
        part: name of the part; empty for the request.
        paths: paths of the fields of all parts, such as `workers` and `parallelism.tensor`.

    Raises:
        ValidationError: one field is given twice with different values, or a name is unknown and a
            similar one is known, or it is a field of another part; the message names both, and the
            place is the name.
    """
    if not isinstance(given, Mapping):
        return {"name": given} if part in SHORT and isinstance(given, str) else given
    own = {name: value for name, value in given.items() if name in known}
    for short in SHORT:
        if not part and isinstance(own.get(short), str):
            own[short] = {"name": own[short]}
    written: dict[str, str] = {}
    for name, value in given.items():
        if name in known:
            continue
        path = PATHS.get(name, "")
        if not _is_within(path, part, known):
            _suggest(name, value, known, part)
            _say_where(name, value, known, part, paths)
            own[name] = value
            continue
        meant = not value if name in NEGATED and isinstance(value, bool) else value
        _put(own, path.removeprefix(f"{part}.") if part else path, meant, name, written)
    return own


def _put(own: dict[str, Any], path: str, value: Any, name: str, written: dict[str, str]) -> None:
    """Set the field of a path, in a copy of the part that holds it."""
    *outer, field = path.split(".")
    holder = own
    for part in outer:
        inner = own.get(part)
        if inner is not None and not isinstance(inner, Mapping):
            return  # The schema refuses such a part.
        holder = own[part] = dict(inner or {})
    before = next((said for said in _said(holder, field, outer)), None)
    if before is not None and before[1] != value:
        first = written.get(path, ".".join((*outer, before[0])))
        if NEGATED.keys() & {name, first}:
            said = not before[1] if first in NEGATED else before[1]
            own_value = not value if name in NEGATED else value
            raise fault_in(name, own_value, f"{first} is {said!r}, which {name} contradicts")
        why = f"{first} and {name} mean the same, but are {before[1]!r} and {value!r}"
        raise fault_in(name, value, why)
    holder[field] = value
    written.setdefault(path, name)


def _said(holder: Mapping[str, Any], field: str, outer: list[str]) -> Iterator[tuple[str, Any]]:
    """Name and value by which a part already gives a field."""
    for name in (field, *ALSO.get(".".join((*outer, field)), ())):
        if holder.get(name) is not None:
            yield name, holder[name]


def _is_within(path: str, part: str, known: Mapping[str, Any]) -> bool:
    """Whether a path leads to a field of a part, or from a request to one of its parts."""
    if part and not path.startswith(f"{part}."):
        return False
    return path.removeprefix(f"{part}.").partition(".")[0] in known


def _suggest(name: str, value: Any, known: Mapping[str, Any], part: str) -> None:
    """Refuse an unknown name that is like a known one."""
    names = [other for other, path in PATHS.items() if _is_within(path, part, known)]
    close = get_close_matches(str(name).lower(), {*known, *names}, n=2, cutoff=0.75)
    if close:
        why = f"{name!r:.80} is no field; did you mean {' or '.join(close)}?"
        raise fault_in(name, value, why)


def _say_where(
    name: str, value: Any, known: Mapping[str, Any], part: str, paths: Collection[str]
) -> None:
    """Refuse a name that a part does not have, and another part or the request has."""
    what = f"{name!r:.80} is no field"
    if part and (name in paths or PATHS.get(name) in paths):
        raise fault_in(name, value, f"{what} of {part}; it belongs next to {part}, not in it")
    parts = {part for part, _, field in (path.rpartition(".") for path in paths) if field == name}
    meant = [f"{other}.{name}" for other in sorted(parts - {""}) if part or other in known]
    meant += [path for path in sorted(paths) if not part and _ends(path) == name]
    if meant:
        raise fault_in(name, value, f"{what} here; did you mean {' or '.join(meant)}?")


def _ends(path: str) -> str | None:
    """First and last key of a path of several, as an option of a command would join them."""
    first, dot, rest = path.partition(".")
    return f"{first}_{rest.rpartition('.')[2]}" if dot else None


def merged(said: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """What is said together with fields of its own parts, which replace it."""
    parts = {
        name: merged(said[name], value)
        for name, value in own.items()
        if isinstance(value, Mapping) and isinstance(said.get(name), Mapping)
    }
    return {**said, **own, **parts}
