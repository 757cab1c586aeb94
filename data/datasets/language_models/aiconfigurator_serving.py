"""Measured serving runs of language models on five systems of NVIDIA GPUs.

One row of `e2e_serving` is a run: engine, model, system, lengths, parallel sizes, concurrency, and
the mean time to the first token and per further token. `aggregated` and `disaggregated` runs are
kept apart. `gpu_specs` holds the spec sheet figures that the source uses.

The source combines several campaigns that describe the same run in different ways: with other names
of the model, and with other conventions for parallel sizes. A split by the raw columns would have
the same run on both sides.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, Names
from forerun.data.datasets.packaged import PackedTables
from forerun.data.lazy import pd
from forerun.data.quality import with_findings
from forerun.data.split import Split

SAME: Final = 0.002
"""Two rows of a deployment whose times differ by less than this share are the same run."""


_FORMATS: Final[Mapping[str, str]] = {"fp8_block": "fp8", "nvfp4": "fp4"}
_TP_IN_ID: Final = r"_tp(\d+)(?:_0)?_ep"
_LOAD: Final = ("concurrency", "batch_size", "prefill_batch_size", "decode_batch_size")
_RESULT: Final = ("ttft_ms", "tpot_ms")


def networks(runs: "pd.DataFrame") -> Names:
    """Network of each of n runs; checkpoints with the same layers are one network."""
    same = AiConfiguratorServing.facts["networks"]
    found = runs["model_path"].map(lambda name: same.get(name, name))
    return found.to_numpy(dtype=np.str_)


def layout(runs: "pd.DataFrame", pool: str = "") -> "pd.DataFrame":
    """GPUs and ranks of one worker of each of n runs.

    In one convention, `tp_size` is the number of GPUs of a worker; others multiply it by the sizes
    of experts or data-parallel attention, which share those GPUs. If the run's id contains the
    tensor-parallel size, that is the number of GPUs.

    Args:
        runs: rows of `e2e_serving`.
        pool: `prefill_` or `decode_`; empty for aggregated runs.

    Returns:
        n rows of `devices`, `data_parallel` and `expert_parallel`; 1 if a size is missing.
    """

    def size(name: str) -> Column:
        values = runs[f"{pool}{name}"].to_numpy(dtype=np.float64)
        return np.where(values > 0, values, 1.0)

    tensor, data = size("tp_size"), size("attention_dp_size")
    parts, experts = size("moe_tp_size"), size("moe_ep_size")
    both = tensor * data
    spread = parts * experts
    squared = (parts == experts) & (parts > 1) & (both >= spread)
    shared = (data > 1) & ((spread == data**2) | ((tensor == data) & (spread == both)))
    devices = np.select([squared, shared], [parts, data], both)
    if not pool:
        named = runs["id"].str.extract(_TP_IN_ID, expand=False).astype("float64").to_numpy()
        devices = np.where(np.isnan(named), devices, named)
    columns = {"devices": devices, "data_parallel": np.minimum(data, devices)}
    return pd.DataFrame({**columns, "expert_parallel": np.minimum(experts, devices)})


def deployments(runs: "pd.DataFrame") -> Names:
    """Deployment of each of n runs; its runs differ only in concurrency and repetition.

    Rows belong to the same deployment if engine, network, system, formats, lengths and `layout`
    agree, or if two of their runs have identical results, which only happens by copying.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    keys = runs[["mode", "backend", "system", "isl", "osl"]].reset_index(drop=True)
    keys["network"] = networks(runs)
    for name in ("gemm", "moe"):
        keys[name] = _format(runs, f"{name}_quant_mode")
    for pool in ("", "prefill_", "decode_"):
        keys = pd.concat([keys, layout(runs, pool).add_prefix(pool)], axis=1)
    described = keys.groupby(list(keys), dropna=False, sort=True).ngroup().to_numpy()
    result = runs.groupby(list(_RESULT), dropna=False, sort=True).ngroup().to_numpy()
    size = int(described.max()) + 1
    links = (np.ones(len(runs)), (described, size + result))
    whole = size + int(result.max()) + 1
    part = connected_components(coo_array(links, shape=(whole, whole)), directed=False)[1]
    return _named(runs, part[described])


