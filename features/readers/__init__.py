"""Readers of model files, modules and tables as operator graphs.

A new file format is one file here with a class like those in `READERS`, and its line there, or a
class of another package that it declares as an entry point (`forerun.data.plugins`).
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Protocol

from forerun.data.errors import (
    BadShape,
    InputError,
    ModelTooLarge,
    UnreadableModel,
)
from forerun.data.graph import OperatorGraph
from forerun.data.plugins import plugins
from forerun.features.readers.input_sizes import MAX_SIZE, GivenShape, InputSizes

MAX_BYTES = 2**31
"""Size limit of a file: that of a protobuf message."""

_HEAD_BYTES = 1 << 20
PICKLED = (
    "it is a pickle of torch.save, which holds weights and can run code when it is opened. Export "
    "the network by torch.onnx.export or torch.export.save, and give that file."
)
_FOREIGN: Mapping[bytes, str] = {
    b"version https://git-lfs.github.com/spec/": "it is a Git LFS pointer, not the file that it "
    "stands for. Fetch that by `git lfs pull`.",
    b"GGUF": "it is a GGUF file of llama.cpp, which holds weights and no operators. Give the "
    "config.json of the network, or ask about it as a language model (`forerun llm`).",
}
"""First bytes of a file -> what it is, and what to give in its place."""


class GraphReader(Protocol):
    """Reads one file format."""

    def accepts(self, path: Path | None, head: bytes) -> bool:
        """Whether a file is of this format, by its name and first bytes."""

    def read(self, source: Path | bytes, sizes: InputSizes) -> OperatorGraph:
        """The graph at these sizes; raises `UnreadableModel` or `BadShape` where it cannot."""


READERS = (
    "forerun.features.readers.onnx:OnnxReader",
    "forerun.features.readers.torch_export:TorchExportReader",
    "forerun.features.readers.operator_json:OperatorJsonReader",
    "forerun.features.readers.huggingface:HuggingFaceReader",
    "forerun.features.readers.diffusers:DiffusersReader",
)
"""`module:class` of each reader, in the order in which they are asked. A module is imported when
its reader is asked, because the libraries that parse a format take long to import."""


def read_graph(
    source: Path | bytes,
    *,
    batch_size: int = 1,
    sequence_length: int | None = None,
    image_size: int | None = None,
    shapes: Mapping[str, GivenShape] | None = None,
    max_bytes: int = MAX_BYTES,
) -> OperatorGraph:
    """The operator graph of a model file, whatever its format.

    Args:
        source: file, or its contents.
        batch_size: bound to free batch dimensions. A graph whose file fixes the batch keeps it
            (`graph.batch_size` says which); costs are scaled from there.
        sequence_length: bound to free sequence dimensions; 128 by default.
        image_size: bound to free heights and widths, pixels; 224 by default.
        shapes: name of an input -> its shape, None for dimensions that are left to the file and
            the other arguments. `graph.bound_dimensions` says what every free dimension became.
        max_bytes: larger files are refused before they are opened.

    Raises:
        BadShape: a shape or the image size contradicts the model's inputs.
        UnreadableModel: missing, empty, damaged, or of no known format.
        ModelTooLarge: over `max_bytes` or over a reader's limit on operators.
        MissingExtra: the format needs an optional part of the installation.
    """
    from forerun.features.readers.operator_json import check_graph

    source = file_in(source) if isinstance(source, Path) else source
    where = source.name if isinstance(source, Path) else "the upload"
    sizes = InputSizes(batch_size, sequence_length, image_size, shapes or {})
    _check_numbers(where, sizes)
    path, head = _head(source, where, max_bytes)
    refuse_foreign(head, where)
    for reader in _readers():
        if reader().accepts(path, head):
            try:
                return check_graph(reader().read(source, sizes), where)
            except InputError:
                raise
            except (OSError, MemoryError, RecursionError) as error:
                raise UnreadableModel(where, f"{type(error).__name__}: {error}.") from error
    if re.match(rb'\s*\{.*"workload"\s*:', head, re.DOTALL):
        why = (
            "it is a question, not a model: `forerun predict FILE` answers it, with `--device` for "
            "several devices; in Python, give `forerun.predict` its workload as a mapping."
        )
        raise UnreadableModel(where, why)
    raise UnreadableModel(
        where,
        "it is not an ONNX model, a .pt2 program, a config.json of Hugging Face or "
        "diffusers, nor an operator graph in JSON.",
    )


def file_in(source: Path) -> Path:
    """The file that describes the model of a folder, as far as there is one; else the path."""
    files = [source / name for name in ("model_index.json", "config.json")]
    return next((file for file in files if file.is_file()), source) if source.is_dir() else source


def refuse_foreign(head: bytes, where: str) -> None:
    """Refuse a file of a known format that describes no network that can be read.

    Args:
        head: first bytes of the file.
        where: name of the file in messages.

    Raises:
        UnreadableModel: it is one; the message says what it is and what to give in its place.
    """
    # The name of the first file of an archive follows 30 bytes that describe it.
    first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    pickled = head[:4] == b"PK\x03\x04" and first.endswith(b"/data.pkl")
    if pickled or head[:2] in (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05"):
        raise UnreadableModel(where, PICKLED)
    for start, why in _FOREIGN.items():
        if head.startswith(start):
            raise UnreadableModel(where, why)


def _readers() -> Iterator[type[GraphReader]]:
    """Those of `READERS`, then those that installed packages add, each looked up when needed."""
    yield from map(resolve_name, READERS)
    yield from plugins("forerun.readers")


def _check_numbers(where: str, sizes: InputSizes) -> None:
    lengths = {"batch size": sizes.batch_size, "sequence length": sizes.sequence_length}
    for name, value in {**lengths, "image size": sizes.image_size}.items():
        if value is not None and not 1 <= value <= MAX_SIZE:
            why = f"{name} {value} is not from 1 to {MAX_SIZE:,}."
            raise UnreadableModel(where, why) if name in lengths else BadShape(f"{where}: {why}")


def _head(source: Path | bytes, where: str, max_bytes: int) -> tuple[Path | None, bytes]:
    """The path, if there is one, and the first bytes."""
    if isinstance(source, bytes):
        path, size, head = None, len(source), source[:_HEAD_BYTES]
    else:
        if not source.is_file():
            why = "it is a folder; give a file" if source.is_dir() else "there is no such file"
            raise UnreadableModel(str(source), f"{why}.")
        try:
            size = source.stat().st_size
            with source.open("rb") as stream:
                head = stream.read(min(_HEAD_BYTES, max_bytes))
        except OSError as error:
            raise UnreadableModel(str(source), f"{error.strerror}.") from error
        path = source
    if size > max_bytes:
        raise ModelTooLarge(where, f"it has {size:,} bytes; the limit is {max_bytes:,}.")
    if not size:
        raise UnreadableModel(where, "it is empty.")
    return path, head
