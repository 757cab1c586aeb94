"""Convert between workloads of requests and workloads of queries."""

from collections.abc import Callable
from typing import assert_never

from forerun.data.device import Device
from forerun.data.graph import FORMAT, OperatorGraph
from forerun.data.query import Operation
from forerun.data.software import Runtime, Software
from forerun.data.workload import Kernel, Network, operator_graph
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
    """The workload of a request, with its graph resolved and validated.

    Args:
        given: the workload of the request, with a graph's digest or the graph itself.
        graph_named: digest -> graph.
        where: path of the field in messages.

    Raises:
        UnknownGraph: there is no graph of that digest.
        UnreadableModel: the given graph or operator is not valid.
        BadTrainingSetup: the options do not fit the phase, or contradict each other.
    """
    match given:
        case KernelIn():
            content = {"format": FORMAT, "operators": [given.operator.to_json()]}
            graph = graph_of(content, f"{where}.operator")
            return Kernel(graph.operators[0], given.precision)
        case NetworkIn():
            training = training_of(given.phase, given.batch_size, given.training)
            inference = inference_of(given.phase, given.inference)
            if isinstance(given.graph, str):
                graph = graph_named(given.graph)
            else:
                graph = graph_of(given.graph, f"{where}.graph")
            return Network(
                graph, given.batch_size, given.precision, given.phase, training, inference
            )
        case _:
            assert_never(given)


def workload_in(workload: Kernel | Network) -> KernelIn | NetworkIn:
    """The workload as a schema, the inverse of `workload_of`; a graph is given by its digest."""
    match workload:
        case Network():
            return NetworkIn(
                kind="network",
                graph=workload.graph.digest,
                batch_size=workload.batch_size,
                precision=workload.precision,
                phase=workload.phase,
                training=training_out(workload),
                inference=inference_out(workload),
            )
        case Kernel():
            (row,) = operator_graph(workload).to_json()["operators"]
            fields = {name: row[name] for name in OperatorIn.model_fields if name in row}
            operator = OperatorIn.model_validate(fields)
            return KernelIn(kind="kernel", operator=operator, precision=workload.precision)
        case _:
            assert_never(workload)


def operation_of(workload: Kernel | Network, power_limit_w: float | None = None) -> Operation:
    """The operation of the devices; their number follows from the training set-up."""
    count = 1
    match workload:
        case Kernel():
            pass
        case Network():
            setup = workload.training
            if setup is not None:
                count = setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
        case _:
            assert_never(workload)
    return Operation(count, power_limit_w)


def usual_runtime(graph: OperatorGraph, device: Device) -> Runtime:
    """The default runtime: onnxruntime for ONNX graphs on processors, else eager."""
    return "onnxruntime" if graph.source == "onnx" and device.kind == "cpu" else "eager"


def usual_software(software: Software, workload: Kernel | Network, device: Device) -> Software:
    """The software, with the default runtime for networks where none is given."""
    if "runtime" in software.model_fields_set or not isinstance(workload, Network):
        return software
    return software.model_copy(update={"runtime": usual_runtime(workload.graph, device)})
