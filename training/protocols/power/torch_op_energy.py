"""Power of operators and networks, and of training jobs under power limits (zeus_powercap).

For torch_op_energy, operators, networks or devices are held out; for zeus_powercap, devices, with
tasks for power, time and energy.

A GPU is held out with all its runs. Runs of Zeus's traces and of ML.ENERGY are also training and
held-out rows if their bundles are available. The measured quantity must be comparable: the average
power of one busy GPU (NVML). Therefore the following are not used: MLPerf's figures (wall power of
whole systems), served language models (their batch sizes change and the GPU waits between batches)
and ML.ENERGY's earlier table (its A100 may be either of two boards).
"""

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from importlib.resources import as_file, files
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, Names, Positions
from forerun.data.datasets.power.mlenergy import RUNS
from forerun.data.datasets.power.torch_op_energy import TorchOpEnergy
from forerun.data.datasets.power.zeus_powercap import JOB, LIMIT, TRACE, ZeusPowerCap
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import Benchmark, Kernel, Network, NumberFormat, Phase
from forerun.features.published.powered import CIFAR, SQUAD, TWEETS
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.torch_op_energy import torch_op_energy_kernels
from forerun.models.conformal import held_out_folds
from forerun.models.power.operator_power import OperatorPower, fit_boosters, mean_boosted_w
from forerun.models.power.training_jobs import SUITE
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.joined_tables import companion
from forerun.training.protocols.power.mlenergy import diffusion_runs
from forerun.training.scores.task_scores import Choices

BOARDS: Final[Mapping[str, str]] = ZeusPowerCap.facts["boards"]
"""GPU of the trace -> board with the same highest power limit. RTX 6000 is the Turing board, since
the trace is older than later GPUs of that name."""
PARTS: Final = {"power": "power_w", "time": "latency_ms", "energy": "energy_j"}


class ZeusPowerCapProtocols(dp.DatasetProtocols):
    """Power, time per epoch and energy of training jobs under power limits."""

    dataset = "zeus_powercap"
    split_table, pooled = TRACE, False
    unseen: ClassVar = {"unseen_device": {"device": dp.NEW}}
    reads: ClassVar = {TRACE: ("gpu", *JOB, LIMIT, "average_power", "time_per_epoch")}
    parts: ClassVar = {
        "networks": lambda bundle, catalog: zeus_networks(bundle.table(TRACE), catalog)
    }

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All rows of the trace."""
        return runs(bundle.table(TRACE), catalog), dp.EVERY

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """Power, time and energy on each GPU, and choices of the limit with the lowest energy."""
        for device in np.unique(held_out.groups["device"]):
            rows = held_out.take(held_out.groups["device"] == device)
            shares = np.array([_share(query) for query in rows.queries])
            rivals = {"largest_limit": -shares}
            if train is not None:
                rivals["taught_share"] = np.abs(shares - best_share(train))
            limits = Choices(rows.groups["job"], rivals)
            for part, metric in PARTS.items():
                scores = [limits] if part == "energy" else []
                name = f"unseen_device/{part}"
                yield dp.Task(name, metric, rows, device=str(device), scores=scores)


def runs(trace: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Rows of the trace as measured benchmarks at a power limit; a run is one epoch."""
    boards = {str(gpu): board(str(gpu), catalog) for gpu in trace["gpu"].unique()}
    queries = []
    for row in trace.to_dict("records"):
        settings = tuple(
            (name, float(row[name]) if name == "batch_size" else str(row[name]))
            for name in sorted(JOB)
        )
        limit = Operation(power_limit_w=float(row[LIMIT]))
        workload = Benchmark(SUITE, settings)
        queries.append(Query(workload, boards[str(row["gpu"])], operation=limit))
    power = trace["average_power"].to_numpy(dtype=np.float64)
    time_ms = 1e3 * trace["time_per_epoch"].to_numpy(dtype=np.float64)
    values = {"power_w": power, "latency_ms": time_ms, "energy_j": power * time_ms / 1e3}
    jobs = trace[list(JOB)].astype(str).agg("/".join, axis=1)
    return Measurements.of(queries, values, {"job": jobs})


