"""`.pt2` programs as operator graphs: the archive's JSON is read; nothing is unpickled or run."""

import json
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

from forerun.data.errors import UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.features.readers.aten_graph import AtenGraph, Call, Meta, Ref, operator_name
from forerun.features.readers.input_sizes import InputSizes, Probe

PROGRAM = "models/model.json"
MAX_PROGRAM_BYTES = 256 * 2**20
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, EOFError, OSError),
    *(NotImplementedError, RuntimeError, OverflowError),
)
_MISSHAPEN = (*(KeyError, TypeError, ValueError, AttributeError), *(IndexError, StopIteration))
_INTEGER_TYPES = range(1, 6)
"""Numbers of integer types in the schema of exported programs."""


class TorchExportReader:
    """Reads files of `torch.export.save`."""

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """Whether it is a zip archive, or a file named .pt2."""
        return head[:4] == b"PK\x03\x04" or (path is not None and path.suffix == ".pt2")

    def read(self, source: Path | bytes, sizes: InputSizes) -> OperatorGraph:
        """The program's graph at the batch size it was exported with; costs scale from there.

        Raises:
            BadShape: shapes or an image size are given.
            UnreadableModel: it is not such an archive, or of another layout.
        """
        where = source.name if isinstance(source, Path) else "the upload"
        sizes.refuse_shapes(where, "a .pt2 program is read at the shapes that it was exported with")
        try:
            program = _program(source)
            return _graph(program)
        except _MISSHAPEN as error:
            why = f"it is not a program of torch.export.save ({type(error).__name__}: {error})."
            raise UnreadableModel(where, why) from None
        except _DAMAGED as error:
            raise UnreadableModel(where, f"it is not a valid archive: {error}.") from None


def _program(source: Path | bytes) -> Mapping[str, Any]:
    file = BytesIO(source) if isinstance(source, bytes) else source
    with zipfile.ZipFile(file) as archive:
        name = next((n for n in archive.namelist() if n.endswith(PROGRAM)), None)
        if name is None:
            raise ValueError(f"the archive holds no {PROGRAM}")
        if archive.getinfo(name).file_size > MAX_PROGRAM_BYTES:
            raise ValueError(f"{PROGRAM} is over {MAX_PROGRAM_BYTES // 2**20} MiB")
        content = json.loads(archive.read(name))
    if not isinstance(content, dict):
        raise ValueError(f"{PROGRAM} is no object")
    return content


def _graph(program: Mapping[str, Any]) -> OperatorGraph:
    module = program["graph_module"]
    graph, specs = module["graph"], module["signature"]["input_specs"]
    tensors = {name: _meta(value) for name, value in graph["tensor_values"].items()}
    weights: dict[str, int] = {}
    batch = 1
    for spec in specs:
        kind, content = next(iter(spec.items()))
        argument = content.get("arg", {})
        name = argument.get("name") or argument.get("as_tensor", {}).get("name")
        if name not in tensors:
            continue
        if kind == "user_input":
            batch = max(batch, *tensors[name].shape[:1], 1) if batch == 1 else batch
        else:
            weights[name] = prod(tensors[name].shape) if tensors[name].floating else 0
    collected = AtenGraph(tensors, weights, Probe(False))
    for node in graph["nodes"]:
        arguments = {given["name"]: _argument(given["arg"]) for given in node["inputs"]}
        outputs = tuple(_names(node["outputs"]))
        target = str(node["target"]).removeprefix("torch.ops.")
        collected.add(Call(operator_name(target), arguments, outputs))
    return collected.graph("torch_export", batch)


def _meta(value: Mapping[str, Any]) -> Meta:
    return Meta(
        tuple(_integer(size) for size in value["sizes"]),
        tuple(_integer(stride) for stride in value["strides"]),
        value["dtype"],
        value["dtype"] not in _INTEGER_TYPES,
    )


def _integer(size: Mapping[str, Any]) -> int:
    """A size; for a symbolic one the value it was traced with."""
    if "as_int" in size:
        return int(size["as_int"])
    return int(size["as_expr"]["hint"]["as_int"])


def _names(outputs: list[Mapping[str, Any]]) -> Iterator[str]:
    for output in outputs:
        if "as_tensor" in output:
            yield output["as_tensor"]["name"]
        for tensor in output.get("as_tensors", ()):
            yield tensor["name"]


def _argument(value: Mapping[str, Any]) -> Any:
    kind, content = next(iter(value.items()))
    if kind == "as_tensor":
        return Ref(content["name"])
    if kind == "as_tensors":
        return [Ref(tensor["name"]) for tensor in content]
    if kind == "as_optional_tensors":
        return [Ref(t["as_tensor"]["name"]) for t in content if "as_tensor" in t]
    if kind in ("as_ints", "as_int", "as_bool", "as_bools", "as_float", "as_floats", "as_string"):
        return content
    return None
