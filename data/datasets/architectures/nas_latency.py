"""Latency of every architecture of three search spaces on many device configurations.

One row of a latency table is one architecture on one configuration: a chip with its runtime, batch
and precision under one name. HELP's times on phones are rounded to whole milliseconds. EAGLE's
runtimes prune edges of a cell that do not reach its output; HELP's PyTorch runs them.
Sources: HELP at 45f70eb9 (MIT), EAGLE's tables as copied in NAS-LLM-GNN at 46d3713c (none stated),
OneProxy at e3c9b2c6 (MIT), HW-NAS-Bench-360 at a9b243e0 (none stated).

HELP has one list per device, in the order of its architectures; EAGLE a dictionary from a cell's
choices to seconds; OneProxy lists over 1,999 unnamed cells, which are identified by the times of
two devices that HELP has too. Files are read as plain data (`forerun.data.upstream.plain_files`).
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePosixPath
from typing import Any, Final, get_args

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.dataset import Dataset
from forerun.data.lazy import pd
from forerun.data.named.search_spaces import Nb201Operation
from forerun.data.quality import Quantities, check, with_findings
from forerun.data.split import Split, is_one_of
from forerun.data.upstream.downloads import RawFiles
from forerun.data.upstream.plain_files import plain_data

NB201_EDGES: Final = ("op_0to1", "op_0to2", "op_1to2", "op_0to3", "op_1to3", "op_2to3")
_HELP_SPACES: Final = {"nb201": "nasbench201", "fbnet": "fbnet", "ofa": "ofa"}
_NB201_CHOICES: Final = get_args(Nb201Operation)
_ONE_PROXY: Final = {
    "true_a76": "nnmeter_cortexA76cpu_tflite21",
    "true_640": "nnmeter_adreno640gpu_tflite21",
    "rice_edgetpu": "hwnb_edgetpu",
}


def _read(raw: RawFiles, pattern: str) -> Any:
    """Content of the first file that matches the pattern, or None."""
    paths = raw.matching(pattern)
    return plain_data(raw.read(paths[0]), paths[0]) if paths else None


def _cells(content: Mapping[str, int]) -> "pd.DataFrame":
    names = sorted(content, key=content.__getitem__)
    choices = [[edge.partition("~")[0] for edge in _edges(name)] for name in names]
    codes = np.array([[_NB201_CHOICES.index(c) for c in cell] for cell in choices], dtype=np.int8)
    table = pd.DataFrame({"arch_id": np.arange(len(names), dtype=np.int32), "arch_str": names})
    return table.assign(**{edge: codes[:, place] for place, edge in enumerate(NB201_EDGES)})


def _edges(name: str) -> list[str]:
    return [edge for node in name.split("+") for edge in node.strip("|").split("|")]


def _fbnets(content: Mapping[str, Any]) -> "pd.DataFrame":
    codes = np.array([arch["op_idx_list"] for arch in content["arch"]], dtype=np.int8)
    return _numbered({f"op_{place:02d}": column for place, column in enumerate(codes.T)})


def _ofas(content: Mapping[str, Any]) -> "pd.DataFrame":
    archs = content["arch"]
    columns: dict[str, Any] = {}
    for key, prefix in (("ks", "ks_{:02d}"), ("e", "e_{:02d}"), ("d", "d_{}")):
        codes = np.array([arch[key] for arch in archs], dtype=np.int8)
        columns |= {prefix.format(place): column for place, column in enumerate(codes.T)}
    columns["r"] = np.array([arch["r"] for arch in archs], dtype=np.int16)
    return _numbered(columns)


def _numbered(columns: dict[str, Any]) -> "pd.DataFrame":

    ids = np.arange(len(next(iter(columns.values()))), dtype=np.int32)
    return pd.DataFrame({"arch_id": ids, **columns})


def _by_position(raw: RawFiles, path: str) -> "pd.DataFrame":
    times = np.array(plain_data(raw.read(path), path), dtype=np.float32)
    return _device_rows(PurePosixPath(path).stem, np.arange(len(times)), times)


def _by_choices(raw: RawFiles, path: str, cells: "pd.DataFrame") -> "pd.DataFrame":
    """EAGLE: seconds by choices at the edges; cells that are missing there have no row."""
    content = plain_data(raw.read(path), path)
    codes = map(tuple, cells[list(NB201_EDGES)].to_numpy().tolist())
    known = [(place, content[cell]) for place, cell in enumerate(codes) if cell in content]
    ids, seconds = zip(*known, strict=True) if known else ((), ())
    times = (np.array(seconds, dtype=np.float64) * 1e3).astype(np.float32)
    return _device_rows(PurePosixPath(path).stem.replace("-", "_"), np.array(ids), times)


def _device_rows(device: str, ids: Any, times: Any) -> "pd.DataFrame":

    return pd.DataFrame(
        {"arch_id": np.asarray(ids, dtype=np.int32), "device": device, "latency_ms": times}
    )


def _stacked(parts: "list[pd.DataFrame]") -> "pd.DataFrame":
    table = pd.concat(parts, ignore_index=True)
    return table.assign(device=table["device"].astype("category"))


def _extra(raw: RawFiles, latency: "pd.DataFrame") -> "list[pd.DataFrame]":
    """OneProxy's devices; cells are identified by the times on raspi4 and pixel3, as in HELP."""
    shared = [_read(raw, f"*latency_data/rice_{name}.pickle") for name in ("raspi4", "pixel3")]
    of_devices = [latency[latency["device"] == name] for name in ("raspi4", "pixel3")]
    if any(times is None for times in shared) or any(rows.empty for rows in of_devices):
        return []
    pairs = zip(*(rows["latency_ms"].tolist() for rows in of_devices), strict=True)
    ids = dict(zip(pairs, of_devices[0]["arch_id"].tolist(), strict=True))
    asked = zip(*(np.array(times, dtype=np.float32).tolist() for times in shared), strict=True)
    places = [ids[pair] for pair in asked if pair in ids]
    parts = []
    for stem, device in _ONE_PROXY.items():
        times = _read(raw, f"*latency_data/{stem}.pickle")
        if times is not None and len(times) == len(places):
            parts.append(_device_rows(device, places, np.array(times, dtype=np.float32)))
    return parts