def board(gpu: str, catalog: DeviceCatalog) -> Device:
    """The board for a GPU name of the trace."""
    return catalog.get(BOARDS.get(gpu.strip().upper().replace(" ", "_"), gpu))


def best_share(rows: Measurements) -> float:
    """Share of the TDP, rounded to 0.1, at which the mean energy of the jobs is lowest.

    The energy of a job is relative to its minimum over all limits, so that jobs have equal weights.
    """
    energy = pd.Series(rows.values["energy_j"])
    least = energy.groupby([rows.groups["device"], rows.groups["job"]]).transform("min")
    tenths = np.round(np.array([_share(query) for query in rows.queries]) * 10.0) / 10.0
    means = (energy / least).groupby(tenths).mean()
    return float(means.index.to_numpy()[means.argmin()])


def _share(query: Query) -> float:
    assert query.operation.power_limit_w is not None
    assert query.device.tdp_w is not None
    return query.operation.power_limit_w / query.device.tdp_w


JOBS: Final[Mapping[tuple[str, str], str]] = {
    ("imagenet", "resnet50"): "resnet50-224",
    ("squad", "bert_base_uncased"): SQUAD,
    ("sentiment140", "bert_base_uncased"): TWEETS,
    ("cifar100", "shufflenetv2"): CIFAR,
}
"""Dataset and network of a job of Zeus -> its graph. DeepSpeech2, whose input lengths are unknown,
and NCF, which waits for its input, are not used."""
ZEUS_SOFTWARE: Final = Software(version="1.10.0")
"""PyTorch before 2.0, with a longer host time; it multiplies in TF32 if the GPU supports it."""


@lru_cache(maxsize=1)
def power_graphs() -> Mapping[str, OperatorGraph]:
    """The packaged graphs of networks with measured power, by name."""
    with as_file(files("forerun.data").joinpath("power_networks", "graphs.parquet")) as path:
        return read_graphs(pd.read_parquet(path))


