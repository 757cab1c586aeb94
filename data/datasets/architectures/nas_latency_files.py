"""Upstream files of nas_latency as tables: plain lists of times, by architecture.

HELP gives one list per device, in the order of its architectures; EAGLE a dictionary from a cell's
choices to seconds; OneProxy lists over 1,999 cells that it does not name and that are identified by
the times of two devices that HELP has too. Files are read as plain data
(`forerun.data.upstream.plain_pickle`).
"""

import io
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final, get_args

import numpy as np

from forerun.data.named.search_spaces import Nb201Operation
from forerun.data.upstream.downloads import RawFiles
from forerun.data.upstream.plain_pickle import plain_data

if TYPE_CHECKING:
    import pandas as pd

NB201_EDGES: Final = ("op_0to1", "op_0to2", "op_1to2", "op_0to3", "op_1to3", "op_2to3")
_HELP_SPACES: Final = {"nb201": "nasbench201", "fbnet": "fbnet", "ofa": "ofa"}
_NB201_CHOICES: Final = get_args(Nb201Operation)
_ONE_PROXY: Final = {
    "true_a76": "nnmeter_cortexA76cpu_tflite21",
    "true_640": "nnmeter_adreno640gpu_tflite21",
    "rice_edgetpu": "hwnb_edgetpu",
}


def tables_of(raw: RawFiles) -> dict[str, "pd.DataFrame"]:
    """Architectures and times of each space; missing files are left out."""
    found = {"nb201_archs": _cells(raw), "fbnet_archs": _fbnets(raw), "ofa_archs": _ofas(raw)}
    tables: dict[str, pd.DataFrame | None] = dict(found)
    for space, folder in _HELP_SPACES.items():
        parts = [_by_position(raw, path) for path in raw.matching(f"*data/{folder}/latency/*.pt")]
        if space == "nb201" and found["nb201_archs"] is not None:
            eagle = raw.matching("*/drive/*.pickle") + raw.matching("drive/*.pickle")
            parts += [_by_choices(raw, path, found["nb201_archs"]) for path in sorted(eagle)]
        tables[f"{space}_latency"] = _stacked(parts)
    tables["nb201_extra"] = _extra(raw, tables["nb201_latency"])
    tables["nb201_edge360"] = _edge360(raw)
    return {name: table for name, table in tables.items() if table is not None}


def _read(raw: RawFiles, pattern: str) -> Any:
    """Content of the one file of that pattern, or None."""
    paths = raw.matching(pattern)
    return plain_data(raw.read(paths[0]), paths[0]) if paths else None


def _cells(raw: RawFiles) -> "pd.DataFrame | None":
    import pandas as pd

    content = _read(raw, "*data/nasbench201/str_arch2idx.pt")
    if content is None:
        return None
    names = sorted(content, key=content.__getitem__)
    choices = [[edge.partition("~")[0] for edge in _edges(name)] for name in names]
    codes = np.array([[_NB201_CHOICES.index(c) for c in cell] for cell in choices], dtype=np.int8)
    table = pd.DataFrame({"arch_id": np.arange(len(names), dtype=np.int32), "arch_str": names})
    return table.assign(**{edge: codes[:, place] for place, edge in enumerate(NB201_EDGES)})


def _edges(name: str) -> list[str]:
    return [edge for node in name.split("+") for edge in node.strip("|").split("|")]


def _fbnets(raw: RawFiles) -> "pd.DataFrame | None":
    content = _read(raw, "*data/fbnet/metainfo.pt")
    if content is None:
        return None
    codes = np.array([arch["op_idx_list"] for arch in content["arch"]], dtype=np.int8)
    return _numbered({f"op_{place:02d}": column for place, column in enumerate(codes.T)})


