"""gpumemnet: peak training memory of random perceptrons and of held-out vision models.

The operator graphs of the vision models are in the bundle `timm_bench`, in a sibling folder or
pulled. Without it, only the perceptrons are evaluated.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import permutations
from typing import ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Mask, Positions
from forerun.data.datasets.memory.gpumemnet import CAP_MIB, DEVICE, GpuMemNet
from forerun.data.device import DeviceCatalog
from forerun.data.errors import MissingData
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.plan import memory_plan
from forerun.features.tables.gpumemnet import mlp_graph
from forerun.features.tables.timm_bench import timm_graphs
from forerun.models.memory.peak_memory import AT_LEAST, PEAK
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.joined_tables import joined_table
from forerun.training.scores.task_scores import Capacity

GRAPHS: Final = "timm_bench"
FAKETENSOR: Final = "faketensor_after_forward_mib"
MLP_BIN_MIB, VISION_BIN_MIB = 1000.0, 8000.0
LEAST_GROWTH_MIB: Final = 1e-3
"""Lower bound for the growth of activations with the batch, so that its logarithm is finite."""
MLP_SETUP: Final = TrainingSetup("adam")
VISION_SETUP: Final = TrainingSetup("momentum")
"""The source names Adam for perceptrons and no optimizer for timm, whose own script uses SGD with
momentum. One state per weight fits the data (a free coefficient for more is fitted to -0.1)."""


class GpuMemNetProtocols(dp.DatasetProtocols):
    """Peak training memory, as seen by the device."""

    dataset = "gpumemnet"
    joined = (f"graphs of {GRAPHS}",)
    reads: ClassVar = {
        "timm_training_peak": (
            *("model", "family", "batch_size", "max_gpu_memory_mib", "suspect"),
            FAKETENSOR,
        )
    }

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """Vision models and perceptrons, with plausible peaks and lower bounds."""
        vision, _ = vision_peaks(bundle, catalog)
        found = [vision.take(_usable(vision))] if len(vision) else []
        tables = filter(bundle.has, ("mlp_step1", "mlp_step2"))
        found += [mlp_peaks(bundle.table(name), catalog) for name in tables]
        if not found:
            raise MissingData(f"{bundle.folder} holds no training peaks with a graph.")
        return sum(found[1:], found[0])

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """Folds of each protocol, then one kind of network predicted from another."""
        tables: dict[str, tuple[Measurements, dp.Kept]] = {}
        tables["timm_training_peak"] = vision, _ = vision_peaks(bundle, catalog)
        if bundle.has("mlp_step2"):
            tables["mlp_step2"] = mlp_peaks(bundle.table("mlp_step2"), catalog), dp.EVERY
        for split in GpuMemNet().checked_splits(bundle):
            for protocol, train, held_out in dp.split_rows(split, *tables[split.table]):
                name, scores = f"{protocol}/peak", [Capacity(MLP_BIN_MIB)]
                task = dp.Task(name, PEAK, held_out, scores=scores)
                whole = split.table == "mlp_step2"
                yield dp.Fold(
                    protocol, train, [task if whole else _vision_task(protocol, held_out)]
                )
        yield from _across_kinds(vision)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Vision models that are not in the training set, by whether their family is."""
        vision, _ = vision_peaks(bundle, catalog)
        if not len(vision):
            return
        new = ~np.isnan(vision.values[PEAK]) & ~dp.is_seen(vision, "model", seen)
        known = dp.is_seen(vision, "family", seen)
        for protocol, rows in (("unseen_family", new & ~known), ("unseen_model", new & known)):
            if rows.any():
                yield _vision_task(protocol, vision.take(rows))

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Rows without a graph, suspicious rows, and models in the training set."""
        vision, kept = vision_peaks(bundle, catalog)
        rows = bundle.table("timm_training_peak") if bundle.has("timm_training_peak") else ()
        here, suspect, same = (np.zeros(len(rows), dtype=np.bool_) for _ in range(3))
        here[kept] = True
        suspect[kept] = np.isnan(vision.values[PEAK])
        same[kept] = dp.is_seen(vision, "model", seen)
        return {
            f"no operator graph of that model in {GRAPHS}": ~here,
            "the column suspect says that the peak is not one": suspect,
            "this model is in the training set": same & ~suspect,
        }


def mlp_peaks(table: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Rows of a table `mlp_step1` or `mlp_step2` as measured networks."""
    device = catalog.get(DEVICE)
    queries = []
    for row in table.to_dict("records"):
        width = re.match(r"input:(\d+)_", str(row["Filename"]))
        graph = mlp_graph(str(row["Activations-Params"]), int(width[1]) if width else 1)
        batch = int(row["Batch Size"])
        queries.append(Query(Network(graph, batch, "fp32", "training", MLP_SETUP), device))
    values = {PEAK: table["Max GPU Memory (MiB)"], AT_LEAST: np.full(len(queries), np.nan)}
    groups = {"model": table["Filename"], "family": table["Filename"]}
    return Measurements.of(queries, values, groups)


