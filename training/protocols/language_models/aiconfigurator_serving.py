"""aiconfigurator_serving: latencies of serving runs, with deployments, GPUs or models held out.

Each held-out run is asked about twice: by its requests in flight, as it was measured, and by the
rate at which it answered them. The second has no time to the first token: clients of these runs
start at once, and requests of a rate arrive one by one.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column
from forerun.data.datasets.language_models.aiconfigurator_serving import (
    QUERY,
    RUNS,
    AiConfiguratorServing,
)
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.models.llm_serving import LlmLatency
from forerun.training.protocols.language_models.serving_queries import serving_runs
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, split_rows

SCORED_METRICS: Final = ("tpot_ms", "ttft_ms")
TPOT: Final = SCORED_METRICS[:1]
PARTS: Final = ("device", "model")


class AiConfiguratorServingProtocols(DatasetProtocols):
    """Time to the first token and time per further token (ms) of serving runs."""

    dataset = "aiconfigurator_serving"
    reads = MappingProxyType({RUNS: (*QUERY, "id", "source", *SCORED_METRICS)})

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All runs, without repeats."""
        return serving_runs(bundle.table(RUNS), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each split."""
        runs, kept = serving_runs(bundle.table(RUNS), catalog)
        for protocol, train, held_out in split_rows(
            AiConfiguratorServing().checked_splits(bundle), runs, kept
        ):
            by_rate = _tasks(asked_by_rate(held_out), f"{protocol}_by_rate", TPOT)
            yield Fold(protocol, train, [*_tasks(held_out, protocol), *by_rate])

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Unseen models on devices in the training set, and all models on unseen devices."""
        runs, _ = serving_runs(bundle.table(RUNS), catalog)
        new = {key: ~np.isin(runs.groups[key], list(seen.get(key, ()))) for key in PARTS}
        for protocol, rows in (
            ("unseen_model", new["model"] & ~new["device"]),
            ("unseen_device", new["device"]),
        ):
            if rows.any():
                yield from _tasks(runs.take(rows), protocol)


def asked_by_rate(runs: Measurements) -> Measurements:
    """Closed loops with both times, asked about by the rate at which they answered.

    By Little's law that rate is the requests in flight over the measured time of a request.
    """
    latency_ms = runs.values["ttft_ms"] + runs.values["tpot_ms"] * [
        max(query.deployment.load.output_tokens - 1.0, 0.0) for query in runs.queries
    ]
    rows = runs.take(np.isfinite(latency_ms))
    queries = []
    for query, milliseconds in zip(rows.queries, latency_ms[np.isfinite(latency_ms)], strict=True):
        load = query.deployment.load
        assert load.concurrency is not None, "the runs are closed loops"
        rate = 1e3 * load.concurrency / float(milliseconds)
        load = replace(load, concurrency=None, requests_per_s=rate)
        queries.append(replace(query, workload=replace(query.deployment, load=load)))
    return replace(rows, queries=queries)


def _tasks(
    rows: Measurements, protocol: str, metrics: Sequence[str] = SCORED_METRICS
) -> Iterator[Task]:
    """Tasks of times, over all rows; the closed form alone is the baseline."""
    plain = LlmLatency().predict(rows.queries).values
    for metric in metrics:
        closed: Mapping[str, Column] = {"closed_form": plain[metric]}
        yield Task(f"{protocol}/{metric}", metric, rows, baselines=closed)
