"""lambda_bench: throughput of training jobs on unseen GPUs.

A GPU is held out in all systems: every number of GPUs, every host. A task is a precision and a
device; `throughput_1_*` are systems with one GPU, `throughput_many_*` systems with several. Nodes
with the same configuration are repeats, and only their median is evaluated, so that devices with
many nodes have no more weight than others.

The steps in half precision also train `NetworkLatency`. The scripts run NVIDIA's examples of
ResNet-50 (on synthetic images) and of BERT on SQuAD. SSD is left out because it reads images from
disk; rows in single precision are left out, too.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.lambda_bench import THROUGHPUT
from forerun.data.datasets.networks.published_networks import PublishedNetworks, chips
from forerun.data.device import DeviceCatalog, Precision
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.lambda_bench import GRAPHS, lambda_benchmarks, lambda_networks
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.power.torch_op_energy import power_graphs

QUESTION = ["table", "gpu", "num_gpu", "precision", "model"]


def steps_to_train(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """The rows of `half_precision_steps`, without the GPUs that `timm_bench` timed."""
    rows = half_precision_steps(bundle.table(THROUGHPUT), catalog)
    return rows.take(~np.isin(rows.groups["device"], TIMED))


class LambdaBenchProtocols(dp.DatasetProtocols):
    """Throughput of the suite's benchmarks."""

    dataset = "lambda_bench"
    each_held_out: ClassVar = {"unseen_device": "device"}
    unseen: ClassVar = {"unseen_device": {"device": dp.NEW}}
    held_out_by: ClassVar = {"unseen_device": ("device",)}
    parts: ClassVar = {"half_precision": steps_to_train}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """Throughput of each configuration, as the median over nodes."""
        return benchmark_measurements(bundle.table(THROUGHPUT), catalog), dp.EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Tasks by precision and device, separately for systems with one GPU and with several."""
        baselines = {} if train is None else {"peak_ratio": scaled_by_peak(train, held_out)}
        name = f"{protocol}/throughput_{{part}}_{{precision}}"
        keys = ("device", "precision", "part")
        counts = [query.operation.device_count for query in held_out.queries]
        parts = {"part": ["many" if count > 1 else "1" for count in counts]}
        return dp.tasks_by(held_out, keys, name, "samples_per_s", baselines, parts)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Unseen GPUs, if this suite is in the training set."""
        if bundle.has(THROUGHPUT) and seen:
            yield from super().evaluation_tasks(bundle, catalog, seen)


def benchmark_measurements(throughput: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Configurations of the table `throughput` as benchmarks, for GPUs with a spec sheet.

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
    known = [query for query in asked if query is not None]
    groups = {name: keys[name] for name in ("model", "precision")}
    return Measurements.of(known, {"samples_per_s": medians}, groups)


def step_measurements(
    throughput: pd.DataFrame, graphs: Mapping[str, OperatorGraph], catalog: DeviceCatalog
) -> Measurements:
    """Training steps on one GPU, as `latency_ms`, for the models whose graphs are given."""
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
    rates = replace(train, values={"log": np.log(train.values["samples_per_s"] / _peaks(train))})
    logs = dp.median_by(rates, held_out, "log", ("model", "precision"))
    return np.asarray(np.exp(logs) * _peaks(held_out), dtype=np.float64)


def _peaks(rows: Measurements) -> NDArray[np.float64]:
    """Dense peak TFLOP/s of all GPUs of each system, for the row's precision."""
    found = []
    for query, precision in zip(rows.queries, rows.groups["precision"], strict=True):
        peaks = query.device.peak_tflops
        names: tuple[Precision, ...] = ("fp16",) if precision == "fp16" else ("tf32", "fp32")
        peak = next((peaks[name] for name in names if name in peaks), float("nan"))
        found.append(peak * query.operation.device_count)
    return np.array(found, dtype=np.float64)


FAMILIES = {"resnet50": "resnet", "bert_base_squad": "bert", "bert_large_squad": "bert"}
"""Model -> architecture family, as in published_networks."""

TIMED = ("rtx-3090", "rtx-4090")
"""GPUs with hundreds of timed networks in `timm_bench`; these rows must not change predictions for
them."""


def half_precision_steps(throughput: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Training steps in half precision on one GPU with a known batch size, median over nodes.

    Args:
        throughput: table `throughput` of the bundle.
        catalog: spec sheets of devices.

    Returns:
        `latency_ms` with the groups `device`, `chip`, `model`, `family`, `graph`, `host`,
        `runtime`, `precision`, `phase` and `source`, like the rows of published_networks.
    """
    table = throughput[
        throughput["model"].isin(list(FAMILIES)) & (throughput["precision"] == "fp16")
    ].reset_index(drop=True)
    steps = step_measurements(table, step_graphs(), catalog)
    frame = pd.DataFrame({**steps.groups, **steps.values, "row": np.arange(len(steps))})
    frame["batch"] = [query.network.batch_size for query in steps.queries]
    grouped = frame.groupby(["device", "model", "batch"], sort=True)
    kept = steps.take(grouped["row"].first().to_numpy())
    model, device = kept.groups["model"], kept.groups["device"]
    groups = {
        "chip": chips(pd.Series(device, dtype=str)),
        "model": model,
        "family": [FAMILIES[name] for name in model],
        "graph": [GRAPHS[name] for name in model],
        "host": np.char.add("lambda_bench ", device),
        "runtime": ["eager"] * len(kept),
        "precision": [query.network.precision for query in kept.queries],
        "phase": ["training"] * len(kept),
        "source": ["lambdal/deeplearning-benchmark"] * len(kept),
    }
    return Measurements.of(kept.queries, {"latency_ms": grouped["latency_ms"].median()}, groups)


def step_graphs() -> Mapping[str, OperatorGraph]:
    """Operator graphs of the models of `FAMILIES`, from the package, by name."""
    dataset = PublishedNetworks()
    packaged = read_graphs(dataset.tidy(dataset.packaged())["graphs"])
    known = {**power_graphs(), **packaged}
    return {name: known[name] for name in (GRAPHS[model] for model in FAMILIES)}
