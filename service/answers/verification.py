"""Compare predictions with measurements on this machine, before and after adapting to them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from forerun.data.collectors.latency.cpu import CpuCollector, CpuRun
from forerun.data.collectors.runner.trial import Row, Source, Trial
from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownDevice
from forerun.data.graph import OperatorGraph, Shape
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.readers import read_graph
from forerun.features.readers.input_sizes import InputSizes
from forerun.features.readers.onnx import graph_inputs
from forerun.features.readers.onnx_graph.file import parse
from forerun.features.readers.onnx_graph.shapes import Binding
from forerun.models.prediction import Estimate
from forerun.models.predictor import Predictor
from forerun.service.adaptation.held_out import key_of
from forerun.service.adaptation.measurement_files import measured_row
from forerun.service.schemas.measured_rows import MeasuredRow, as_measurements, queries_of
from forerun.service.schemas.prediction import NetworkIn
from forerun.service.stores.device_sheets import this_cpu
from forerun.service.stores.devices import DeviceStore


@dataclass(frozen=True, slots=True)
class Run:
    """One measured run.

    Attributes:
        row: the measurement, its graph in place.
        disturbed: whether other processes were busy meanwhile; None where that is not known.
    """

    row: MeasuredRow
    disturbed: bool | None = None


def local_cpu(name: str, devices: DeviceStore) -> Device:
    """This machine's processor: the device of that name, else a detected sheet.

    The detected sheet is not registered. Where the system does not tell enough for a sheet, the
    device has a name alone.

    Raises:
        InputError: the device of that name is no processor.
    """
    try:
        device = devices.get(name)
    except UnknownDevice:
        return this_cpu(name)
    if device.kind != "cpu":
        raise InputError(f"{name} is a {device.kind}; this measures the processor, as my-cpu.")
    return device


def measured_runs(
    file: Path,
    batch_sizes: Sequence[int],
    how: CpuRun,
    device: str,
    sequence_length: int | None = None,
) -> list[Run]:
    """Run an ONNX file through onnxruntime on this machine, each batch size in its own process.

    Args:
        file: ONNX file.
        batch_sizes: bound to its free batch dimensions; a file that fixes its batch runs at that.
        how: threads and windows.
        device: name of this machine.
        sequence_length: bound to free sequence dimensions.

    Raises:
        UnreadableModel: the file is not a readable model.
        InputError: the file cannot be run here; the message says why.
    """
    collector = CpuCollector(device, (), how)
    why = collector.available()
    if why is not None:
        raise InputError(f"Cannot measure here: {why}.")
    runs: dict[int, Run] = {}
    graphs = {
        size: read_graph(file, batch_size=size, sequence_length=sequence_length)
        for size in batch_sizes
    }
    is_free = _is_free(file, sequence_length)
    for size, graph in graphs.items():
        used = size if is_free else graph.batch_size
        if used not in runs:
            shapes = input_shapes(file, size, sequence_length)
            runs[used] = _measured(collector, file, graph, used, shapes)
    return list(runs.values())


def input_shapes(file: Path, batch_size: int, sequence_length: int | None) -> dict[str, Shape]:
    """The inputs of an ONNX file with the shapes that its operator graph has.

    Raises:
        UnreadableModel: the file is not a readable model.
    """
    model = parse(file, file.name)
    sizes, inputs = InputSizes(batch_size, sequence_length), graph_inputs(model.graph, file.name)
    return dict(Binding(sizes, batch_size, inputs, file.name).shapes)


def checked(
    rows: Sequence[MeasuredRow],
    device: Device,
    base: Predictor,
    earlier: Measurements | None = None,
) -> list[tuple[int, str, float, Estimate | None, Estimate | None]]:
    """Every measured metric of some runs: samples, name, value, prediction, and prediction by a
    predictor that was adapted to all measurements of the device except this run.

    A prediction is None where it is not known; the second where no others suffice, too.

    Args:
        rows: measured runs of networks, their graphs in place.
        device: the machine that they were measured on.
        base: the predictor without any measurement of the device.
        earlier: earlier measurements of the device; None where there are none.
    """
    queries = queries_of(rows, device, _no_graph)
    measured = as_measurements(rows, queries)
    total = measured if earlier is None else measured + earlier
    keys = [key_of(query) for query in total.queries]
    is_named_alone = device.kind == "cpu" and not device.has_sheet
    described = this_cpu(device.name) if is_named_alone else device
    results = []
    for row, query in zip(rows, queries, strict=True):
        before = _estimates(base, replace(query, device=described))
        kept = np.array([key != key_of(query) for key in keys])
        after = _adapted(base, total.take(kept), query) if kept.any() else {}
        size = query.network.batch_size
        for name, value in row.measured().items():
            results.append((size, name, value, before.get(name), after.get(name)))
    return results


def _is_free(file: Path, sequence_length: int | None) -> bool:
    """Whether the batch of a file is a free dimension."""
    one, two = (input_shapes(file, size, sequence_length) for size in (1, 2))
    return one != two


def _measured(
    collector: CpuCollector,
    file: Path,
    graph: OperatorGraph,
    batch_size: int,
    shapes: dict[str, Shape],
) -> Run:
    source = Source(file.stem, str(file.resolve()), graph.digest, shapes=shapes)
    trial = Trial(source, batch_size=batch_size, framework="onnxruntime", runtime="onnxruntime")
    cells: Row = {**trial.columns(), **collector.about(), **collector.measure(trial)}
    if cells.get("status") != "ok":
        why = cells.get("reason") or cells.get("status")
        raise InputError(f"{file.name} cannot be run here at batch size {batch_size}: {why}.")
    row = measured_row({k: v for k, v in cells.items() if v is not None}, file.name)
    assert isinstance(row.workload, NetworkIn)
    workload = row.workload.model_copy(update={"graph": graph.to_json()})
    return Run(row.model_copy(update={"workload": workload}), cells.get("disturbed"))


def _estimates(predictor: Predictor, query: Query) -> dict[str, Estimate]:
    """Metric -> estimate; empty where the predictor does not answer."""
    try:
        with np.errstate(all="ignore"):
            if not predictor.answers(query):
                return {}
            return dict(predictor.predict([query])[0].estimates)
    except InputError:
        return {}


def _adapted(base: Predictor, others: Measurements, query: Query) -> dict[str, Estimate]:
    try:
        adapted = base.adapt(others)
    except InputError:
        return {}
    return _estimates(adapted, query)


def _no_graph(digest: str) -> Any:
    raise InputError(f"The graph {digest} is not in place.")
