"""mlperf_training: the released answer about steps of MLPerf's Llama benchmarks, never trained on.

A row is one system: ten runs of a system are one configuration, and systems of one GPU run much the
same code. The floors answer every system of a benchmark with one figure, the median of
GPU-seconds a sample times the GPU's peak, without the submitter of a system or without its GPU.
"""

from typing import ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.language_models.mlperf_training import RUNS, SYSTEM, systems
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.language_models.published_training import (
    STEP,
    model_of,
    query_of,
)

SPLIT_BY: Final = ("submitter", "device")


class MlperfTrainingProtocols(dp.DatasetProtocols):
    """Milliseconds of a step of each system with a known layout."""

    dataset = "mlperf_training"
    zero_shot = True
    each_held_out: ClassVar = {"unseen_device": "device"}
    held_out_by: ClassVar = {"unseen_device": ("device",)}
    fitted_protocols = ("unseen_device",)

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All systems with a layout, a number format and a time, and their rows in `systems`."""
        table = systems(bundle.table(RUNS))
        kept = np.flatnonzero(table["reason"] == "")
        rows = table.iloc[kept]
        models = {row["model"]: model_of(row) for row in rows.to_dict("records")}
        queries = [query_of(row, models[row["model"]], catalog) for row in rows.to_dict("records")]
        run = rows.drop(columns=["submitter", "system", "seconds"]).itertuples(index=False)
        groups = {
            **{name: rows[name] for name in (*SYSTEM, "model", "precision")},
            **{"device": rows["gpu"], "family": ["Llama"] * len(rows)},
            "config": [str(tuple(own)) for own in run],
        }
        return Measurements.of(queries, {STEP: 1e3 * rows["seconds"]}, groups), kept

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each benchmark and one for each GPU."""
        known = held_out if train is None else train
        floors = {f"without_{key}": gpu_seconds_ms(held_out, known, key) for key in SPLIT_BY}
        for key in ("benchmark", "device"):
            yield from dp.tasks_by(held_out, [key], f"{protocol}/{{{key}}}", STEP, floors)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Tasks of all systems."""
        yield from self.tasks("untrained", self.measured(bundle, catalog)[0], None)

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dict[str, int]:
        """Systems without a layout, a number format or a time."""
        why = systems(bundle.table(RUNS))["reason"]
        return {str(reason): int(n) for reason, n in why[why != ""].value_counts().items()}


def gpu_seconds_ms(rows: Measurements, known: Measurements, key: str) -> Column:
    """Step times of n systems by those of the same benchmark with another value of a key, ms.

    NaN where the benchmark has none.
    """
    own, others = (
        pd.DataFrame({name: part.groups[name] for name in ("benchmark", key)}).assign(
            share=[
                run.global_batch / (run.devices * query.device.peak("bf16", matrix=True))
                for query in part.queries
                for run in [query.llm_training]
            ]
        )
        for part in (rows, known)
    )
    unit = known.values[STEP] / others["share"]
    medians = [
        unit[(others["benchmark"] == row["benchmark"]) & (others[key] != row[key])].median()
        for row in own.to_dict("records")
    ]
    return np.asarray(own["share"] * medians, dtype=np.float64)