def _edge360(rows: "pd.DataFrame") -> "pd.DataFrame":
    """Cells that represent their isomorphic copies, on every board, runtime and task."""
    rows = rows[rows["arch_idx"] == rows["rep_arch_idx"]].reset_index(drop=True)
    names = {"arch_idx": "arch_id", "lat_ms_median": "latency_ms", "lat_ms_var": "latency_ms_var"}
    table = rows.rename(columns=names)
    kept = ["arch_id", "device", "framework", "task", "latency_ms", "latency_ms_var", "energy_mj"]
    numbers = dict.fromkeys(kept[4:], "float32")
    words = dict.fromkeys(kept[1:4], "category")
    return table[kept].astype({"arch_id": "int32", **words, **numbers})


_ARCHITECTURES: Final = {
    "nb201": ("*data/nasbench201/str_arch2idx.pt", _cells),
    "fbnet": ("*data/fbnet/metainfo.pt", _fbnets),
    "ofa": ("*data/ofa/ofa_archs.pt", _ofas),
}
Column = NDArray[np.float64]
Indices = NDArray[np.intp]

TRAINING_ARCHITECTURES: Final = 900
"""Architectures with ids below this train the predictor on a source device."""
CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "nb201": NB201_EDGES,
    "fbnet": tuple(f"op_{layer:02d}" for layer in range(22)),
    "ofa": (
        *(f"ks_{block:02d}" for block in range(20)),
        *(f"e_{block:02d}" for block in range(20)),
        *(f"d_{stage}" for stage in range(5)),
        "r",
    ),
}
"""Columns of NAME_archs that define an architecture, in the order of `Architecture.operators`."""
LATENCIES: Final[Mapping[str, tuple[str, ...]]] = {
    "nb201": ("nb201_latency", "nb201_extra", "nb201_edge360"),
    "fbnet": ("fbnet_latency",),
    "ofa": ("ofa_latency",),
}
"""Tables with times of each space."""
FOLDED: Final = 0.02
"""A cell faster than this share of its device's median was optimised away."""


