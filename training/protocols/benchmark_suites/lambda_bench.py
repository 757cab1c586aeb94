"""lambda_bench: throughput of training jobs, with a GPU held out in every number and host.

A task is a precision and a device; `throughput_1_*` are systems with one GPU, `throughput_many_*`
those with several. Rows of different nodes with the same configuration are repeats. Only their
median is evaluated, so that devices with many nodes have no more weight.
"""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.lambda_bench import THROUGHPUT
from forerun.data.device import DeviceCatalog, Precision
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.features.tables.lambda_bench import lambda_benchmarks, lambda_networks
from forerun.training.protocols.protocol import (
    EVERY,
    NEW,
    DatasetProtocols,
    Kept,
    Seen,
    Tasks,
    Trained,
    is_seen,
    tasks_by,
)

QUESTION = ["table", "gpu", "num_gpu", "precision", "model"]


class LambdaBenchProtocols(DatasetProtocols):
    """Throughput as benchmarks; training steps on one GPU as networks where graphs are given.

    Args:
        graphs: name -> operator graph, as in `forerun.features.tables.lambda_bench.GRAPHS`.
    """

    dataset = "lambda_bench"
    each_held_out = MappingProxyType({"unseen_device": "device"})
    unseen = MappingProxyType({"unseen_device": {"device": NEW}})
    held_out_by = MappingProxyType({"unseen_device": ("device",)})

    def __init__(self, graphs: Mapping[str, OperatorGraph] | None = None) -> None:
        self.graphs = dict(graphs or {})

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, Kept]:
        """Throughput of each configuration: the median over nodes."""
        return benchmark_measurements(bundle.table(THROUGHPUT), catalog), EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: Trained) -> Tasks:
        """Tasks by precision and device, separately for systems with one GPU and with several."""
        baselines = {} if train is None else {"peak_ratio": scaled_by_peak(train, held_out)}
        name = f"{protocol}/throughput_{{part}}_{{precision}}"
        keys = ("device", "precision", "part")
        counts = [query.operation.device_count for query in held_out.queries]
        parts = {"part": ["many" if count > 1 else "1" for count in counts]}
        return tasks_by(held_out, keys, name, "samples_per_s", baselines, parts)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Tasks:
        """Unseen GPUs: training steps, and throughput where this suite is in the training set."""
        if not bundle.has(THROUGHPUT):
            return
        if seen:
            yield from super().evaluation_tasks(bundle, catalog, seen)
        steps = step_measurements(bundle.table(THROUGHPUT), self.graphs, catalog)
        new = steps.take(~is_seen(steps, "device", seen))
        yield from tasks_by(
            new, ("device", "precision"), "unseen_device/step_{precision}", "latency_ms"
        )


def benchmark_measurements(throughput: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Configurations of the table `throughput` as benchmarks; only GPUs with a spec sheet.

    Returns:
        `samples_per_s` of the whole system in the model's own unit, with the groups `device`,
        `model` and `precision`.
    """
    queries = lambda_benchmarks(throughput, catalog)
    frame = throughput.assign(gpu=[q.device.name if q else "" for q in queries])
    frame["row"] = np.arange(len(frame))
    grouped = frame[frame["gpu"] != ""].groupby(QUESTION, sort=True)
    medians = grouped["throughput"].median()
    asked = [queries[row] for row in grouped["row"].first()]
    keys = medians.index.to_frame(index=False)
    own = [query for query in asked if query is not None]
    groups = {name: keys[name] for name in ("model", "precision")}
    return Measurements.of(own, {"samples_per_s": medians}, groups)


def step_measurements(
    throughput: pd.DataFrame, graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> Measurements:
    """Training steps on one GPU of the models whose graphs are given, as `latency_ms`."""
    queries = lambda_networks(throughput, graphs, catalog)
    kept = np.array([query is not None for query in queries], dtype=np.bool_)
    frame = throughput[kept]
    latency_ms = 1e3 * frame["batch_size"] / frame["throughput"]
    asked = [query for query in queries if query is not None]
    groups = {name: frame[name] for name in ("model", "precision")}
    return Measurements.of(asked, {"latency_ms": latency_ms}, groups)


def scaled_by_peak(train: Measurements, held_out: Measurements) -> NDArray[np.float64]:
    """Baseline: the model's median throughput per peak TFLOP/s, times the peak of each system.

    Returns:
        Samples per second of the whole system, shape (n,); NaN for models without training rows.
    """
    rate = np.log(train.values["samples_per_s"]) - np.log(_peaks(train))
    keys = _questions(train)
    known = {key: float(np.exp(np.median(rate[keys == key]))) for key in np.unique(keys)}
    rates = [known.get(str(key), np.nan) for key in _questions(held_out)]
    return np.asarray(rates * _peaks(held_out), dtype=np.float64)


def _questions(rows: Measurements) -> NDArray[np.str_]:
    pairs = zip(rows.groups["model"], rows.groups["precision"], strict=True)
    return np.array([f"{model} {precision}" for model, precision in pairs], dtype=np.str_)


def _peaks(rows: Measurements) -> NDArray[np.float64]:
    """Dense TFLOP/s of all GPUs of each system, in the arithmetic of the row's precision."""
    found = []
    for query, precision in zip(rows.queries, rows.groups["precision"], strict=True):
        peaks = query.device.peak_tflops
        names: tuple[Precision, ...] = ("fp16",) if precision == "fp16" else ("tf32", "fp32")
        peak = next((peaks[name] for name in names if name in peaks), float("nan"))
        found.append(peak * query.operation.device_count)
    return np.array(found, dtype=np.float64)