def _ofas(raw: RawFiles) -> "pd.DataFrame | None":
    content = _read(raw, "*data/ofa/ofa_archs.pt")
    if content is None:
        return None
    archs = content["arch"]
    columns: dict[str, Any] = {}
    for key, prefix in (("ks", "ks_{:02d}"), ("e", "e_{:02d}"), ("d", "d_{}")):
        codes = np.array([arch[key] for arch in archs], dtype=np.int8)
        columns |= {prefix.format(place): column for place, column in enumerate(codes.T)}
    columns["r"] = np.array([arch["r"] for arch in archs], dtype=np.int16)
    return _numbered(columns)


def _numbered(columns: dict[str, Any]) -> "pd.DataFrame":
    import pandas as pd

    ids = np.arange(len(next(iter(columns.values()))), dtype=np.int32)
    return pd.DataFrame({"arch_id": ids, **columns})


def _by_position(raw: RawFiles, path: str) -> "pd.DataFrame":
    times = np.array(plain_data(raw.read(path), path), dtype=np.float32)
    return _device_rows(PurePosixPath(path).stem, np.arange(len(times)), times)


def _by_choices(raw: RawFiles, path: str, cells: "pd.DataFrame") -> "pd.DataFrame":
    """EAGLE: seconds by choices at the edges; cells that it lacks have no row."""
    content = plain_data(raw.read(path), path)
    codes = map(tuple, cells[list(NB201_EDGES)].to_numpy().tolist())
    known = [(place, content[cell]) for place, cell in enumerate(codes) if cell in content]
    ids, seconds = zip(*known, strict=True) if known else ((), ())
    times = (np.array(seconds, dtype=np.float64) * 1e3).astype(np.float32)
    return _device_rows(PurePosixPath(path).stem.replace("-", "_"), np.array(ids), times)


def _device_rows(device: str, ids: Any, times: Any) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(
        {"arch_id": np.asarray(ids, dtype=np.int32), "device": device, "latency_ms": times}
    )


def _stacked(parts: "list[pd.DataFrame]") -> "pd.DataFrame | None":
    import pandas as pd

    if not parts:
        return None
    table = pd.concat(parts, ignore_index=True)
    return table.assign(device=table["device"].astype("category"))


def _extra(raw: RawFiles, latency: "pd.DataFrame | None") -> "pd.DataFrame | None":
    """OneProxy's devices; its times on raspi4 and pixel3, as in HELP, identify a cell."""
    shared = [_read(raw, f"*latency_data/rice_{name}.pickle") for name in ("raspi4", "pixel3")]
    if latency is None or any(times is None for times in shared):
        return None
    of_devices = [latency[latency["device"] == name] for name in ("raspi4", "pixel3")]
    if any(rows.empty for rows in of_devices):
        return None
    pairs = zip(*(rows["latency_ms"].tolist() for rows in of_devices), strict=True)
    ids = dict(zip(pairs, of_devices[0]["arch_id"].tolist(), strict=True))
    asked = zip(*(np.array(times, dtype=np.float32).tolist() for times in shared), strict=True)
    places = [ids[pair] for pair in asked if pair in ids]
    parts = []
    for stem, device in _ONE_PROXY.items():
        times = _read(raw, f"*latency_data/{stem}.pickle")
        if times is not None and len(times) == len(places):
            parts.append(_device_rows(device, places, np.array(times, dtype=np.float32)))
    return _stacked(parts)


def _edge360(raw: RawFiles) -> "pd.DataFrame | None":
    """Cells that represent their isomorphic copies, on every board, runtime and task."""
    import pandas as pd

    paths = raw.matching("*results/dataset.parquet")
    if not paths:
        return None
    rows = pd.read_parquet(io.BytesIO(raw.read(paths[0])))
    rows = rows[rows["arch_idx"] == rows["rep_arch_idx"]].reset_index(drop=True)
    names = {"arch_idx": "arch_id", "lat_ms_median": "latency_ms", "lat_ms_var": "latency_ms_var"}
    table = rows.rename(columns=names)
    kept = ["arch_id", "device", "framework", "task", "latency_ms", "latency_ms_var", "energy_mj"]
    numbers = dict.fromkeys(kept[4:], "float32")
    words = dict.fromkeys(kept[1:4], "category")
    return table[kept].astype({"arch_id": "int32", **words, **numbers})
