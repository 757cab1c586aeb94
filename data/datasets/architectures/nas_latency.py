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
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle, home
from forerun.data.datasets.architectures.nas_latency_files import NB201_EDGES, tables_of
from forerun.data.datasets.dataset import Dataset
from forerun.data.quality import Quantities, check, with_findings
from forerun.data.schema import number, text
from forerun.data.split import Split, is_one_of
from forerun.data.upstream.downloads import RawFiles, Upstream, together

if TYPE_CHECKING:
    import pandas as pd
    from pandera.pandas import DataFrameSchema

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


class NasLatency(Dataset):
    """Evaluated on unseen devices, of which a few measurements are given (few-shot)."""

    name = "nas_latency"
    title = "latency of NAS-Bench-201, FBNet and OFA networks on many devices"
    licence = "HELP and OneProxy MIT; EAGLE's copy and HW-NAS-Bench-360 none stated: numbers only"
    citation = (
        "Lee et al.: Help: Hardware-adaptive efficient latency prediction for NAS (NeurIPS 2021); "
        "Dudziak et al.: BRP-NAS (NeurIPS 2020); Nair et al.: One Proxy Device Is Enough "
        "(SIGMETRICS 2022); HW-NAS-Bench-360 (2026)"
    )
    published = (
        "HELP: 10 samples and 10 fixed references, 900 architectures of nine devices; NASFLAT "
        "(MLSys 2024): 20 samples, twelve device splits; both report Spearman"
    )
    upstream = Upstream(
        "HayeonLee",
        "HELP",
        commit="45f70eb92d0d735970a33b608d1544ad3c52f285",
        checksums="nas_latency.json",
    )
    further = (
        Upstream(
            "ZengYuXiang7",
            "NAS-LLM-GNN",
            commit="46d3713c591ea41ce7a2107b4e1fe8aa99925c04",
            checksums="nas_latency_eagle.json",
        ),
        Upstream(
            "Ren-Research",
            "OneProxy",
            commit="e3c9b2c65113e16f1208988287810b283674f4de",
            checksums="nas_latency_oneproxy.json",
        ),
        Upstream(
            "roldebijvank",
            "HW-NAS-Bench-360",
            commit="a9b243e07fb8f0671ee56587696e7b8ef1ca702d",
            checksums="nas_latency_edge360.json",
        ),
    )
    """Repositories after the first; files of them that cannot be fetched are left out."""
    csv_tables = ("devices", "published")

    def fetch(self, mirror: Path | None = None) -> RawFiles:
        """Files of all four repositories, under OWNER/REPO/COMMIT."""
        cache_ = home() / "downloads"
        return together([u.fetch(cache_, mirror) for u in (self.upstream, *self.further)])

    def tidy(self, raw: RawFiles) -> dict[str, "pd.DataFrame"]:
        """Architectures and times of each space whose files are there."""
        return tables_of(raw)

    def documents(self, raw: RawFiles) -> dict[str, Any]:
        """`tasks`: the published device splits."""
        return {"tasks": published_protocols()}

    def tables(self) -> Mapping[str, "DataFrameSchema"]:
        """Schemas of `SPACE_archs`, of the latency tables, of `devices` and `published`.

        Further columns are allowed: bundles may carry counts of arithmetic next to the choices.
        """
        import pandera.pandas as pa

        ident = number("int32", low=0)
        schemas: dict[str, Any] = {}
        for space, names in CHOICES.items():
            columns: dict[str, Any] = {"arch_id": ident}
            columns |= {name: number("int8", low=0) for name in names}
            if space == "ofa":
                columns["r"] = number("int16", above=0)
            schemas[f"{space}_archs"] = columns
            schemas[f"{space}_latency"] = {
                "arch_id": ident,
                "device": text(),
                "latency_ms": number("float32", above=0),
            }
        schemas["nb201_archs"]["arch_str"] = text()
        # A time of -1 is upstream's mark for a network that did not compile.
        failed = {"latency_ms": number("float32", low=-1)}
        schemas["nb201_extra"] = schemas["nb201_latency"] | failed
        schemas["nb201_edge360"] = {
            **schemas["nb201_latency"],
            **{name: text() for name in ("framework", "task")},
            **{name: number("float32", low=0) for name in ("latency_ms_var", "energy_mj")},
        }
        schemas["devices"] = {"space": text(), "device": text(), "class": text()}
        schemas["published"] = {"protocol": text(), "method": text(), "value": number()}
        return {name: pa.DataFrameSchema(columns) for name, columns in schemas.items()}

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