class NasLatency(Dataset, declared="nas_latency"):
    """Evaluated on unseen devices, for which a few measurements are given (few-shot)."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """Architectures and times of each space whose files are available."""
        tables: dict[str, pd.DataFrame] = {}
        for space, (pattern, architectures) in _ARCHITECTURES.items():
            content = _read(raw, pattern)
            if content is not None:
                tables[f"{space}_archs"] = architectures(content)
        for space, folder in _HELP_SPACES.items():
            times = raw.matching(f"*data/{folder}/latency/*.pt")
            parts = [_by_position(raw, path) for path in times]
            if space == "nb201" and "nb201_archs" in tables:
                eagle = raw.matching("*/drive/*.pickle") + raw.matching("drive/*.pickle")
                parts += [_by_choices(raw, path, tables["nb201_archs"]) for path in sorted(eagle)]
            if parts:
                tables[f"{space}_latency"] = _stacked(parts)
        if "nb201_latency" in tables and (extra := _extra(raw, tables["nb201_latency"])):
            tables["nb201_extra"] = _stacked(extra)
        if boards := raw.matching("*results/dataset.parquet"):
            tables["nb201_edge360"] = _edge360(raw.table(boards[0]))
        return tables

    def documents(self, raw: RawFiles) -> dict[str, Any]:
        """`tasks`: the published device splits."""
        return {"tasks": published_protocols()}

    def splits(self, bundle: Bundle) -> list[Split]:
        """`nasflat_SPACE/TASK` and `help_SPACE`; `training` adds leave-one-device-out."""
        splits = []
        for space in ("nb201", "fbnet", "ofa"):
            table = f"{space}_latency"
            if not bundle.has(table):
                continue
            rows = bundle.table(table)
            early = (rows["arch_id"] < TRAINING_ARCHITECTURES).to_numpy()
            published = protocols_of(bundle)
            parts = {f"nasflat_{space}/{k}": v for k, v in published.get(space, {}).items()}
            if help_split := published["help"].get(space):
                parts[f"help_{space}"] = {
                    "train": help_split["meta_train"],
                    "test": help_split["meta_test"],
                }
            for protocol, devices in parts.items():
                train = early & is_one_of(rows["device"], devices["train"])
                held_out = is_one_of(rows["device"], devices["test"])
                if protocol.startswith("help_"):
                    held_out = held_out & _help_queries(rows, published["help"][space])
                splits.append(Split(protocol, table, train, held_out, (), ("device",)))
        return [split for split in splits if split.held_out.any()]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful rows of `nb201_latency`: cells optimised away, rounded times, duplicates."""
        rows = bundle.table("nb201_latency")
        times = rows["latency_ms"].to_numpy(dtype=np.float64)
        by_device = rows.groupby("device", observed=True)["latency_ms"]
        folded = times < FOLDED * by_device.transform("median").to_numpy(dtype=np.float64)
        rounded = by_device.transform(lambda column: bool((column % 1 == 0).all()))
        found = check(rows, Quantities(time_ms=times), same=("arch_id", "device"))
        found = with_findings(found, folded, "folded", "the cell folded away: next to no time")
        return with_findings(
            found, rounded.to_numpy(dtype=np.bool_), "rounded", "whole milliseconds only"
        )


def device_slug(name: str) -> str:
    """A configuration's name as the name of a `Device`."""
    return name.lower().replace("_", "-").replace(".", "-")


def published_protocols() -> dict[str, Any]:
    """NASFLAT's and HELP's device splits, as in the document `tasks`."""
    packaged = files("forerun.data.datasets.architectures") / "nas_latency.tasks.json"
    content: dict[str, Any] = json.loads(packaged.read_text(encoding="utf-8"))
    return content


def protocols_of(bundle: Bundle) -> dict[str, Any]:
    """Protocols in a bundle's document `tasks`, else the published ones."""
    if "tasks" in bundle.documents():
        content: dict[str, Any] = bundle.document("tasks")
        return content
    return published_protocols()


def times_of(rows: "pd.DataFrame", architectures: int) -> dict[str, Column]:
    """Device -> milliseconds by architecture id, NaN if not measured or failed."""
    names = rows["device"].astype(str)
    if "framework" in rows:
        names = names + "_" + rows["framework"].astype(str) + "_" + rows["task"].astype(str)
    found = {}
    for device, of_device in rows.groupby(names, observed=True):
        times = np.full(architectures, np.nan)
        latency = of_device["latency_ms"].to_numpy(dtype=np.float64)
        times[of_device["arch_id"].to_numpy()] = np.where(latency > 0, latency, np.nan)
        found[str(device)] = times
    return found


def middle(times: Column, index: Indices) -> Indices:
    """The positions of `index` whose times lie between the first and the ninth decile, in order.

    Args:
        times: n times; rows without a positive time are ignored.
        index: positions in `times`.
    """
    index = index[times[index] > 0]
    if not len(index):
        return index
    low, high = np.quantile(times[index], [0.1, 0.9])
    return np.asarray(index[(times[index] >= low) & (times[index] <= high)])


def _help_queries(rows: "pd.DataFrame", protocol: Mapping[str, Any]) -> NDArray[np.bool_]:
    last = protocol["n_pool"] + protocol.get("n_query", 1000)
    queried = rows["arch_id"].between(protocol["n_pool"], last - 1).to_numpy()
    held_out = np.zeros(len(rows), dtype=np.bool_)
    for device in protocol["meta_test"]:
        of_device = np.flatnonzero(queried & is_one_of(rows["device"], [device]))
        if len(of_device):
            times = rows["latency_ms"].to_numpy(dtype=np.float64)
            held_out[middle(times, of_device)] = True
    return held_out
