"""Graphs that come with the package, each in a file of its own: JSON, compressed by xz."""

import json
import lzma
from functools import cache
from importlib.resources import files
from typing import Any


@cache
def packed_names(folder: str) -> tuple[str, ...]:
    """Names of the graphs in a folder next to this module, sorted."""
    found = (entry.name for entry in (files("forerun.data.named") / folder).iterdir())
    return tuple(sorted(n.removesuffix(".json.xz") for n in found if n.endswith(".json.xz")))


def packed_content(folder: str, name: str) -> Any:
    """The content of one of `packed_names(folder)`, as plain JSON."""
    path = files("forerun.data.named") / folder / f"{name}.json.xz"
    return json.loads(lzma.decompress(path.read_bytes()))
