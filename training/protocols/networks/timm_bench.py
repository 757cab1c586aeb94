"""timm_bench: latency of vision networks on held-out devices, families and models."""

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any, ClassVar, Final

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Mask, Positions
from forerun.data.datasets.dataset import family_of
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, TrainingSetup
from forerun.features.tables.timm_bench import timm_graphs
from forerun.training.protocols import protocol as dp
from forerun.training.protocols.joined_tables import joined_table

FEW_MODELS = "unseen_device_few_models"
MODES = ("eager", "compiled")
MODELS, DRAWS = 10, 5
BY_PART: Final = dp.Support(offset_by="part")


def few_models_tasks(rows: Measurements, models: int = MODELS, draws: int = DRAWS) -> dp.Tasks:
    """Tasks that adapt to some models in both execution modes and evaluate all other models.

    The support set of each draw has one row of each drawn model in each mode. Tasks of all draws
    share their names, so that their rows are pooled. `FEW_MODELS/MODE` evaluates all models that
    were not drawn, `FEW_MODELS_and_families/MODE` only families of which no model was drawn.

    Args:
        rows: rows of devices that the predictor was not fitted on, with the groups `device`,
            `model`, `family` and `part`.
        models: number of models drawn; a device needs more than that, measured in both modes.
        draws: number of draws; each is seeded by its number.
    """
    rows = rows.take(np.isin(rows.groups["part"], MODES))
    for device in np.unique(rows.groups["device"]):
        of_device = rows.take(rows.groups["device"] == device)
        model, part, family = (of_device.groups[key] for key in ("model", "part", "family"))
        both = sorted(set(model[part == MODES[0]]) & set(model[part == MODES[1]]))
        if len(both) < models + 1:
            continue
        for draw in range(draws):
            generator = np.random.default_rng(draw)
            chosen = generator.permutation(both)[:models]
            pool = of_device.take(
                [
                    generator.choice(np.flatnonzero((model == name) & (part == mode)))
                    for name, mode in product(chosen, MODES)
                ]
            )
            new_model = ~np.isin(model, chosen)
            new_family = ~np.isin(family, pool.groups["family"])
            given = dp.Support(len(pool), pool, offset_by="part")
            held = {FEW_MODELS: new_model, f"{FEW_MODELS}_and_families": new_family}
            for protocol, mode in product(held, MODES):
                rows_of, name = (
                    of_device.take(held[protocol] & (part == mode)),
                    f"{protocol}/{mode}",
                )
                yield from dp.tasks_by(rows_of, ("device",), name, "latency_ms", support=given)


OPTIONAL: Final[Mapping[str, str]] = {
    "phase": "inference",
    "layout": "nchw",
    "torch": "",
    "cuda": "",
}
"""Optional columns of a user's own table -> their defaults."""


class TimmBenchProtocols(dp.DatasetProtocols):
    """Latency of whole networks, by runtime and precision."""

    dataset = "timm_bench"
    held_out_by: ClassVar = {
        "unseen_device": ("device",),
        "unseen_device_and_family": ("device", "family"),
        "unseen_family": ("family", "model"),
        "unseen_model": ("model",),
        FEW_MODELS: ("device",),
    }
    reads: ClassVar = {
        "bench": (
            *("model", "device", "precision", "compiled", "img_size", "batch_size"),
            "step_time_ms",
        )
    }
    optional: ClassVar = {"bench": OPTIONAL}
    joined = ("graphs",)
    unseen: ClassVar = {
        "unseen_device": {"device": dp.NEW, "model": dp.KNOWN},
        "unseen_device_and_family": {"device": dp.NEW, "family": dp.NEW},
        "unseen_device_and_model": {"device": dp.NEW, "model": dp.NEW, "family": dp.KNOWN},
        "unseen_family": {"device": dp.KNOWN, "family": dp.NEW},
        "unseen_model": {"device": dp.KNOWN, "model": dp.NEW, "family": dp.KNOWN},
    }

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, dp.Kept]:
        """All rows with an operator graph."""
        return network_measurements(bundle.table("bench"), _graphs(bundle), catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[dp.Fold]:
        """All folds, and for each held-out device a fold that adapts to a few models."""
        for fold in super().folds(bundle, catalog):
            yield fold
            few = list(few_models_tasks(dp.held_out_rows(fold.tasks)))
            if fold.protocol == "unseen_device" and few:
                yield dp.Fold(FEW_MODELS, fold.train, few)

    def tasks(self, protocol: str, held_out: Measurements, train: dp.Trained) -> dp.Tasks:
        """One task for each part; if nothing is fitted, for each part and device."""
        keys = ("part", "device") if train is None else ("part",)
        return dp.tasks_by(held_out, keys, f"{protocol}/{{part}}", "latency_ms", support=BY_PART)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> dp.Tasks:
        """Rows by what is not in the training set, and adaptation to a few models."""
        yield from super().evaluation_tasks(bundle, catalog, seen)
        rows, _ = self.measured(bundle, catalog)
        yield from few_models_tasks(rows.take(~dp.is_seen(rows, "device", seen)))

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: dp.Seen) -> Mapping[str, Mask]:
        """Rows without a graph or a time, and models in the training set on the same device."""
        bench, graphs = bundle.table("bench"), _graphs(bundle)
        traced = set(zip(graphs["model"].astype(str), graphs["img_size"].astype(int), strict=True))
        names = bench["model"].astype(str)
        pairs = zip(names, bench["img_size"], strict=True)
        has_graph = np.array([pair in traced for pair in pairs], dtype=np.bool_)
        timed = ((bench["batch_size"] > 0) & (bench["step_time_ms"] > 0)).to_numpy(dtype=np.bool_)
        devices = {str(name): catalog.get(str(name)).name for name in bench["device"].unique()}
        known = bench["device"].astype(str).map(devices).isin(list(seen.get("device", ())))
        same = known.to_numpy() & names.isin(list(seen.get("model", ()))).to_numpy()
        examples = ", ".join(names[~has_graph].unique()[:3])
        absent = f"no operator graph of that model at that img_size (such as {examples})"
        return {
            absent: ~has_graph,
            "batch_size or step_time_ms is missing or not positive": has_graph & ~timed,
            "this model on this device is in the training set": has_graph & timed & same,
        }


