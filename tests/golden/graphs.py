"""Networks that questions name: graphs that come with the package, and files of `onnx`."""

import json
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import onnx
import pandas as pd


@cache
def _table(folder: str) -> dict[str, str]:
    with as_file(files("forerun.data") / folder / "graphs.parquet") as path:
        table = pd.read_parquet(path, columns=["graph", "content"])
    return dict(zip(table["graph"], table["content"], strict=True))


def graph_named(name: str) -> dict[str, Any]:
    """The operator graph `folder/graph` of a table in `data`, as JSON.

    Raises:
        KeyError: the folder has no graph of that name.
    """
    folder, _, graph = name.rpartition("/")
    content: dict[str, Any] = json.loads(_table(folder)[graph])
    return content


def onnx_file(name: str) -> bytes:
    """A small network of the `onnx` package: architectures without weights."""
    light = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
    return (light / f"{name}.onnx").read_bytes()
