"""timm_bench: latency of vision networks on held-out devices, families and models."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.timm_bench import TimmBench, family
from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network, TrainingSetup
from forerun.features.tables.timm_bench import timm_graphs
from forerun.training.protocols.joined_tables import joined_table
from forerun.training.protocols.networks.few_models import PROTOCOL as FEW_MODELS
from forerun.training.protocols.networks.few_models import few_models_tasks
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, counted, split_rows

OPTIONAL: Final[Mapping[str, str]] = MappingProxyType(
    {"phase": "inference", "layout": "nchw", "torch": "", "cuda": ""}
)
"""Columns that your own table may leave out -> their defaults."""


class TimmBenchProtocols(DatasetProtocols):
    """Latency of whole networks, by runtime and precision."""

    dataset = "timm_bench"
    held_out_by = MappingProxyType(
        {
            "unseen_device": ("device",),
            "unseen_device_and_family": ("device", "family"),
            "unseen_family": ("family", "model"),
            "unseen_model": ("model",),
            FEW_MODELS: ("device",),
        }
    )
    reads = MappingProxyType(
        {
            "bench": (
                *("model", "device", "precision", "compiled", "img_size", "batch_size"),
                "step_time_ms",
            )
        }
    )
    optional = MappingProxyType({"bench": OPTIONAL})
    joined = ("graphs",)

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All rows with an operator graph."""
        return network_measurements(bundle.table("bench"), _graphs(bundle), catalog)[0]

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """One fold for each split; folds of a protocol are pooled by the names of their tasks."""
        measured, kept = network_measurements(bundle.table("bench"), _graphs(bundle), catalog)
        for protocol, train, held_out in split_rows(
            TimmBench().checked_splits(bundle), measured, kept
        ):
            yield Fold(protocol, train, list(_tasks(held_out, protocol)))
            few = list(few_models_tasks(held_out))
            if protocol == "unseen_device" and few:
                yield Fold(FEW_MODELS, train, few)

    def evaluation_tasks(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Iterator[Task]:
        """Rows by what is not in the training set: device, family, model, or several of these."""
        measured, _ = network_measurements(bundle.table("bench"), _graphs(bundle), catalog)
        new = {
            key: ~np.isin(measured.groups[key], list(seen.get(key, ())))
            for key in ("device", "family", "model")
        }
        parts = {
            "unseen_device": new["device"] & ~new["model"],
            "unseen_device_and_family": new["device"] & new["family"],
            "unseen_device_and_model": new["device"] & new["model"] & ~new["family"],
            "unseen_family": ~new["device"] & new["family"],
            "unseen_model": ~new["device"] & new["model"] & ~new["family"],
        }
        for protocol, rows in parts.items():
            if rows.any():
                yield from _tasks(measured.take(rows), protocol, by_device=True)
        if new["device"].any():
            yield from few_models_tasks(measured.take(new["device"]))

    def left_out(
        self, bundle: Bundle, catalog: DeviceCatalog, seen: Mapping[str, Sequence[str]]
    ) -> Mapping[str, int]:
        """Rows without a graph or a time, and models in the training set on the same device."""
        bench, graphs = bundle.table("bench"), _graphs(bundle)
        traced = set(zip(graphs["model"].astype(str), graphs["img_size"].astype(int), strict=True))
        names = bench["model"].astype(str)
        has_graph = np.array(
            [pair in traced for pair in zip(names, bench["img_size"], strict=True)], dtype=np.bool_
        )
        timed = ((bench["batch_size"] > 0) & (bench["step_time_ms"] > 0)).to_numpy(dtype=np.bool_)
        devices = {str(name): catalog.get(str(name)).name for name in bench["device"].unique()}
        known = bench["device"].astype(str).map(devices).isin(list(seen.get("device", ())))
        same = known.to_numpy() & names.isin(list(seen.get("model", ()))).to_numpy()
        examples = ", ".join(names[~has_graph].unique()[:3])
        return counted(
            {
                f"no operator graph of that model at that img_size (such as {examples})": (
                    ~has_graph
                ),
                "batch_size or step_time_ms is missing or not positive": has_graph & ~timed,
                "this model on this device is in the training set": has_graph & timed & same,
            }
        )


def network_measurements(
    bench: pd.DataFrame, graphs: pd.DataFrame, catalog: DeviceCatalog
) -> tuple[Measurements, NDArray[np.intp]]:
    """Rows of the table `bench` as measured networks; those without a graph or a time are left out.

    Args:
        bench: table of step times.
        graphs: table of operator graphs.
        catalog: spec sheets of devices.

    Returns:
        n rows with `latency_ms` and the groups `device`, `model`, `family` and `part` (runtime, and
        phase, precision or layout where it is not the usual one), and their indices in `bench`,
        shape (n,).
    """
    bench = bench.assign(**{k: v for k, v in OPTIONAL.items() if k not in bench})
    mine = graphs["model"].isin(set(bench["model"].astype(str)))
    known = timm_graphs(graphs[mine])
    devices = {name: catalog.get(str(name)) for name in bench["device"].unique()}
    queries: list[Query] = []
    kept: list[int] = []
    for position, row in enumerate(bench.to_dict("records")):
        graph = known.get((str(row["model"]), int(row["img_size"])))
        if graph is not None and row["batch_size"] > 0 and row["step_time_ms"] > 0:
            queries.append(_query(row, graph, devices[row["device"]]))
            kept.append(position)
    rows = bench.iloc[kept]
    return Measurements(
        queries=queries,
        values={"latency_ms": rows["step_time_ms"].to_numpy(dtype=np.float64)},
        groups={
            "device": np.array([q.device.name for q in queries], dtype=np.str_),
            "model": rows["model"].to_numpy(dtype=np.str_),
            "family": np.array([family(m) for m in rows["model"]], dtype=np.str_),
            "part": np.array([part(q) for q in queries], dtype=np.str_),
        },
    ), np.array(kept, dtype=np.intp)


def _graphs(bundle: Bundle) -> pd.DataFrame:
    remedy = "It is traced from timm, after `scripts/install zoo`."
    return joined_table(bundle, "graphs", "timm_bench", remedy)


def part(query: Query) -> str:
    """`eager` or `compiled` for amp inference in nchw on a GPU; what deviates is appended."""
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


def _tasks(rows: Measurements, protocol: str, by_device: bool = False) -> Iterator[Task]:
    for name in np.unique(rows.groups["part"]):
        mine = rows.take(rows.groups["part"] == name)
        if not by_device:
            yield Task(f"{protocol}/{name}", "latency_ms", mine, offset_by="part")
            continue
        for device in np.unique(mine.groups["device"]):
            on_device = mine.take(mine.groups["device"] == device)
            yield Task(f"{protocol}/{name}", "latency_ms", on_device, str(device), offset_by="part")
