"""torch_gpu: released or refitted predictors on two GPUs that this project measured.

The release was trained on the recorded networks, on the operators and on the power of eager
networks, so its evaluation leaves these out; the fitted protocols fit without their held-out rows.
For eager networks on these GPUs, the training sets hold three training runs on an H100
(lambda_bench) and the power of diffusion models on an H100 (mlenergy). The matrix products of
aiconfigurator in 16 bits and fp8 were measured on both GPUs, so linear layers in these precisions
do not test an unseen GPU.

A recorded network does not wait for the host, so its latency is the device time at any batch size.
Convolutional networks in fp32 are left out if TF32 was off for convolutions, which no query can
express. So are recurrent networks, whose steps the additive model does not describe.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle, find
from forerun.data.columns import Column, Mask, Names
from forerun.data.datasets.networks.published_networks import chips
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import NO_HOST, Measurements
from forerun.data.query import Query
from forerun.data.split import folds_of
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.torch_gpu import MEMORY, gpu_measurements
from forerun.models.baselines.roofline import Roofline
from forerun.models.catalog import PREDICTORS, predictors_evaluated_on, unfitted
from forerun.models.networks.latency import NetworkLatency
from forerun.models.power.operator_power import OperatorPower
from forerun.models.predictor import Predictor
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.memory.gpumemnet import VISION_BIN_MIB
from forerun.training.protocols.networks.published_networks import bundled_latency
from forerun.training.protocols.power.torch_op_energy import CONSTANT_SHARE
from forerun.training.scores.task_scores import Capacity

MOST_CONVOLUTIONS: Final = 1
"""Most convolutions of a transformer, which embeds patches with one: a few percent of its work."""


def trains(rows: Measurements) -> Mask:
    """Which of n rows are training rows, shape (n,).

    Args:
        rows: measured networks and operators with the groups `mode` and `fp32_convolutions`.
    """
    return described(rows, "recorded")


def described(rows: Measurements, mode: str) -> Mask:
    """Which of n rows are networks of a mode that a query can express, shape (n,).

    Args:
        rows: measured networks and operators with the groups `mode` and `fp32_convolutions`.
        mode: how the networks were launched: `recorded` or `eager`.
    """
    kept = rows.groups["mode"] == mode
    strict = rows.groups["fp32_convolutions"] == "strict"
    for row in np.flatnonzero(kept).tolist():
        kept[row] = _is_described(rows.queries[row], bool(strict[row]))
    return np.asarray(kept, dtype=np.bool_)


def recorded_networks(rows: Measurements) -> Measurements:
    """The rows selected by `trains`, which do not wait for a host.

    Args:
        rows: measured networks and operators with the groups `mode` and `fp32_convolutions`.

    Returns:
        `latency_ms` with the groups of `rows`, `host` and `chip`.
    """
    kept = rows.take(trains(rows))
    chip = chips(pd.Series(kept.groups["device"], dtype=str))
    groups = {**kept.groups, "host": np.full(len(kept), NO_HOST), "chip": chip}
    return _only(kept, "latency_ms", groups)


def _only(rows: Measurements, metric: str, groups: Mapping[str, Names]) -> Measurements:
    return Measurements(rows.queries, {metric: rows.values[metric]}, groups)


def _is_described(query: Query, strict: bool) -> bool:
    """Whether the query says what was measured, and the additive model applies to the network."""
    kinds = [operator.kind for operator in query.network.graph.operators]
    convolutional = kinds.count("conv") > MOST_CONVOLUTIONS
    without_tf32 = strict and query.network.precision == "fp32" and convolutional
    return not without_tf32 and "recurrent" not in kinds


FOLDS: Final = 3
"""Number of folds of held-out families or shapes."""
BOUNDS_MS: Final = (0.005, 0.05, 0.5)
"""Roofline times at which rows are divided into the groups `roofline`."""
METRICS: Final[Mapping[str, tuple[str, ...]]] = {
    "operators": ("latency_ms", "power_w"),
    "eager": ("latency_ms", "power_w", *MEMORY),
    "recorded": ("latency_ms",),
}
"""Execution mode -> metrics that are scored. Memory and power of recorded networks are not scored,
because a query cannot say that the launches of an eager network were recorded."""


class TorchGpuProtocols(dp.DatasetProtocols):
    """Operators, eager networks, and the device time of recorded networks, by GPU."""

    dataset = "torch_gpu"
    zero_shot = True
    held_out_by: ClassVar = {
        "unseen_device": ("device",),
        "unseen_family": ("family",),
        "unseen_shape": ("model",),
        "unseen_architecture": ("device",),
        "operators_only": ("device",),
    }
    fitted_protocols = tuple(held_out_by)
    parts: ClassVar = {
        "recorded": lambda *given: recorded_networks(measured_runs(*given)),
        "operators": lambda *given: recorded_operators(measured_runs(*given)),
        "power": lambda *given: eager_power(measured_runs(*given)),
    }

    def predictor(self, seed: int = 0) -> Predictor:
        """`NetworkLatency` with bundled predictors of device time that saw no row of this dataset.

        The parts that are fitted on published tables and recorded networks are fitted in each fold.
        """
        return bundled_latency()

    def predictors(self, seed: int = 0) -> Sequence[Predictor]:
        """All predictors; those that are trained on rows of this dataset come first."""
        trained = (NetworkLatency.name, OperatorPower.name)
        names = (n for n in predictors_evaluated_on(self.dataset) if n not in trained)
        power = unfitted(OperatorPower.name, seed)
        return (self.predictor(seed), power, *(unfitted(name, seed) for name in names))

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Recorded networks that a query can express."""
        return recorded_networks(measured_runs(bundle, catalog))

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """Power on a held-out GPU, then times with families, shapes or all rows held out.

        `unseen_family` holds out architecture families in all sources, `unseen_shape` operators of
        the same shape, and `unseen_architecture` all rows of these GPUs, which share one
        architecture. `operators_only` then adapts to the operators of one GPU and predicts its
        networks.

        Raises:
            MissingData: another dataset that trains the predictor is not on this machine.
        """
        rows = measured_runs(bundle, catalog)
        yield from _power_folds(eager_power(rows), catalog)
        recorded, others = recorded_networks(rows), _other_training_rows("device_time", catalog)
        operators, eager = rows.take(_are_operators(rows)), rows.take(described(rows, "eager"))
        everything = others + recorded + operators

        def fold(
            protocol: str, held_out: Measurements, key: str, more: Sequence[dp.Task] = ()
        ) -> dp.Fold:
            tasks = [*_by_mode(held_out, protocol), *more]
            held = {str(name) for task in tasks for name in task.held_out.groups[key]}
            known = np.isin(everything.groups.get(key, np.full(len(everything), "")), list(held))
            return dp.Fold(protocol, everything.take(~known), tasks, source="")

        for held_out in _parts(recorded, "family"):
            same = np.isin(eager.groups["family"], held_out.groups["family"])
            latencies = list(_by_mode(eager.take(same), "unseen_family"))
            yield fold("unseen_family", held_out, "family", latencies)
        for held_out in _parts(operators, "model"):
            yield fold("unseen_shape", held_out, "model")
        unseen = fold("unseen_architecture", recorded + operators, "device")
        yield unseen
        tasks = list(_by_mode(recorded + eager, "operators_only"))
        adapted = [_adapted_to(operators, task) for task in tasks]
        yield replace(unseen, protocol="operators_only", tasks=adapted)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """One task for each execution mode, phase, metric and GPU, without training rows.

        `operators/latency` is the time of the GPU alone, `operators/launched_latency` the time of
        one synchronised run including its launch by the host. The baseline `other_devices` is the
        median of the same task on the other GPUs.
        """
        rows = _not_trained_on(measured_runs(bundle, catalog), seen)
        operators = rows.take(rows.groups["mode"] == "operators")
        for metric in METRICS["operators"]:
            yield from _tasks(operators, f"operators/{_quantity(metric)}", metric)
        launched = {"latency_ms": operators.values["launched_ms"]}
        launches = replace(operators, values=launched)
        yield from _tasks(launches, "operators/launched_latency", "latency_ms")
        for mode in ("eager", "recorded"):
            for metric in METRICS[mode]:
                for phase in ("inference", "training"):
                    alike = (rows.groups["mode"] == mode) & (rows.groups["phase"] == phase)
                    name = f"{mode}/{phase}_{_quantity(metric)}"
                    yield from _tasks(rows.take(alike), name, metric)

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Runs that ran out of memory, failed or were throttled, and runs in the training set."""
        rows = measured_runs(bundle, catalog)
        known, powered = _known(rows, seen), np.isfinite(rows.values["power_w"])
        eager = rows.groups["mode"] == "eager"
        timed = known & _are_operators(rows)
        return {
            "ran out of memory, failed or was throttled": ~_usable(bundle),
            "the training set has this recorded network on this GPU": known & trains(rows),
            "latency: the training set has this operator on this GPU": timed,
            "power: the training set has this network on this GPU": known & eager & powered,
        }


def _power_folds(power: Measurements, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
    """Power of eager networks on each GPU in turn."""
    others = _other_training_rows(OperatorPower.name, catalog)
    for device in np.unique(power.groups["device"]):
        held = power.groups["device"] == device
        tasks = list(_tasks(power, "unseen_device/eager_power", "power_w", str(device)))
        elsewhere = others.take(others.groups["device"] != device)
        yield dp.Fold("unseen_device", elsewhere + power.take(~held), tasks, source="")


def _parts(rows: Measurements, key: str) -> Iterator[Measurements]:
    """The rows, split into `FOLDS` parts that share no value of a grouping key."""
    part = folds_of(rows.groups[key], FOLDS, key)
    return (rows.take(part == number) for number in np.unique(part))


def _by_mode(rows: Measurements, protocol: str) -> dp.Tasks:
    """Tasks of latencies by how the runs were launched; eager networks also by phase."""
    phases = np.where(rows.groups["mode"] == "eager", rows.groups["phase"], "")
    kinds = np.char.add(np.char.add(rows.groups["mode"], "_"), phases)
    for kind in np.unique(kinds):
        yield from _tasks(
            rows.take(kinds == kind), f"{protocol}/{kind.strip('_')}_latency", "latency_ms"
        )


def _adapted_to(operators: Measurements, task: dp.Task) -> dp.Task:
    """The task, after adaptation to all operator times on its GPU."""
    same_device = operators.take(operators.groups["device"] == task.device)
    pool = replace(same_device, values={"latency_ms": same_device.values["latency_ms"]})
    return replace(task, support=dp.Support(len(pool), pool))


def _known(rows: Measurements, seen: dp.Seen) -> Mask:
    """Which of n rows have both a network and a GPU of the training set, shape (n,)."""
    return dp.is_seen(rows, "device", seen) & dp.is_seen(rows, "model", seen)


def _not_trained_on(rows: Measurements, seen: dp.Seen) -> Measurements:
    """The rows without the values that the current predictors were trained on.

    Recorded networks are dropped entirely, operators lose their times, and eager networks their
    power.
    """
    known, values = _known(rows, seen), dict(rows.values)
    timed, eager = known & _are_operators(rows), known & (rows.groups["mode"] == "eager")
    for name, trained in (("power_w", eager), ("latency_ms", timed), ("launched_ms", timed)):
        values[name] = np.where(trained, np.nan, values[name])
    return replace(rows, values=values).take(~(known & trains(rows)))


def _usable(bundle: Bundle) -> Mask:
    return np.asarray(bundle.table("runs")["status"] == "ok", dtype=np.bool_)


def measured_runs(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """All usable rows of `runs`, with the group `roofline` of their bounds.

    Graphs come from the package if the bundle has none.
    """
    runs = bundle.table("runs")[_usable(bundle)].reset_index(drop=True)
    graphs = read_graphs(TorchGpu().table_of(bundle, "graphs"))
    rows = gpu_measurements(runs, graphs, catalog)
    bounds = Roofline().predict(rows.queries).values["latency_ms"]
    edges = ("0", *map(str, BOUNDS_MS), "more")
    names = np.array([f"{low} to {high} ms" for low, high in pairwise(edges)])
    return replace(rows, groups={**rows.groups, "roofline": names[np.digitize(bounds, BOUNDS_MS)]})


def _quantity(metric: str) -> str:
    """A metric without its unit."""
    return metric.rpartition("_")[0]


def recorded_operators(rows: Measurements) -> Measurements:
    """Operators in recorded loops: training rows of `DeviceTime`.

    Only operators that a query can express: it cannot forbid TF32 for convolutions.
    """
    kept = rows.take(_are_operators(rows))
    return _only(kept, "latency_ms", kept.groups)


def _are_operators(rows: Measurements) -> Mask:
    """Which of n rows are operators that are training rows, shape (n,)."""
    conv = np.char.startswith(rows.groups["family"], "conv")
    strict = conv & (rows.groups["precision"] == "fp32")
    strict &= rows.groups["fp32_convolutions"] == "strict"
    timed = np.isfinite(rows.values["latency_ms"])
    return np.asarray((rows.groups["mode"] == "operators") & ~strict & timed, dtype=np.bool_)


def eager_power(rows: Measurements) -> Measurements:
    """Power of networks launched operator by operator: training rows of `OperatorPower`.

    The group `op_shape` is the network, because `OperatorPower` uses that name.

    Args:
        rows: rows from `measured_runs`.
    """
    kept = rows.take((rows.groups["mode"] == "eager") & np.isfinite(rows.values["power_w"]))
    return _only(kept, "power_w", {**kept.groups, "op_shape": kept.groups["model"]})


def _other_training_rows(predictor: str, catalog: DeviceCatalog) -> Measurements:
    """Rows of other datasets on which a release trains a predictor.

    Raises:
        MissingData: one of the datasets is not on this machine.
    """
    from forerun.training.protocols import training_source

    sources = (training_source(name) for name in PREDICTORS[predictor].trained_on[0])
    parts = [
        source.training_rows(find(source.dataset), catalog)
        for source in sources
        if source.dataset != TorchGpuProtocols.dataset
    ]
    return sum(parts[1:], parts[0])


def _tasks(rows: Measurements, name: str, metric: str, only: str = "") -> dp.Tasks:
    """One task for each GPU, or only for the named one, of rows with a measured value."""
    rows = rows.take(np.isfinite(rows.values[metric]))
    for device in [only] if only else np.unique(rows.groups["device"]):
        on_device = rows.groups["device"] == device
        held_out = rows.take(on_device)
        baselines = _baselines(held_out, rows.take(~on_device), metric)
        task = dp.Task(name, metric, held_out, str(device), baselines)
        scores = [Capacity(VISION_BIN_MIB)] if metric in MEMORY else []
        yield replace(task, scores=scores, device_only="recorded" in name)


def _baselines(held_out: Measurements, others: Measurements, metric: str) -> dict[str, Column]:
    """Constants: the median on other GPUs; for power, as a share of the TDP."""
    scale = np.ones(len(held_out))
    values, found = others.values[metric], {}
    if metric == "power_w":
        scale, values = dp.design_w(held_out), values / dp.design_w(others)
        found["constant_share"] = CONSTANT_SHARE * scale
    if len(others):
        found["other_devices"] = float(np.median(values)) * scale
    return found
