"""mlperf_inference: later rounds predicted from earlier ones, and held-out accelerators.

Throughput is that of the whole system; its relative error equals that of the throughput of one
accelerator. `throughput` has the rows whose model, scenario and accelerator occur in an earlier
round, `throughput_new` those without such a history, `throughput_cpu*` systems without accelerator.
"""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.mlperf_inference import CLOSED, MlperfInference
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.training.protocols.benchmark_suites.earlier_rounds import earlier_rounds
from forerun.training.protocols.benchmark_suites.mlperf_rows import ASKED, run_measurements
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, counted

METRICS: Mapping[str, str] = {
    "latency": "latency_ms",
    "wall_power": "wall_power_w",
    "energy_per_sample": "wall_energy_per_sample_j",
}
"""Part of a task's name -> metric, for metrics other than throughput."""


class MlperfInferenceProtocols(DatasetProtocols):
    """Later rounds, pooled over rounds; accelerators in five folds."""

    dataset = "mlperf_inference"
    reads = MappingProxyType({CLOSED: ASKED})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows of the closed division."""
        return run_measurements(bundle.table(CLOSED), catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """`later_rounds` and `unseen_accelerator`; rounds and folds are pooled."""
        rows = self.training_rows(bundle, catalog)
        for split in MlperfInference().checked_splits(bundle):
            if split.train.any():
                protocol = split.protocol.split("/")[0]
                train, held_out = rows.take(split.train), rows.take(split.held_out)
                yield Fold(protocol, train, list(_tasks(protocol, train, held_out)))

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Rounds that are not in the training set, with and without a history in it."""
        rows = self.training_rows(bundle, catalog)
        new = ~np.isin(rows.groups["round"], list(seen.get("round", ())))
        rows = rows.take(new)
        known = np.isin(rows.groups["question"], list(seen.get("question", ())))
        yield from _split_tasks("later_rounds", rows, known, {})

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Rounds of the training set, and results in tokens for models of unknown output length."""
        rows = self.training_rows(bundle, catalog)
        same = np.isin(rows.groups["round"], list(seen.get("round", ())))
        unknown = "result_units are tokens, and how many a sample has is not known of that model"
        return counted(
            {
                "this round is in the training set": same,
                unknown: ~same & (rows.groups["counted_in"] == "nan"),
            }
        )


def _tasks(protocol: str, train: Measurements, held_out: Measurements) -> Iterator[Task]:
    known = _has_history(train, held_out)
    others = {m: earlier_rounds(train, held_out, m) for m in ("samples_per_s", *METRICS.values())}
    yield from _split_tasks(protocol, held_out, known, others)


def _has_history(train: Measurements, held_out: Measurements) -> NDArray[np.bool_]:
    """True for held-out rows with a training row of the same configuration, shape (n,)."""
    return np.isin(held_out.groups["question"], train.groups["question"])


def _split_tasks(
    protocol: str,
    held_out: Measurements,
    known: NDArray[np.bool_],
    others: Mapping[str, Mapping[str, NDArray[np.float64]]],
) -> Iterator[Task]:
    on_cpu = held_out.groups["accelerator"] == "none"
    rate = "samples_per_s"
    parts = [
        ("throughput", rate, known & ~on_cpu),
        ("throughput_new", rate, ~known & ~on_cpu),
        ("throughput_cpu", rate, known & on_cpu),
        ("throughput_cpu_new", rate, ~known & on_cpu),
    ]
    for part, metric in METRICS.items():
        parts += [(part, metric, known), (f"{part}_new", metric, ~known)]
    for part, metric, mine in parts:
        mine = mine & np.isfinite(held_out.values[metric])
        if mine.any():
            baselines = {name: column[mine] for name, column in others.get(metric, {}).items()}
            yield Task(f"{protocol}/{part}", metric, held_out.take(mine), baselines=baselines)
