"""mlperf_training: the released answer about steps of MLPerf's Llama benchmarks, never trained on.

A row is one system: ten runs of a system are one configuration, and systems of one GPU run much the
same code. The floors answer every system of a benchmark with one figure, the median of
GPU-seconds a sample times the GPU's peak, without the submitter of a system or without its GPU.
"""

from typing import Final

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

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All systems with a layout, a number format and a time, and their rows in `systems`."""
        table = systems(bundle.table(RUNS))
        kept = np.flatnonzero(table["reason"] == "")
        rows = table.iloc[kept]
        models = {row["model"]: model_of(row) for row in rows.to_dict("records")}
        queries = [
            query_of(row, models[row["model"]], catalog) for row in rows.to_dict("records")
        ]
        run = rows.drop(columns=["submitter", "system", "seconds"]).itertuples(index=False)
        groups = {
            **{name: rows[name] for name in (*SYSTEM, "model", "precision")},
            **{"device": rows["gpu"], "family": ["Llama"] * len(rows)},
            "config": [str(tuple(own)) for own in run],
        }
        return Measurements.of(queries, {STEP: 1e3 * rows["seconds"]}, groups), kept

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen
    ) -> dp.Tasks:
        """One task for each benchmark and one for each GPU."""
        rows, _ = self.measured(bundle, catalog)
        floors = {f"without_{key}": gpu_seconds_ms(rows, key) for key in SPLIT_BY}
        for key in ("benchmark", "device"):
            yield from dp.tasks_by(rows, [key], f"untrained/{{{key}}}", STEP, floors)

    def left_out(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dict[str, int]:
        """Systems without a layout, a number format or a time."""
        why = systems(bundle.table(RUNS))["reason"]
        return {str(reason): int(n) for reason, n in why[why != ""].value_counts().items()}


def gpu_seconds_ms(rows: Measurements, key: str) -> Column:
    """Step times of n systems by those of the same benchmark with another value of a key, ms.

    NaN where the benchmark has none.
    """
    runs = [query.llm_training for query in rows.queries]
    share = np.array(
        [
            run.global_batch / (run.devices * query.device.peak("bf16", matrix=True))
            for run, query in zip(runs, rows.queries, strict=True)
        ]
    )
    unit = pd.Series(rows.values[STEP] / share)
    benchmark, values = rows.groups["benchmark"], rows.groups[key]
    known = [
        unit[(benchmark == own) & (values != value)].median()
        for own, value in zip(benchmark, values, strict=True)
    ]
    return np.asarray(share * known, dtype=np.float64)
