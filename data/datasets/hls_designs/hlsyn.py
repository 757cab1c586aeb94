"""Hardware designs by high-level synthesis: a program, directives on its loops, cycles and area.

One row of `designs` is one program with one choice of directives, synthesised for an FPGA by SDx
2018.3 (`v18`) or Vitis 2020.2 (`v20`). Most choices fail or time out and have no label (0 cycles).
Source: ZongyueQin/HLSyn at 88ed5321, CC BY-SA 4.0.
"""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.quality import Quantities, check
from forerun.data.split import Mask, folds_of
from forerun.data.upstream.downloads import RawFiles

INDUCTIVE: Final[Mapping[str, tuple[str, ...]]] = {
    "v18": ("fdtd-2d", "jacobi-2d", "trmm-opt", "stencil-3d", "doitgen-red", "gemm-ncubed"),
    "v20": ("symm", "fdtd-2d-large", "trmm-opt", "gemm-p-large", "covariance", "gemm-ncubed"),
}
"""Programs that the authors hold out, by tool."""

FOLDS: Final = 20
TEST, VALIDATION = (0, 1, 2), (3, 4, 5)
"""Folds, of 20, of each training program's designs: 15 % are test rows, 15 % validation rows."""

RESOURCES: Final = ("bram", "dsp", "lut", "ff")

_ARCHIVE = "data/HLSyn_data.tar.gz"
_GRAPH = "_processed_result.gexf"
_RENAMED = {"stencil_stencil2d": "stencil"}
_UNUSED = ("syrkk",)
_SPACE = "{http://www.gexf.net/1.2draft}"


class HLSyn(Dataset, declared="hlsyn"):
    """Evaluated on unseen programs, and on unseen designs of programs seen in training."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """`designs`, `graph_nodes` and `graph_edges`; empty where the archive is missing."""
        if _ARCHIVE not in raw.paths:
            return {}
        designs: list[dict[str, Any]] = []
        nodes: list[dict[str, Any]] = []
        edges: list[dict[str, Any]] = []
        for path, content in _files(raw.read(_ARCHIVE)):
            if path.endswith(".json"):
                designs += _designs(path, content)
            elif path.endswith(_GRAPH):
                found = _graph(path, content)
                nodes += found[0]
                edges += found[1]
        node_types = {"block": "int16", "function": "int16", "type": "int16"}
        edge_types = {"flow": "int16", "position": "int16"}
        return {
            "designs": pd.DataFrame(designs),
            "graph_nodes": pd.DataFrame(nodes).astype(node_types),
            "graph_edges": pd.DataFrame(edges).astype(edge_types),
        }

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Labelled designs by tool: of held-out and other programs, and their train and test parts.

        A program that a tool's inductive split holds out is absent from that tool's training rows;
        rows of the other tool take no part. Parts of the transductive split depend only on the
        design.
        """
        labelled = np.asarray(rows["latency_cycles"] > 0, dtype=np.bool_)
        out = np.asarray(rows["published_split"] != "train_pool", dtype=np.bool_)
        part = design_parts(rows)
        found: dict[str, Mask] = {}
        for tool in INDUCTIVE:
            of_tool = labelled & np.asarray(rows["tool"] == tool, dtype=np.bool_)
            seen, test = of_tool & ~out, np.isin(part, TEST)
            found |= {f"{tool} seen": seen, f"{tool} out": of_tool & out}
            found[f"{tool} train"] = seen & ~test & ~np.isin(part, VALIDATION)
            found[f"{tool} test"] = seen & test
        return found

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `designs`: no label, or listed twice."""
        designs = bundle.table("designs")
        cycles = designs["latency_cycles"].to_numpy(dtype=np.float64)
        cycles = np.where(cycles > 0, cycles, np.nan)
        return check(designs, Quantities(time_ms=cycles), same=(*self.query, "latency_cycles"))


def design_parts(designs: "pd.DataFrame") -> NDArray[np.int64]:
    """Which of 20 parts each design falls into, from its program and directives alone."""
    pairs = zip(designs["kernel"], designs["pragmas_json"], strict=True)
    return folds_of((f"{kernel} {directives}" for kernel, directives in pairs), FOLDS, "design")


def _files(archive: bytes) -> Iterator[tuple[str, bytes]]:
    """(path, content) of each file in the archive, sorted by path."""
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as packed:
        for member in sorted(packed.getmembers(), key=lambda m: m.name):
            content = packed.extractfile(member)
            if content is not None:
                yield member.name, content.read()


def _designs(path: str, content: bytes) -> Iterator[dict[str, Any]]:
    """Rows of `data/designs/TOOL/KERNEL.json`."""
    tool, name = path.split("/")[-2:]
    kernel = name.removesuffix(".json")
    out = kernel in INDUCTIVE.get(tool, ())
    for design in json.loads(content).values():
        used = design["res_util"]
        yield {
            "tool": tool,
            "kernel": kernel,
            "valid": bool(design["valid"]),
            "latency_cycles": float(design["perf"]),
            "pragmas_json": json.dumps(design["point"], sort_keys=True),
            **{f"util_{name}": float(used[f"util-{name.upper()}"]) for name in RESOURCES},
            **{name: float(used[f"total-{name.upper()}"]) for name in RESOURCES},
            "published_split": "inductive_test" if out else "train_pool",
        }


def _graph(path: str, content: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Nodes and edges of `data/graphs/KERNEL_processed_result.gexf`."""
    kernel = path.rsplit("/", 1)[-1].removesuffix(_GRAPH)
    kernel = _RENAMED.get(kernel, kernel)
    if kernel in _UNUSED:
        return [], []
    # The archive's checksum was verified, so this is the file that the authors published.
    tree = ElementTree.fromstring(content)  # noqa: S314
    titles = {
        (group.get("class"), attribute.get("id")): attribute.get("title")
        for group in tree.iter(f"{_SPACE}attributes")
        for attribute in group
    }

    def values(element: ElementTree.Element, kind: str) -> dict[Any, Any]:
        pairs = element.iter(f"{_SPACE}attvalue")
        return {titles[kind, attribute.get("for")]: attribute.get("value") for attribute in pairs}

    nodes = []
    for node in tree.iter(f"{_SPACE}node"):
        attributes = values(node, "node")
        numbers = {name: int(attributes[name]) for name in ("block", "function")}
        texts = {"text": attributes["text"], "type": int(attributes["type"])}
        full_text = attributes.get("full_text")
        here = {"kernel": kernel, "node": int(node.get("id", "0"))}
        nodes.append({**here, **numbers, **texts, "full_text": full_text})
    edges = []
    for edge in tree.iter(f"{_SPACE}edge"):
        attributes = values(edge, "edge")
        ends = {"src": int(edge.get("source", "0")), "dst": int(edge.get("target", "0"))}
        numbers = {name: int(attributes[name]) for name in ("flow", "position")}
        edges.append({"kernel": kernel, **ends, **numbers})
    return nodes, edges