def zeus_networks(trace: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Jobs with a known network at the highest limit of each GPU, which is its default."""
    highest = trace.groupby("gpu")[LIMIT].transform("max")
    jobs = zip(trace["dataset"], trace["network"], strict=True)
    graphs = pd.Series([JOBS.get(job) for job in jobs], trace.index, dtype="object")
    kept = (trace[LIMIT] == highest) & graphs.notna()
    rows, queries = trace[kept], []
    for row, graph in zip(rows.to_dict("records"), graphs[kept], strict=True):
        device = board(str(row["gpu"]), catalog)
        precision: NumberFormat = "tf32" if "tf32" in device.peak_tflops else "fp32"
        run = Network(power_graphs()[graph], int(row["batch_size"]), precision, "training")
        queries.append(Query(run, device, ZEUS_SOFTWARE))
    return _measured(queries, rows["average_power"], graphs[kept])


def whole_models(table: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Networks of torch_op_energy with a graph, in inference and training."""
    shapes = [ast.literal_eval(text) for text in table["input_shape"].astype(str)]
    names = [f"{model}-{shape[-1]}" for model, shape in zip(table["model"], shapes, strict=True)]
    table = table.assign(graph=names, batch=[shape[0] for shape in shapes])
    rows = table[table["graph"].isin(list(power_graphs()))]
    queries = []
    for row in rows.to_dict("records"):
        device = str(row["device"])
        precision: NumberFormat = "tf32" if device.endswith("tf32") else "fp32"
        phase: Phase = "training" if row["phase"] == "training" else "inference"
        run = Network(power_graphs()[row["graph"]], int(row["batch"]), precision, phase)
        queries.append(Query(run, catalog.get(device)))
    return _measured(queries, rows["power_w"], rows["model"])


def _measured(queries: Sequence[Query], watts: Any, names: Any) -> Measurements:
    return Measurements.of(queries, {"power_w": watts}, {"op_shape": names})


NETWORK_FOLDS: Final = 5
Baseline = Callable[[Measurements], dict[str, Column]]
CONSTANT_SHARE: Final = 0.9
"""Share of the TDP that the baseline `constant_share` predicts for every run."""


class TorchOpEnergyProtocols(dp.DatasetProtocols):
    """Average power of networks, and of single operators that are repeated in a loop."""

    dataset = "torch_op_energy"
    held_out_by: ClassVar = {
        "unseen_operator": ("op_shape",),
        "unseen_network": ("op_shape",),
        "unseen_device": ("device",),
    }
    unseen: ClassVar = {"unseen_device": {"device": dp.NEW}}
    reads: ClassVar = {"ops": ("device", "layer", "input_shape", "power_w", "latency_ms")}

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """Operators with known shapes."""
        return operator_power(bundle.table("ops"), catalog)

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Operators with known shapes, forward and with their backward pass, and networks."""
        ops = bundle.table("ops")
        rows = operator_power(ops, catalog)[0] + trained_operators(ops, catalog)
        if bundle.has("full_models"):
            rows = rows + whole_models(bundle.table("full_models"), catalog)
        return rows

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """Operators held out in folds, then networks, then each GPU; folds are pooled.

        Networks and runs of other datasets are training rows unless they are held out themselves.
        """
        measured, kept = self.measured(bundle, catalog)
        others = self.training_rows(bundle, catalog)
        others = others.take(np.arange(len(measured), len(others))) + _elsewhere(bundle, catalog)
        for split in TorchOpEnergy().checked_splits(bundle):
            protocol = split.protocol.partition("/")[0]
            if split.table != "ops" or protocol == "unseen_device":
                continue
            for _, train, held_out in dp.split_rows(split, measured, kept):
                new = np.isin(others.groups["op_shape"], held_out.groups["op_shape"])
                tasks = list(self.tasks(protocol, held_out, train))
                yield dp.Fold(protocol, train + others.take(~new), tasks, source="")
        whole = measured + others
        yield from _unseen_networks(whole)
        yield from _unseen_devices(whole)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each device."""
        return _tasks(held_out, f"{protocol}/power")

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Operators that are not recognised, and operators on devices in the training set."""
        measured, kept = self.measured(bundle, catalog)
        known, same = np.zeros((2, len(bundle.table("ops"))), dtype=np.bool_)
        known[kept] = True
        same[kept] = dp.is_seen(measured, "device", seen)
        unread = "the layer and its input_shape name no operator that is known"
        return {unread: ~known, "this device is in the training set": same}


def operator_power(ops: pd.DataFrame, catalog: DeviceCatalog) -> tuple[Measurements, Positions]:
    """Rows of the table `ops` as measured operators, and their positions in it.

    The table's device for TF32 is the A30 in that precision.
    """
    operators = torch_op_energy_kernels(ops)
    kept = np.flatnonzero([operator is not None for operator in operators])
    rows, queries = ops.iloc[kept], []
    for operator, device in zip(operators, ops["device"].astype(str), strict=True):
        if operator is not None:
            precision: NumberFormat = "tf32" if device.endswith("tf32") else "fp32"
            queries.append(Query(Kernel(operator, precision), catalog.get(device)))
    values = {metric: rows[metric] for metric in ("power_w", "latency_ms")}
    shapes = rows["layer"].astype(str) + rows["input_shape"].astype(str)
    return Measurements.of(queries, values, {"op_shape": shapes}), kept


def trained_operators(ops: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Forward plus backward passes of operators (columns `train_*`), if they were measured."""
    if "train_power_w" not in ops:
        return Measurements([], {"power_w": np.zeros(0)}, {})
    rows = ops[ops["train_power_w"].notna()].reset_index(drop=True)
    measured, kept = operator_power(rows, catalog)
    queries = []
    for query in measured.queries:
        assert isinstance(query.workload, Kernel)
        queries.append(trained_operator(query.workload, query.device))
    watts = rows["train_power_w"].to_numpy(dtype=np.float64)[kept]
    return Measurements(queries, {"power_w": watts}, measured.groups)


def trained_operator(run: Kernel, device: Device) -> Query:
    """Query about the forward and backward pass of one operator, repeated in a loop."""
    graph = OperatorGraph((run.operator,), batch_size=run.operator.input_shapes[0][0])
    return Query(Network(graph, graph.batch_size, run.precision, "training"), device)


def _elsewhere(bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Comparable runs of other datasets, as far as their bundles are available."""
    rows = Measurements([], {"power_w": np.zeros(0)}, {})
    sources = (("zeus_powercap", TRACE, zeus_networks), ("mlenergy", RUNS, diffusion_runs))
    for name, table, read in sources:
        found = companion(bundle, name)
        if found is not None and found.has(table):
            rows = rows + read(found.table(table), catalog)
    return rows


def _unseen_networks(rows: Measurements) -> Iterator[dp.Fold]:
    """Networks held out in folds by name; all operators and other networks are training rows."""
    networks = np.isin(_parts(rows), ("inference", "training"))
    for fold in held_out_folds(rows.groups["op_shape"][networks], NETWORK_FOLDS):
        held = np.zeros(len(rows), dtype=np.bool_)
        held[networks] = fold
        yield _fold("unseen_network", rows, held)


def _unseen_devices(rows: Measurements) -> Iterator[dp.Fold]:
    """Each GPU held out with its operators, networks and diffusion models."""
    for device in np.unique(rows.groups["device"]):
        held = rows.groups["device"] == device
        if not held.all() and (_parts(rows)[held] != "").any():
            yield _fold("unseen_device", rows, held, _booster_of(rows.take(~held)))


def _fold(
    protocol: str, rows: Measurements, held: Mask, booster: Baseline = lambda held_out: {}
) -> dp.Fold:
    """The given rows held out, with tasks for each part."""
    train, parts, tasks = rows.take(~held), _parts(rows), list[dp.Task]()
    for part in np.unique(parts[held & (parts != "")]):
        held_out, alike = rows.take(held & (parts == part)), train.take(parts[~held] == part)
        baselines = _baselines(held_out, alike) | booster(held_out)
        tasks += _tasks(held_out, f"{protocol}/{part}", baselines)
    return dp.Fold(protocol, train, tasks, source="")


def _parts(rows: Measurements) -> Names:
    return np.array([_part(query) for query in rows.queries], dtype=np.str_)


def _part(query: Query) -> str:
    """Part of the task's name for a query; empty for rows that are only training rows.

    These are backward passes of operators, and diffusion models.
    """
    run = query.workload
    if isinstance(run, Kernel):
        return "power"
    return run.phase if isinstance(run, Network) and len(run.graph) > 1 else ""


def _baselines(held_out: Measurements, alike: Measurements) -> dict[str, Column]:
    """Baselines: a constant share of the TDP, and the median share of similar runs."""
    tdp = dp.design_w(held_out)
    found = {"constant_share": CONSTANT_SHARE * tdp}
    if len(alike):
        found["median_share"] = float(np.median(alike.values["power_w"] / dp.design_w(alike))) * tdp
    return found


def _booster_of(train: Measurements) -> Baseline:
    """Baseline: boosters fitted on forward operators; for networks, averaged over operators.

    This was the predictor before the analytic power model.
    """
    kernels = train.take(_parts(train) == "power")
    if not kernels:
        return lambda held_out: {}
    boosters = fit_boosters(kernels, 0, 1, OperatorPower().trees)
    return lambda held_out: {"operator_boosters": mean_boosted_w(boosters, held_out.queries)}


def _tasks(
    rows: Measurements, name: str, baselines: Mapping[str, Column] | None = None
) -> dp.Tasks:
    return dp.tasks_by(rows, ("device",), name, "power_w", baselines)
