"""Model files of published packages: where they are found, and copies of them without weights.

`real_models.json` next to the tests of the readers lists them. `scripts/fetch_real_models FOLDER`
downloads the packages; `FORERUN_REAL_MODELS=FOLDER` makes the tests read them there. Where a
licence allows it, `real_models.zip` holds the structure of the file, so that tests run everywhere.
`python -m tests.real_models` renews list and copies from the folder.
"""

import gzip
import hashlib
import json
import os
import zipfile
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from math import prod
from pathlib import Path

import onnx

from forerun.data.errors import InputError
from forerun.features.readers import read_graph
from forerun.features.readers.input_sizes import parse_shapes

HERE = Path(__file__).parent / "features" / "readers"
LISTED = HERE / "real_models.json"
COPIES = HERE / "real_models.zip"
VARIABLE = "FORERUN_REAL_MODELS"
_KEPT_VALUES = 16
"""Elements of the largest constant of floats whose values stay in a copy: sizes and scales."""


def listed():
    """Every file with what it is, and what is expected of reading it."""
    return json.loads(LISTED.read_text())


def name_of(entry):
    """A short name: package, folder and file."""
    path = Path(entry["path"])
    return f"{entry['package'].strip('@').replace('/', '-')}-{path.parent.name}-{path.name}"


def content_of(entry):
    """The file, or its copy without weights; None where there is neither."""
    path = _path_of(entry)
    if path is not None:
        content = path.read_bytes()
        return gzip.decompress(content) if path.suffix == ".gz" else content
    return _copies().get(name_of(entry))


def read(content, question):
    """The graph of a file at the sizes of a question, or the error that refuses it."""
    try:
        return read_graph(
            content,
            sequence_length=question.get("sequence_length"),
            image_size=question.get("image_size"),
            shapes=parse_shapes(question.get("shapes", ())),
        )
    except InputError as error:
        return error


def outcome_of(content, question):
    """What reading gives, as plain data."""
    graph = read(content, question)
    if isinstance(graph, InputError):
        return {"refused": str(graph).partition(": ")[2]}
    free = [
        f"{b.input}[{b.axis}]={b.size} {b.why}" for b in graph.bound_dimensions if b.why != "batch"
    ]
    return {
        "operators": sum(op.repeat for op in graph.operators),
        "unknown": dict(graph.unknown),
        "free": free,
    }


def stored_bytes(content):
    """Bytes of all tensors of a file, as the onnx package lists and sizes them.

    Initializers and constants at any depth, and what operators of other domains have as attributes.
    """
    model = onnx.ModelProto()
    model.ParseFromString(content)
    return _bytes_of(model.graph)


def _bytes_of(graph):
    tensors = [*graph.initializer]
    size = 0
    for node in graph.node:
        own = node.op_type == "Constant" or node.domain not in ("", "ai.onnx")
        for attribute in node.attribute:
            value = onnx.helper.get_attribute_value(attribute)
            if attribute.type == attribute.GRAPH:
                size += _bytes_of(value)
            elif attribute.type == attribute.TENSOR and own:
                tensors.append(value)
            elif attribute.type == attribute.TENSORS and own:
                tensors += value
            elif attribute.type == attribute.FLOATS and own:
                size += 4 * len(value)
    return size + sum(map(_size, tensors))


def _size(tensor):
    if tensor.data_type == onnx.TensorProto.STRING:
        return 0
    values = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
    halves = values.name in ("int4", "uint4", "float4_e2m1fn")
    return -(-prod(tensor.dims) // 2) if halves else prod(tensor.dims) * values.itemsize


def _path_of(entry):
    folder = os.environ.get(VARIABLE)
    places = [Path(folder) / entry["package"]] if folder else []
    module = find_spec(entry["path"].partition("/")[0]) if _is_installed(entry) else None
    if module is not None and module.submodule_search_locations:
        places.append(Path(module.submodule_search_locations[0]).parent)
    found = (place / entry["path"] for place in places)
    return next((path for path in found if path.is_file() and _is_same(path, entry)), None)


def _is_installed(entry):
    try:
        return bool(version(entry["package"]))
    except PackageNotFoundError:
        return False


def _is_same(path, entry):
    return hashlib.sha256(path.read_bytes()).hexdigest() == entry["sha256"]


def sizes_of_copies():
    """Bytes of each copy."""
    return [len(content) for content in _copies().values()]


@cache
def _copies():
    with zipfile.ZipFile(COPIES) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def without_weights(content):
    """The structure of an ONNX file: shapes without the values of weights, and no documentation."""
    model = onnx.ModelProto()
    model.ParseFromString(content)
    model.ClearField("doc_string")
    del model.metadata_props[:]
    _strip(model.graph)
    return model.SerializeToString(deterministic=True)


def _strip(graph):
    graph.ClearField("doc_string")
    for tensor in graph.initializer:
        _empty(tensor)
    for node in graph.node:
        node.ClearField("doc_string")
        del node.metadata_props[:]
        for attribute in node.attribute:
            if attribute.type == attribute.GRAPH:
                _strip(attribute.g)
            elif attribute.type == attribute.TENSOR:
                _empty(attribute.t)
            elif node.op_type.startswith("TreeEnsemble"):
                for field in ("floats", "ints", "strings"):
                    attribute.ClearField(field)


def _empty(tensor):
    whole = tensor.data_type in (tensor.INT64, tensor.INT32, tensor.BOOL)
    if prod(tensor.dims) <= (4096 if whole else _KEPT_VALUES):
        return
    for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
        tensor.ClearField(field)


def _renew():
    """Write what is expected now, and the copies that licences allow."""
    entries = listed()
    with zipfile.ZipFile(COPIES, "w", zipfile.ZIP_LZMA) as archive:
        for entry in entries:
            path = _path_of(entry)
            if path is None:
                raise SystemExit(f"{name_of(entry)} is not in the folder of {VARIABLE}")
            content = content_of(entry)
            for question in entry["questions"]:
                question["expected"] = outcome_of(content, question)
            if entry["copy"]:
                made = zipfile.ZipInfo(name_of(entry))
                archive.writestr(made, without_weights(content), zipfile.ZIP_LZMA)
    LISTED.write_text(json.dumps(entries, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    _renew()