def vision_peaks(bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, Positions]:
    """Rows of `timm_training_peak` with a graph, and their positions in it.

    Rows that reached the memory of the device have a lower bound instead of a peak (a censored
    value); other suspicious rows have neither.
    """
    if not bundle.has("timm_training_peak"):
        nothing = np.array([], dtype=np.intp)
        groups = {"model": nothing, "family": nothing}
        return Measurements.of([], {PEAK: nothing, AT_LEAST: nothing}, groups), nothing
    table = bundle.table("timm_training_peak")
    graphs = _graphs(bundle, table)
    device = catalog.get(DEVICE)
    kept = np.flatnonzero(table["model"].isin(list(graphs)))
    rows = table.iloc[kept]
    networks = [
        Network(graphs[model], int(batch), "fp32", "training", VISION_SETUP)
        for model, batch in zip(rows["model"], rows["batch_size"], strict=True)
    ]
    queries = [Query(network, device) for network in networks]
    clean, bound = rows["suspect"] == "", rows["suspect"] == "near_40gb_cap"
    peaks = rows["max_gpu_memory_mib"].to_numpy(dtype=np.float64)
    values = {
        PEAK: np.where(clean, peaks, np.nan),
        AT_LEAST: np.where(bound, CAP_MIB, np.nan),
        FAKETENSOR: rows[FAKETENSOR],
    }
    return Measurements.of(queries, values, {k: rows[k] for k in ("model", "family")}), kept


def _graphs(bundle: Bundle, table: pd.DataFrame) -> dict[str, OperatorGraph]:
    """Model -> graph at the image size that best fits the published FakeTensor estimates.

    Both describe the workload; measured peaks are not used.
    """
    sibling = bundle.folder.parent / GRAPHS
    try:
        rows = joined_table(
            Bundle(GRAPHS, sibling if sibling.is_dir() else bundle.folder), "graphs", GRAPHS
        )
    except MissingData:
        return {}
    by_model: dict[str, list[OperatorGraph]] = {}
    for (model, _), graph in timm_graphs(rows[rows["model"].isin(set(table["model"]))]).items():
        by_model.setdefault(model, []).append(graph)
    runs = dict(iter(table.sort_values("batch_size").groupby("model")))
    return {
        model: graphs[0] if len(graphs) == 1 else _nearest(graphs, runs[model])
        for model, graphs in by_model.items()
    }


def _nearest(graphs: Sequence[OperatorGraph], runs: pd.DataFrame) -> OperatorGraph:
    """The graph whose activations grow with the batch like the published estimate.

    The estimate includes the weights, which do not grow.

    Args:
        graphs: graphs of one model.
        runs: its rows, by batch size.
    """
    ends = runs.drop_duplicates("batch_size").iloc[[0, -1]].drop_duplicates()
    estimates, batches = ends[FAKETENSOR].tolist(), ends["batch_size"].astype(int).tolist()
    estimated = max(estimates[-1] - (estimates[0] if len(ends) > 1 else 0.0), LEAST_GROWTH_MIB)

    def gap(graph: OperatorGraph) -> float:
        runs_of = [Network(graph, size, "fp32", "training", VISION_SETUP) for size in batches]
        planned = [memory_plan(run).parts["activations"] for run in runs_of]
        grown = planned[-1] - (planned[0] if len(planned) > 1 else 0.0)
        return float(abs(np.log(max(grown, LEAST_GROWTH_MIB) / estimated)))

    return min(graphs, key=gap)


def _usable(rows: Measurements) -> Mask:
    return ~np.isnan(rows.values[PEAK]) | ~np.isnan(rows.values[AT_LEAST])


def _vision_task(protocol: str, held_out: Measurements) -> dp.Task:
    published = {
        "published_faketensor": held_out.values[FAKETENSOR],
        "published_accelerate": np.array([_accelerate_mib(q.network) for q in held_out.queries]),
    }
    name = f"{protocol}/training_peak"
    return dp.Task(name, PEAK, held_out, baselines=published, scores=[Capacity(VISION_BIN_MIB)])


def _accelerate_mib(network: Network) -> float:
    """Estimate of `accelerate estimate-memory` for training in fp32, MiB: four times the weights.

    These are weights, gradients and two moments, at any batch size (accelerate 1.15,
    `estimate_training_usage`).
    """
    return 4.0 * memory_plan(network).parts["weights"]


def _across_kinds(vision: Measurements) -> Iterator[dp.Fold]:
    """Trained on convolutional networks and evaluated on transformers, and vice versa."""
    if not len(vision):
        return
    kinds = np.array([_kind(q.network) for q in vision.queries])
    clean = ~np.isnan(vision.values[PEAK])
    for teacher, other in permutations(("convolutional", "transformer")):
        protocol = f"{teacher}_teaches"
        train = vision.take((kinds == teacher) & _usable(vision))
        rows = vision.take((kinds == other) & clean)
        if len(train) and len(rows):
            yield dp.Fold(protocol, train, [_vision_task(protocol, rows)])


def _kind(network: Network) -> str:
    """Kind of a network by its operators.

    `transformer` has attention and no batch norm, `convolutional` neither attention nor layer norm.
    """
    kinds = {op.kind for op in network.graph.operators}
    if "attention" in kinds and "batch_norm" not in kinds:
        return "transformer"
    return "other" if kinds & {"attention", "layer_norm"} else "convolutional"
