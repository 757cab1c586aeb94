"""Requests as questions: names are resolved, and what is left out takes its usual value."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from forerun.data.device import Device, listed_names
from forerun.data.errors import (
    BadBenchmark,
    BadDesign,
    BadRequest,
    UnknownDevice,
    UnknownMetric,
    in_field,
)
from forerun.data.graph import OperatorGraph
from forerun.data.language_models.deployment import LlmDeployment
from forerun.data.named.synthesis import VCU1525, VU13P
from forerun.data.query import Operation, Query
from forerun.data.workload import Architecture, Benchmark, Design, Diffusion, LlmServing, Workload
from forerun.models.answers.deployments.metrics import METRICS as OF_DEPLOYMENTS
from forerun.models.answers.interval_level import check_level
from forerun.models.answers.served_models import OF_SERVING
from forerun.models.hls_designs.features import METRICS as OF_DESIGNS
from forerun.models.known_suites import KnownSuite
from forerun.models.limit import Limit
from forerun.models.predictor import Predictor
from forerun.service.answers.benchmarks import (
    checked_settings,
    completed,
    devices_of_space,
    listed,
    suite_of,
)
from forerun.service.answers.llm.question import deployment_question
from forerun.service.answers.question import RUN_METRICS, Question, question_about
from forerun.service.schemas.prediction import PredictIn
from forerun.service.schemas.workload_kinds import LlmDeploymentIn
from forerun.service.schemas.workloads import any_workload_of, operation_of, usual_software

DeviceNamed = Callable[[str], Device]
FROM_SETTINGS: Final = Limit(
    "the processor is that of the settings; nothing else of the device enters", severity="note"
)


def question_of(
    asked: PredictIn,
    device_named: DeviceNamed,
    graph_named: Callable[[str], OperatorGraph],
    predictor: Predictor,
) -> Question:
    """The question of a request about a workload of any kind.

    Args:
        asked: the request.
        device_named: name -> device; raises `UnknownDevice`.
        graph_named: digest or name -> graph; raises `UnknownGraph`.
        predictor: the predictor in use, which knows suites and measured devices.

    Raises:
        InputError: a name is not known, or the workload, its device, software or metrics do not
            belong together; the message says what would.
    """
    if isinstance(asked.workload, LlmDeploymentIn):
        return _about_deployment(asked, asked.workload, device_named)
    with in_field("workload"):
        workload = any_workload_of(asked.workload, graph_named)
    operation = operation_of(workload, asked.operation.power_limit_w, asked.operation.device_count)
    if isinstance(workload, Benchmark):
        return _about_benchmark(asked, workload, operation, device_named, predictor)
    with in_field("device"):
        device = _device(asked.device, workload, device_named, predictor)
    software = usual_software(asked.software, workload, device)
    query = Query(workload, device, software, operation, asked.level)
    check_level(query)
    metrics = _metrics(asked, metrics_of(workload))
    return question_about(query, metrics, explain=asked.explain)


def metrics_of(workload: Workload) -> tuple[str, ...]:
    """Names of the metrics that a workload can have; those of a benchmark depend on its suite."""
    match workload:
        case Architecture():
            return ("latency_ms",)
        case Design():
            return OF_DESIGNS
        case LlmServing() | Diffusion():
            return OF_SERVING[workload.kind]
        case LlmDeployment():
            return OF_DEPLOYMENTS
        case _:
            return RUN_METRICS


def _about_deployment(
    asked: PredictIn, given: LlmDeploymentIn, device_named: DeviceNamed
) -> Question:
    with in_field("device"):
        device = asked.device if isinstance(asked.device, Device) else device_named(asked.device)
    with in_field("workload"):
        with given.as_written(), in_field("model"):
            model = given.model.language_model(given.engine.name)
        assert model is not None
        own = deployment_question(given, model, device, asked.operation.device_count)
        own = replace(own, chosen=(*own.chosen, *given.model.chosen(given.engine.name)))
    if asked.operation.power_limit_w is not None:
        with in_field("operation", "power_limit_w"):
            raise BadRequest("power_limit_w: deployments do not support a power limit.")
    metrics = _metrics(asked, OF_DEPLOYMENTS)
    notes = tuple(Limit(f"chosen: {sentence}", severity="note") for sentence in own.chosen)
    usd = given.usd_per_device_hour
    query = replace(own.query, level=asked.level)
    return Question(query, metrics, None, (query, metrics, notes, usd), notes, usd)


def _about_benchmark(
    asked: PredictIn,
    workload: Benchmark,
    operation: Operation,
    device_named: DeviceNamed,
    predictor: Predictor,
) -> Question:
    with in_field("workload"):
        answered = suite_of(workload, predictor)
        suite = answered.suite
        workload = checked_settings(workload, suite)
    with in_field("device"):
        device = _device_of_suite(asked.device, suite, device_named)
    given = Query(workload, device, asked.software, operation, asked.level)
    check_level(given)
    query, notes = completed(given, answered)
    if suite.kinds == ("cpu",):
        notes = (*notes, FROM_SETTINGS)
    return question_about(query, _metrics(asked, suite.metrics), notes)


def _metrics(asked: PredictIn, known: Sequence[str]) -> tuple[str, ...]:
    """The requested metrics, or all that the workload can have."""
    for position, name in enumerate(asked.metrics or ()):
        if name not in known:
            with in_field("metrics", position):
                raise UnknownMetric(name, known, f"metrics of kind {asked.workload.kind}: ")
    return tuple(known if asked.metrics is None else asked.metrics)


def _device(
    given: str | Device, workload: Workload, device_named: DeviceNamed, predictor: Predictor
) -> Device:
    if isinstance(workload, Design):
        return _chip(given, VCU1525)
    if isinstance(given, Device):
        return given
    if isinstance(workload, Architecture):
        return _measured(given, devices_of_space(predictor, workload.space), device_named)
    return device_named(given)


def _chip(given: str | Device, chip: Device) -> Device:
    """The one chip that designs of a kind were synthesised for.

    Raises:
        BadDesign: the request names another.
    """
    name = given if isinstance(given, str) else given.name
    if name != chip.name:
        several = isinstance(given, str) and len(listed_names(given)) > 1
        what = "lists several devices in one name" if several else "was not measured"
        raise BadDesign(
            f"device: {name!r:.80} {what}; such designs were synthesised for {chip.name} alone"
            f"{', which is the one device to name' if several else ''}."
        )
    return chip


def _measured(name: str, measured: Sequence[str], device_named: DeviceNamed) -> Device:
    """A device with measured architectures, else one with a spec sheet.

    Raises:
        UnknownDevice: the name is neither; the message lists the measured devices.
    """
    slug = name.lower().replace("_", "-")
    if slug in measured:
        return Device(name=slug, vendor="unknown", kind="gpu", origin="training_set")
    try:
        return device_named(name)
    except UnknownDevice as unknown:
        if unknown.listed:
            raise
        error = UnknownDevice(name, measured)
        error.args = (f"{error} Architectures were measured on {', '.join(measured)}.",)
        raise error from None


def _device_of_suite(given: str | Device, suite: KnownSuite, device_named: DeviceNamed) -> Device:
    """The device of a test.

    Raises:
        BadBenchmark: the suite does not run on such a device, or its table covers no other device.
    """
    if suite.kinds == ("fpga",):
        return _chip(given, VU13P)
    if isinstance(given, Device):
        device = given
    elif given in suite.devices:
        kind = suite.devices[given]
        device = Device(name=given, vendor="unknown", kind=kind, origin="training_set")
    else:
        device = device_named(given)
    if device.kind not in suite.kinds:
        raise BadBenchmark(
            f"device: tests of {suite.name} ran on a {' or '.join(suite.kinds)}; {device.name} is "
            f"a {device.kind}."
        )
    if suite.alone and device.name not in suite.alone:
        raise BadBenchmark(
            f"device: {suite.name} was measured on {listed(suite.alone)}, too few devices with a "
            f"spec sheet to say what it takes on {device.name}: name one of them."
        )
    return device