def network_measurements(
    bench: pd.DataFrame, graphs: pd.DataFrame, catalog: DeviceCatalog
) -> tuple[Measurements, Positions]:
    """Rows of the table `bench` as measured networks; rows without a graph or a time are skipped.

    Args:
        bench: table of step times.
        graphs: table of operator graphs.
        catalog: spec sheets of devices.

    Returns:
        n rows with `latency_ms` and the groups `device`, `model`, `family` and `part` (runtime, and
        phase, precision or layout if unusual), and their indices in `bench`, shape (n,).
    """
    bench = bench.assign(**{k: v for k, v in OPTIONAL.items() if k not in bench})
    wanted = graphs["model"].isin(set(bench["model"].astype(str)))
    known = timm_graphs(graphs[wanted])
    devices = {name: catalog.get(str(name)) for name in bench["device"].unique()}
    pairs = zip(bench["model"].astype(str), bench["img_size"].astype(int), strict=True)
    traced = np.array([pair in known for pair in pairs], dtype=np.bool_)
    kept = np.flatnonzero(traced & (bench["batch_size"] > 0) & (bench["step_time_ms"] > 0))
    rows = bench.iloc[kept]
    queries = [
        _query(row, known[str(row["model"]), int(row["img_size"])], devices[row["device"]])
        for row in rows.to_dict("records")
    ]
    groups = {
        "model": rows["model"],
        "family": map(family_of, rows["model"]),
        "part": map(part, queries),
    }
    return Measurements.of(queries, {"latency_ms": rows["step_time_ms"]}, groups), kept


def _graphs(bundle: Bundle) -> pd.DataFrame:
    remedy = "It is traced from timm, after `scripts/install zoo`."
    return joined_table(bundle, "graphs", "timm_bench", remedy)


def part(query: Query) -> str:
    """`eager` or `compiled` for amp inference in nchw on a GPU; any deviation is appended."""
    network, software = query.network, query.software
    words: list[str] = [software.runtime]
    if network.phase == "training":
        words.append("training")
    if query.device.kind == "cpu":
        words.append("cpu")
    elif network.precision != "amp":
        words.append(network.precision)
    if software.layout != "nchw":
        words.append(software.layout)
    return "_".join(words)


def _query(values: Mapping[Any, Any], graph: OperatorGraph, device: Device) -> Query:
    software = Software(
        version=str(values["torch"]) or None,
        runtime="compiled" if values["compiled"] else "eager",
        layout=values["layout"],
        cuda=(values["cuda"] or None) if isinstance(values["cuda"], str) else None,
    )
    batch = round(float(values["batch_size"]))
    # The default optimizer of timm's benchmark script is SGD with momentum.
    setup = TrainingSetup("momentum") if values["phase"] == "training" else None
    network = Network(graph, batch, values["precision"], values["phase"], setup)
    return Query(network, device, software)
