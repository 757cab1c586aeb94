"""Measured serving runs of language models on five systems of NVIDIA GPUs.

One row of `e2e_serving` is a run: engine, model, system, lengths, parallel sizes, concurrency, and
the mean time to the first token and per further token. `aggregated` and `disaggregated` runs are
kept apart. `gpu_specs` holds the figures of spec sheets that the source calculates with.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.serving_deployments import (
    deployments,
    networks,
    repeats,
    setups,
)
from forerun.data.datasets.packaged import PackedTables
from forerun.data.quality import Quantities, check, with_findings
from forerun.data.split import Split, folds_of, leave_folds_out, leave_values_out

if TYPE_CHECKING:
    import pandas as pd

    from forerun.data.columns import Mask, Names

RUNS: Final = "e2e_serving"
FOLDS: Final = 5
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

    def splits(self, bundle: Bundle) -> list[Split]:
        """Splits of the runs of each MODE, `aggregated` or `disaggregated`, without repeats.

        `unseen_deployment_MODE/FOLD`: five folds by `deployments`; `unseen_setup_MODE/FOLD`: by
        `setups`, under which a deployment may be on both sides. `unseen_device_MODE/SYSTEM` and
        `unseen_model_MODE/NETWORK`: one is held out, the others train. A network that several
        publishers call by different names is one (`networks`).
        """
        if not bundle.has(RUNS):
            return []
        runs = bundle.table(RUNS)
        kept = ~repeats(runs)
        grouped = {"deployment": deployments(runs), "setup": setups(runs)}
        derived = {**grouped, "network": networks(runs)}
        splits = []
        for mode, named in MODES.items():
            its = kept & (runs["mode"] == mode).to_numpy(dtype=np.bool_)
            for key, groups in grouped.items():
                splits += leave_folds_out(
                    f"unseen_{key}_{named}",
                    folds_of(groups, FOLDS),
                    its,
                    partial(_split, key, derived),
                )
            protocols = {f"unseen_device_{named}": "system", f"unseen_model_{named}": "network"}
            splits += leave_values_out(
                RUNS, runs, protocols, train=its, query_columns=QUERY, derived=derived
            )
        return splits

    def flags(self, bundle: Bundle) -> "pd.DataFrame":
        """Doubtful runs: those that an earlier row gives already, within 0.2 %."""
        runs = bundle.table(RUNS)
        time = runs["tpot_ms"].to_numpy(dtype=np.float64)
        why = "an earlier row is the same run"
        return with_findings(check(runs, Quantities(time_ms=time)), repeats(runs), "duplicate", why)


def _split(
    key: str, derived: "Mapping[str, Names]", name: str, train: "Mask", held_out: "Mask"
) -> Split:
    """A split whose groups are those of `key`."""
    return Split(name, RUNS, train, held_out, (key,), QUERY, derived)
