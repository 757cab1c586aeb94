"""Convert between workloads of requests and workloads of queries."""

from collections.abc import Callable
from dataclasses import asdict
from typing import assert_never

from forerun.data.device import Device
from forerun.data.errors import BadDesign, BadRequest, UnreadableModel, in_field
from forerun.data.graph import FORMAT, OperatorGraph
from forerun.data.named import search_spaces
from forerun.data.named.networks import program_named, program_names
from forerun.data.named.synthesis import TOOLS
from forerun.data.program import ProgramGraph
from forerun.data.query import Operation
from forerun.data.software import Runtime, Software
from forerun.data.workload import (
    Benchmark,
    Design,
    Diffusion,
    Kernel,
    LlmServing,
    Network,
    Workload,
    operator_graph,
)
from forerun.features.hls.directives import check_directives
from forerun.features.readers.operator_json import graph_of
from forerun.service.schemas import workload_kinds as kinds
from forerun.service.schemas.degrees import check_training_degrees
from forerun.service.schemas.prediction import KernelIn, NetworkIn, OperatorIn, WorkloadIn
from forerun.service.schemas.run_options import BadTrainingSetup, inference_of, training_of


def any_workload_of(given: WorkloadIn, graph_named: Callable[[str], OperatorGraph]) -> Workload:
    """The workload of a request of any kind, with its graph resolved and validated.

    Raises:
        InputError: as in `workload_of`, or an architecture or design is not valid.
    """
    match given:
        case KernelIn() | NetworkIn():
            return workload_of(given, graph_named)
        case kinds.Nb201In():
            with in_field("cell"):
                cell = given.cell
                names = search_spaces.nb201_operations(cell) if isinstance(cell, str) else cell
                return search_spaces.nb201(names)
        case kinds.FbnetIn():
            return search_spaces.fbnet(given.blocks)
        case kinds.OfaIn():
            return search_spaces.ofa(
                given.kernel_sizes, given.expansions, given.depths, given.image_size
            )
        case kinds.DesignIn():
            return _design(given)
        case kinds.BenchmarkIn():
            return Benchmark(given.suite, tuple(sorted(given.settings.items())))
        case kinds.LlmServingIn() | kinds.DiffusionWorkloadIn():
            return given.workload()
        case kinds.LlmDeploymentIn():
            raise BadRequest("a deployment depends on the device; ask about it with one")
        case _:
            assert_never(given)


def _design(given: kinds.DesignIn) -> Design:
    if isinstance(given.program, kinds.ProgramGraphIn):
        program = ProgramGraph(
            **{name: tuple(column) for name, column in given.program.model_dump().items()}
        )
    else:
        known = program_named(given.program)
        if known is None:
            names = ", ".join(program_names())
            with in_field("program"):
                raise BadDesign(f"No program named {given.program!r:.80}; there are {names}.")
        program = known
    directives = {slot: str(value) for slot, value in given.directives.items()}
    with in_field("directives"):
        check_directives(program, directives)
    return Design(program, tuple(sorted(directives.items())))


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
        BadRequest: heads or layers of the graph cannot be divided over devices as they say.
    """
    match given:
        case KernelIn():
            content = {"format": FORMAT, "operators": [given.operator.to_json()]}
            try:
                graph = graph_of(content, f"{where}.operator")
            except UnreadableModel as error:
                error.field = ("operator",)  # the graph around it is not of the request
                raise
            return Kernel(graph.operators[0], given.precision)
        case NetworkIn():
            with in_field("graph"):
                if isinstance(given.graph, str):
                    graph = graph_named(given.graph)
                else:
                    graph = graph_of(given.graph, f"{where}.graph")
            batch_size = given.batch_size or graph.batch_size
            with in_field("training"):
                training = training_of(given.phase, batch_size, given.training)
                if training is not None:
                    check_training_degrees(graph, training)
            with in_field("inference"):
                inference = inference_of(given.phase, given.inference)
            return Network(graph, batch_size, given.precision, given.phase, training, inference)
        case _:
            assert_never(given)


def workload_in(workload: Kernel | Network) -> KernelIn | NetworkIn:
    """The workload as a schema, the inverse of `workload_of`; a graph is given by its digest."""
    match workload:
        case Network():
            own = {name: getattr(workload, name) for name in ("training", "inference")}
            options = {name: None if how is None else asdict(how) for name, how in own.items()}
            return NetworkIn.filled(workload, graph=workload.graph.digest, **options)
        case Kernel():
            (row,) = operator_graph(workload).to_json()["operators"]
            fields = {name: row[name] for name in OperatorIn.model_fields if name in row}
            operator = OperatorIn.model_validate(fields)
            return KernelIn(kind="kernel", operator=operator, precision=workload.precision)
        case _:
            assert_never(workload)


def operation_of(
    workload: Workload, power_limit_w: float | None = None, device_count: int | None = None
) -> Operation:
    """The operation of the devices; for a network their number follows from the training set-up.

    Args:
        workload: the workload.
        power_limit_w: power limit of each device, W; None for the device's own.
        device_count: number of devices of a benchmark or a served model; None for 1.

    Raises:
        BadTrainingSetup: a number is given for another kind of workload, or is less than a degree
            of parallelism.
    """
    match workload:
        case Network(training=setup) if setup is not None:
            count = setup.data_parallel * setup.tensor_parallel * setup.pipeline_parallel
        case _:
            count = 1
    if device_count is None:
        device_count = count
    elif not isinstance(workload, Benchmark | LlmServing | Diffusion) and device_count != count:
        with in_field("operation", "device_count"):
            raise BadTrainingSetup(
                f"operation.device_count is {device_count}, but a workload of kind {workload.kind} "
                f"runs on {count}: leave it out; networks take their devices from "
                "workload.training."
            )
    if isinstance(workload, LlmServing):
        for name in ("tensor_parallel", "expert_parallel", "data_parallel"):
            if getattr(workload, name) > device_count:
                with in_field("workload", name):
                    raise BadTrainingSetup(
                        f"workload.{name} cannot be more than operation.device_count, "
                        f"{device_count}."
                    )
    return Operation(device_count, power_limit_w)


def usual_runtime(network: Network, device: Device) -> Runtime:
    """The default runtime: onnxruntime for inference on processors, else eager.

    It does not depend on the format that the network was read from.
    """
    inference = network.phase == "inference"
    return "onnxruntime" if inference and device.kind == "cpu" else "eager"


def usual_software(software: Software, workload: Workload, device: Device) -> Software:
    """The software, with the default where none is given: a runtime, or a tool for synthesis."""
    match workload:
        case Network() if "runtime" not in software.model_fields_set:
            return software.model_copy(update={"runtime": usual_runtime(workload, device)})
        case Design():
            return _tool(software)
        case _:
            return software


def _tool(software: Software) -> Software:
    """The first tool with the given name and version, which may be absent.

    Raises:
        BadDesign: no design was synthesised by such a tool.
    """
    given = software.model_fields_set & {"framework", "version"}
    for tool in TOOLS.values():
        if all(getattr(tool, name) == getattr(software, name) for name in given):
            return tool
    known = ", ".join(f"{tool.framework} {tool.version}" for tool in TOOLS.values())
    asked = f"{software.framework} {software.version or ''}".strip()
    with in_field("software"):
        raise BadDesign(f"software: no design by {asked!r:.80} was measured; tools are {known}.")
