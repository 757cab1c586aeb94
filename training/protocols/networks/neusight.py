"""NeuSight's protocol: trained on operators of five GPUs, evaluated on other GPUs and networks."""

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from forerun.data.bundle import Bundle
from forerun.data.columns import Mask
from forerun.data.datasets.networks.neusight import NeuSight
from forerun.data.device import DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.quality import row_weights
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network, TrainingSetup
from forerun.features.tables.neusight import neusight_graphs, neusight_kernels
from forerun.training.protocols.joined_tables import joined_table
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Seen, Task, Tasks

GraphKey = tuple[str, str, int, int, str]
SIZES = ("batch", "m", "n", "k", "h")
KEY = ("model", "mode", "seqlen", "batch", "option")
PUBLISHED = ("neusight", "roofline", "habitat", "lietal")


class NeuSightProtocols(DatasetProtocols):
    """Latency of single operators by class, and of networks as the sum of their operators."""

    dataset = "neusight"
    held_out_by: ClassVar = {"unseen_device": ("device",), "leave_one_gpu_out": ("device",)}
    reads: ClassVar = {
        "ops": ("device", "op_class", "op", "software", *SIZES, "latency_ms"),
        "e2e": ("device_key", "model", "mode", "seqlen", "batch", "option", "e2e_latency_ms"),
    }
    joined = ("opgraphs",)

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All operators of all devices; end-to-end rows are never training rows."""
        return _operator_rows(bundle.table("ops"), bundle, catalog)

    def folds(self, bundle: Bundle, catalog: DeviceCatalog) -> Iterator[Fold]:
        """The published and the leave-one-GPU-out splits of the operator table.

        End-to-end rows are never training rows; they are evaluated with the published split. Rows
        that use several GPUs at once (options dp4, tp4, pp4) are not evaluated.
        """
        ops = bundle.table("ops")
        for split in NeuSight().checked_splits(bundle):
            if split.table != "ops" or not split.train.any():
                continue
            train = _operator_rows(ops[split.train], bundle, catalog)
            protocol = split.protocol.partition("/")[0]
            held_out = operator_measurements(ops[split.held_out], catalog)
            tasks = list(_operator_tasks(ops[split.held_out], catalog, protocol))
            if protocol == "unseen_device":
                tasks += _network_tasks(bundle, catalog, set(train.groups["device"]))
            if protocol == "leave_one_gpu_out":
                left_out = catalog.get(split.protocol.partition("/")[2]).name
                tasks += _left_out_networks(bundle, catalog, left_out)
            yield Fold(protocol, train, tasks, held_out)

    def evaluation_tasks(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Tasks:
        """Operators of unseen devices, and all end-to-end rows, which are never training rows."""
        if bundle.has("ops"):
            ops = bundle.table("ops")
            unseen = ops[~_are_seen(ops, catalog, seen)]
            yield from _operator_tasks(unseen, catalog, "unseen_device")
        if bundle.has("e2e"):
            yield from _network_tasks(bundle, catalog, set(seen.get("device", ())))

    def reasons(self, bundle: Bundle, catalog: DeviceCatalog, seen: Seen) -> Mapping[str, Mask]:
        """Operators of devices in the training set, and networks without a graph."""
        reasons = {}
        if bundle.has("ops"):
            same = _are_seen(bundle.table("ops"), catalog, seen)
            reasons["ops: this device is in the training set"] = same
        if bundle.has("e2e"):
            rows = _with_option(bundle.table("e2e"))
            known = _with_option(joined_table(bundle, "opgraphs", "neusight"))
            graphs = {_key(row) for row in known.drop_duplicates(list(KEY)).to_dict("records")}
            found = [_key(row) in graphs for row in rows.to_dict("records")]
            absent = "e2e: no operator graph of that model, mode, seqlen, batch and option"
            reasons[absent] = ~np.array(found, dtype=np.bool_)
        return reasons


def _operator_rows(ops: pd.DataFrame, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
    """Training rows with weights from the ingestion checks (lower for throttled groups)."""
    ops = ops.reset_index(drop=True)
    flags = NeuSight().flags_of(ops, bundle.table("devices"))
    weights = row_weights(flags, len(ops))
    return replace(operator_measurements(ops, catalog), weights=weights)


def operator_measurements(ops: pd.DataFrame, catalog: DeviceCatalog) -> Measurements:
    """Rows of the table `ops` as measured operators, with the groups `device` and `op_class`."""
    devices = {name: catalog.get(str(name)) for name in ops["device"].unique()}
    software = {name: _software(str(name)) for name in ops["software"].unique()}
    queries = [
        Query(Kernel(operator, "fp32"), devices[device], software[version])
        for operator, device, version in zip(
            neusight_kernels(ops), ops["device"], ops["software"], strict=True
        )
    ]
    return Measurements.of(
        queries, {"latency_ms": ops["latency_ms"]}, {"op_class": ops["op_class"]}
    )


def _operator_tasks(ops: pd.DataFrame, catalog: DeviceCatalog, protocol: str) -> Tasks:
    for (device, op_class), rows in ops.groupby(["device", "op_class"], observed=True):
        held_out = operator_measurements(rows, catalog)
        name = f"{protocol}/{op_class}"
        yield Task(name, "latency_ms", held_out, device=catalog.get(str(device)).name)


def _network_tasks(
    bundle: Bundle, catalog: DeviceCatalog, trained_names: Container[str]
) -> list[Task]:
    rows = _with_option(bundle.table("e2e"))
    graphs = neusight_graphs(joined_table(bundle, "opgraphs", "neusight"))
    rows = rows[[_key(row) in graphs for row in rows.to_dict("records")]]
    plain = rows[rows["option"] == ""]
    parts = {
        "e2e": plain[~plain["device_key"].str.startswith("AMD")],
        "e2e_amd": plain[plain["device_key"].str.startswith("AMD")],
        "e2e_fused": rows[rows["option"] == "fusion"],
    }
    tasks = [
        _network_task(f"published/{name}", part, graphs, catalog)
        for name, part in parts.items()
        if len(part)
    ]
    for device, part in plain.groupby("device_key"):
        name = catalog.get(str(device)).name
        protocol = "seen_device" if name in trained_names else "unseen_device"
        tasks.append(_network_task(f"{protocol}/e2e", part, graphs, catalog, name))
    return tasks


def _left_out_networks(bundle: Bundle, catalog: DeviceCatalog, left_out: str) -> list[Task]:
    """End-to-end rows of the held-out GPU."""
    if not (bundle.has("e2e") and bundle.has("opgraphs")):
        return []
    tasks = _network_tasks(bundle, catalog, ())
    return [
        replace(task, name="leave_one_gpu_out/e2e") for task in tasks if task.device == left_out
    ]


def _network_task(
    name: str,
    rows: pd.DataFrame,
    graphs: Mapping[GraphKey, OperatorGraph],
    catalog: DeviceCatalog,
    device: str | None = None,
) -> Task:
    queries = []
    for row in rows.to_dict("records"):
        # The benchmark times a forward and a backward pass.
        setup = TrainingSetup("none") if row["mode"] == "training" else None
        network = Network(graphs[_key(row)], int(row["batch"]), "fp32", row["mode"], setup)
        queries.append(Query(network, catalog.get(str(row["device_key"]))))
    columns = {s: f"pub_{s}_e2e_ms" for s in PUBLISHED if f"pub_{s}_e2e_ms" in rows}
    published = {f"published_{s}": rows[c].to_numpy(dtype=np.float64) for s, c in columns.items()}
    values = {"latency_ms": rows["e2e_latency_ms"]}
    measured = Measurements.of(queries, values, {"model": rows["model"]})
    return Task(name, "latency_ms", measured, device=device, baselines=published)


def _with_option(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(option=rows["option"].astype("object").fillna("").astype(str))


def _key(row: Mapping[Any, Any]) -> GraphKey:
    return (row["model"], row["mode"], int(row["seqlen"]), int(row["batch"]), row["option"])


def _are_seen(ops: pd.DataFrame, catalog: DeviceCatalog, seen: Seen) -> Mask:
    """Which operators were measured on a device of the training set."""
    names = {name: catalog.get(str(name)).name for name in ops["device"].unique()}
    devices = ops["device"].map(names).astype(str)
    return devices.isin(list(seen.get("device", ()))).to_numpy(dtype=np.bool_)


def _software(text: str) -> Software:
    """`torch2.1.0+cu121` -> framework, version, CUDA or ROCm."""
    version, _, cuda = text.removeprefix("torch").partition("+")
    return Software(version=version or None, cuda=cuda or None)
