"""Latency of every architecture of three search spaces on many device configurations.

One row of a latency table is one architecture on one configuration: a chip with its runtime, batch
and precision under one name. Phones of HELP are rounded to whole milliseconds; EAGLE's runtimes
prune edges of a cell that do not reach its output, HELP's PyTorch runs them.
Sources: HELP at 45f70eb9 (MIT), EAGLE's tables as copied in NAS-LLM-GNN at 46d3713c (none stated),
OneProxy at e3c9b2c6 (MIT), HW-NAS-Bench-360 at a9b243e0 (none stated).
"""

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.architectures.nas_latency_files import NB201_EDGES, tables_of
from forerun.data.datasets.dataset import Dataset
from forerun.data.quality import Quantities, check, with_findings
from forerun.data.split import Split, is_one_of
from forerun.data.upstream.downloads import RawFiles

if TYPE_CHECKING:
    import pandas as pd

Column = NDArray[np.float64]
Indices = NDArray[np.intp]

TRAINING_ARCHITECTURES: Final = 900
"""Training architectures of a source device: those with ids below this."""
CHOICES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "nb201": NB201_EDGES,
        "fbnet": tuple(f"op_{layer:02d}" for layer in range(22)),
        "ofa": (
            *(f"ks_{block:02d}" for block in range(20)),
            *(f"e_{block:02d}" for block in range(20)),
            *(f"d_{stage}" for stage in range(5)),
            "r",
        ),
    }
)
"""Columns of NAME_archs that name an architecture, in the order of `Architecture.operators`."""
LATENCIES: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "nb201": ("nb201_latency", "nb201_extra", "nb201_edge360"),
        "fbnet": ("fbnet_latency",),
        "ofa": ("ofa_latency",),
    }
)
"""Tables with times of each space."""
FOLDED: Final = 0.02
"""A cell that takes less than this share of its device's median was optimised away."""


class NasLatency(Dataset, declared="nas_latency"):
    """Evaluated on unseen devices, of which a few measurements are given (few-shot)."""

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """Architectures and times of each space whose files are there."""
        return tables_of(raw)

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


@cache
def _packaged() -> str:
    return (files("forerun.data.datasets.architectures") / "nas_latency.tasks.json").read_text(
        encoding="utf-8"
    )


def published_protocols() -> dict[str, Any]:
    """NASFLAT's and HELP's device splits, as in the document `tasks`."""
    content: dict[str, Any] = json.loads(_packaged())
    return content


def protocols_of(bundle: Bundle) -> dict[str, Any]:
    """Protocols of a bundle's document `tasks`, else those that were published."""
    if "tasks" in bundle.documents():
        content: dict[str, Any] = bundle.document("tasks")
        return content
    return published_protocols()


def times_of(rows: "pd.DataFrame", architectures: int) -> dict[str, Column]:
    """Device -> milliseconds by architecture id, NaN where not measured or failed."""
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
        times: n times; rows without a positive time are left out.
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
