"""Workloads as they come over HTTP, with the graphs that they name looked up."""

from collections.abc import Callable

from forerun.data.device import Device
from forerun.data.graph import FORMAT, OperatorGraph
from forerun.data.query import Operation
from forerun.data.software import Runtime, Software
from forerun.data.workload import Kernel, Network
from forerun.features.readers.operator_json import graph_of
from forerun.service.schemas.prediction import KernelIn, NetworkIn, OperatorIn
from forerun.service.schemas.training_options import (
    inference_of,
    inference_out,
    training_of,
    training_out,
)


def workload_of(
    given: KernelIn | NetworkIn,
    graph_named: Callable[[str], OperatorGraph],
    where: str = "workload",
) -> Kernel | Network:
    """The workload, every field of its graph checked.

    Args:
        given: by digest, or with the graph in place.
        graph_named: digest -> graph.
        where: named in messages.

    Raises:
        UnknownGraph: there is no graph of that digest.
        UnreadableModel: the graph or operator in place cannot be.
        BadTrainingSetup: it says how a network is trained that is not, or contradicts itself.
    """
    if isinstance(given, KernelIn):
        content = {"format": FORMAT, "operators": [given.operator.to_json()]}
        graph = graph_of(content, f"{where}.operator")
        return Kernel(graph.operators[0], given.precision)
    training = training_of(given.phase, given.batch_size, given.training)
    inference = inference_of(given.phase, given.inference)
    if isinstance(given.graph, str):
        graph = graph_named(given.graph)
    else:
        graph = graph_of(given.graph, f"{where}.graph")
    return Network(graph, given.batch_size, given.precision, given.phase, training, inference)


def workload_in(workload: Kernel | Network) -> KernelIn | NetworkIn:
    """The workload as `workload_of` takes it, a network's graph by its digest."""
    if isinstance(workload, Network):
        return NetworkIn(
            kind="network",
            graph=workload.graph.digest,
            batch_size=workload.batch_size,
            precision=workload.precision,
            phase=workload.phase,
            training=training_out(workload),
            inference=inference_out(workload),
        )
    (row,) = OperatorGraph((workload.operator,)).to_json()["operators"]
    fields = {name: row[name] for name in OperatorIn.model_fields if name in row}
    operator = OperatorIn.model_validate(fields)
    return KernelIn(kind="kernel", operator=operator, precision=workload.precision)


def operation_of(workload: Kernel | Network, power_limit_w: float | None = None) -> Operation:
    """How devices are operated: as many of them as the workload's set-up says."""
    setup = workload.training if isinstance(workload, Network) else None
    count = 1
    if setup is not None:
        count = setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
    return Operation(count, power_limit_w)


def usual_runtime(graph: OperatorGraph, device: Device) -> Runtime:
    """The runtime where none is given: onnxruntime for ONNX graphs on processors, else eager."""
    return "onnxruntime" if graph.source == "onnx" and device.kind == "cpu" else "eager"


def usual_software(software: Software, workload: Kernel | Network, device: Device) -> Software:
    """The software with the usual runtime of a network where its runtime was left out."""
    if "runtime" in software.model_fields_set or not isinstance(workload, Network):
        return software
    return software.model_copy(update={"runtime": usual_runtime(workload.graph, device)})
