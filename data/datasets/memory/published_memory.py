"""Published peak memory of training and inference set-ups, from tables in public repositories.

One row of `table` is one line of a published table, with repository, path, commit and line.
`graphs` holds operator graphs of networks whose configuration is public and certain. Only facts
were taken: figures and settings, no prose. The measured quantity differs (`tool`): memory in
tensors, memory held by the allocator, or memory of the whole device.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Mask, Names
from forerun.data.datasets.dataset import families_of, first_reasons
from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.lazy import pd

ALLOCATED, RESERVED, DEVICE = "allocated_memory_mib", "reserved_memory_mib", "peak_memory_mib"


NAMED: Final[Mapping[tuple[str, str], str]] = {("pytorch/ao", "torchao/optim/README.md"): ALLOCATED}
"""(repository, path) -> metric, if `tool` does not state it but the script does: torchao's
benchmarks/benchmark_low_bit_adam.py prints `max_memory_allocated`."""

BYTES_FROM: Final = 1e7
"""A value in megabytes above this must be in bytes: tables of BEiT and data2vec print 3.766570e+08
under "MB", and no device has 10 TB."""


class PublishedMemory(PackagedDataset, declared="published_memory"):
    """Peak memory of networks in training and inference; leave one model or one source out."""

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Rows for which `reasons` gives none."""
        return {"": np.asarray(reasons(rows) == "", dtype=np.bool_)}

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`family`: all sizes of an architecture, wherever they were measured; `source`."""
        return {"family": families(rows["model"]), "source": sources(rows)}


def reasons(table: "pd.DataFrame") -> NDArray[np.str_]:
    """Why each of n rows is not evaluated as an exact measurement; empty if it is.

    Args:
        table: the `table` of the bundle.
    """
    rules: list[tuple[str, Any]] = [
        (why, table["kind"] == kind) for kind, why in PublishedMemory.facts["kinds"].items()
    ]
    rules += [
        ("what was measured is not said", metrics(table) == ""),
        ("repeats a row above", table.duplicated([*PublishedMemory.query, "peak_printed"])),
        ("no peak", np.isnan(peak_mib(table))),
    ]
    return first_reasons(rules, len(table))


def peak_mib(table: "pd.DataFrame") -> NDArray[np.float64]:
    """Peak memory of each of n rows, MiB; bytes printed as megabytes are read as bytes."""
    printed = table["peak_printed"].to_numpy(dtype=np.float64)
    found = table["peak_mib"].to_numpy(dtype=np.float64)
    mistaken = table["peak_unit"].fillna("").astype(str).str.startswith("MB").to_numpy()
    return np.where(mistaken & (printed >= BYTES_FROM), printed / 2.0**20, found)


def metrics(table: "pd.DataFrame") -> NDArray[np.str_]:
    """Metric that each of n rows measured, derived from its `tool`; empty if unknown."""
    columns = (
        table[name].fillna("").astype(str) for name in ("tool", "source_repo", "source_path")
    )
    return np.array([_metric(*row) for row in zip(*columns, strict=True)], dtype=np.str_)


def phases(table: "pd.DataFrame") -> NDArray[np.str_]:
    """`training` or `inference` of each of n rows."""
    trained = table["task"].str.match(r"(?:pre)?training")
    return np.where(trained, "training", "inference").astype(np.str_)


def sources(table: "pd.DataFrame") -> NDArray[np.str_]:
    """Short name of the repository that each of n rows comes from."""
    names = (str(repo).partition(" ")[0].partition("/")[2] for repo in table["source_repo"])
    return np.array([name.lower() for name in names], dtype=np.str_)


def families(models: "pd.Series[str]") -> NDArray[np.str_]:
    """Architecture family of each of n published models, including all sizes and variants."""
    return families_of(models, PublishedMemory.facts["families"])


def _metric(tool: str, repository: str, path: str) -> str:
    for pattern, metric in PublishedMemory.facts["tools"]:
        if re.match(pattern, tool):
            return str(metric)
    return NAMED.get((repository, path), "")