def setups(runs: "pd.DataFrame") -> Names:
    """Setup of each of n runs as written in the table: all columns agree except the load.

    The load is the concurrency, and the batch sizes that follow from it. One deployment may be
    several setups if campaigns write its model, engine release or sizes differently.
    """
    apart = {"id", "source", *_LOAD, *_RESULT}
    keys = [name for name in runs if name not in apart]
    return _named(runs, runs.groupby(keys, dropna=False, sort=True).ngroup().to_numpy())


def repeats(runs: "pd.DataFrame") -> Mask:
    """For each of n runs, whether an earlier row already gives it.

    That row has the same deployment and concurrency, and both times agree within 0.2 %.
    """
    keys = pd.DataFrame({"deployment": deployments(runs)})
    keys["concurrency"] = runs["concurrency"].fillna(0.0).to_numpy()
    times = np.log(runs[list(_RESULT)].to_numpy(dtype=np.float64))
    found = np.zeros(len(runs), dtype=np.bool_)
    for rows in keys.groupby(["deployment", "concurrency"]).indices.values():
        apart = np.abs(times[rows, None, :] - times[None, rows, :]).max(axis=2)
        found[rows] = np.tril(apart < SAME, k=-1).any(axis=1)
    return found


def _format(runs: "pd.DataFrame", column: str) -> Names:
    """Number format of each of n runs: from the column, else the run's precision, else bf16."""
    given = runs[column].fillna(runs["precision"]).fillna("bf16")
    return given.map(lambda name: _FORMATS.get(name, name)).to_numpy(dtype=np.str_)


def _named(runs: "pd.DataFrame", part: "NDArray[Any]") -> Names:
    """A name for each run's group that is the same in every bundle that holds its first run."""
    first = runs["id"].reset_index(drop=True).groupby(part).transform("min")
    return first.to_numpy(dtype=np.str_)


RUNS: Final = "e2e_serving"
MODES: Final[Mapping[str, str]] = {"agg": "aggregated", "disagg": "disaggregated"}
"""`mode` as written -> its name in protocols."""

_TEXTS: Final = ("id", "backend", "model_path", "system", "source")
_MAYBE: Final = ("backend_version", "precision", "gemm_quant_mode", "moe_quant_mode")
_SIZES: Final = ("tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
_POOLS: Final = tuple(
    f"{pool}_{name}" for pool in ("prefill", "decode") for name in ("batch_size", "num_workers")
)
SETTINGS: Final = (
    *("mode", "isl", "osl", "batch_size", "concurrency", *_SIZES, *_POOLS),
    *(f"{pool}_{name}" for pool in ("prefill", "decode") for name in _SIZES),
)
QUERY: Final = (*_TEXTS[1:4], *_MAYBE, *SETTINGS)
"""Columns that together make one query."""


class AiConfiguratorServing(PackedTables, declared="aiconfigurator_serving"):
    """Deployments, systems and networks held out, among the runs of each mode."""

    def groups(self, rows: "pd.DataFrame") -> Mapping[str, Names]:
        """`deployment`, `setup` and `network` of runs.

        When setups are held out, a deployment may be on both sides. A network with different names
        from several publishers counts as one.
        """
        found = {"deployment": deployments(rows), "setup": setups(rows)}
        return {**found, "network": networks(rows)}

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """The runs of each mode without repeats."""
        kept = ~repeats(rows)
        return {name: kept & (rows["mode"] == mode).to_numpy() for mode, name in MODES.items()}

    def splits(self, bundle: Bundle) -> list[Split]:
        """Splits of the runs of each mode, none of whose queries is on both sides."""
        return [replace(split, query_columns=QUERY) for split in super().splits(bundle)]

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful runs: repeats of an earlier row, within 0.2 %."""
        repeated, why = repeats(bundle.table(RUNS)), "an earlier row is the same run"
        return with_findings(super().flags(bundle), repeated, "duplicate", why)
