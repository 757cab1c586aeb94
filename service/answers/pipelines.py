"""Answers about pipelines: what stages and links carry, where they saturate, and alternatives."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.errors import BadRequest, InputError, UnanswerableQuery, in_field
from forerun.data.graph import OperatorGraph
from forerun.data.list_prices import list_price
from forerun.data.query import Query
from forerun.models.answers.served_models import InUse
from forerun.models.limit import LATENCY, PEAK_MEMORY, Limit
from forerun.models.pipelines import CLOSE, Flow, Station, flow_of, slowest_path_s, waits_at
from forerun.service.answers.answer import answer_of, predictor_out
from forerun.service.answers.requested import DeviceNamed, question_of
from forerun.service.schemas import pipelines as schemas
from forerun.service.schemas.answers import EstimateOut, IntervalOut, LimitOut, PredictionOut
from forerun.service.schemas.prediction import PredictIn
from forerun.service.schemas.workload_kinds import LlmDeploymentIn

Predict = Callable[[schemas.StageIn], tuple[Query, PredictionOut]]
"""A stage with a workload -> what is asked about it, and the answer."""
METRICS: Final = ("latency_ms", "latency_cycles", "request_latency_ms", "requests_per_s", "power_w")
"""Metrics from which the time of a call and the power of a stage follow."""
OF_DEVICE: Final = ("power_w", "idle_w", "usd_per_hour", "time_ms")
"""Fields of a stage that another device does not keep."""
NEEDED: Final[Mapping[str, str]] = {
    **{"power_w": "power_w or idle_w", "busy_power_w": "power_w", "energy_per_item_j": "power_w"},
    "usd_per_hour": "usd_per_hour",
}
"""Figure -> field of a stage that it needs."""
QUEUES: Final = Limit(
    "waits are those of random arrivals by a queueing formula that no measured run checks, up to "
    "20 % from simulated chains at utilisations up to 0.8; a deployed language model keeps the "
    "times of its concurrency where fewer requests are in flight",
    LATENCY,
    "note",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage with what is known of it.

    Attributes:
        asked: the stage as asked, with power and price of a replica where these are known.
        device: its device; None where none is named.
        time_ms: time of a call.
        items: items of a call.
        slots: calls that a replica runs at once.
        limits: limits of its prediction.
    """

    asked: schemas.StageIn
    device: Device | None
    time_ms: IntervalOut
    items: int = 1
    slots: float = 1.0
    limits: Sequence[LimitOut] = ()

    def power_w(self, busy: float) -> float | None:
        """Power of all replicas at a utilisation."""
        power, idle = self.asked.power_w, 0.0 if busy >= 1.0 - CLOSE else self.asked.idle_w
        if power is None or idle is None:
            return None
        return self.asked.count * (idle + busy * max(0.0, power - idle))


def pipeline(
    asked: schemas.PipelineIn,
    device_named: DeviceNamed,
    graph_named: Callable[[str], OperatorGraph],
    in_use: InUse,
) -> schemas.PipelineOut:
    """What a pipeline carries.

    Args:
        asked: the pipeline.
        device_named: name -> device; raises `UnknownDevice`.
        graph_named: digest or name -> graph; raises `UnknownGraph`.
        in_use: the predictor in use.

    Raises:
        BadRequest: the links do not join the stages to a pipeline; the message names the field.
        InputError: a stage cannot be answered.
    """

    def predict(stage: schemas.StageIn) -> tuple[Query, PredictionOut]:
        given = PredictIn.filled(stage, level=asked.level)
        question = question_of(given, device_named, graph_named, in_use.loaded.predictor)
        return question.query, answer_of(question, in_use)

    for field, why in _faults(asked):
        with in_field(*field):
            raise BadRequest(f"{'.'.join(map(str, field))}: {why}.")
    stages: dict[str, Stage] = {}
    for number, stage in enumerate(asked.stages):
        try:
            with in_field("stages", number):
                stages[stage.name] = _stage(stage, device_named, predict)
        except InputError as error:
            error.args = (f"stages.{number} ({stage.name}): {error}",)
            raise
    whole = _figures(stages, asked)
    alternatives, unanswered = [], {}
    tried = [(name, other) for name, others in asked.alternatives.items() for other in others]
    for name, other in tried:
        label = other if isinstance(other, str) else other.name
        try:
            new = _stage(_in_place(other, stages[name].asked), device_named, predict)
            figures = _figures(stages | {name: new}, asked)
            alternatives.append(_alternative(name, label, figures, whole))
        except InputError as error:
            unanswered[f"{name}: {label}"] = str(error)
    limits = _limits(stages, whole)
    devices = {stage.device for stage in stages.values() if stage.device is not None}
    return schemas.PipelineOut(
        **dict(whole),
        limits=[limit.message for limit in limits],
        limit_details=limits,
        level=asked.level,
        alternatives=sorted(alternatives, key=_order),
        unanswered=unanswered,
        predictor=predictor_out(in_use, sum(in_use.rows.get(device, 0) for device in devices)),
    )


def _faults(asked: schemas.PipelineIn) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Fields that keep stages and links from being one pipeline, each with the reason."""
    stages = [stage.name for stage in asked.stages]
    for name, count in Counter([*stages, *(link.name for link in asked.links)]).items():
        if count > 1:
            yield ("stages" if name in stages else "links",), f"{name!r:.80} is there twice"
    known = f"there are {', '.join(stages)}"
    for number, link in enumerate(asked.links):
        for field, name in (("from", link.source), ("to", link.to)):
            if name not in stages:
                yield ("links", number, field), f"no stage {name!r:.80}; {known}"
        if link.bytes_per_item and link.bandwidth_gb_s is None:
            yield ("links", number, "bandwidth_gb_s"), "give the bandwidth of the link"
    for name in [name for name in asked.alternatives if name not in stages]:
        yield ("alternatives", name), f"no stage {name!r:.80}; {known}"
    joined = {name for link in asked.links for name in (link.source, link.to)}
    for number, name in enumerate(stages):
        if name not in joined and len(stages) > 1:
            yield ("stages", number, "name"), f"no link joins {name!r:.80} to the others; add one"


def _in_place(other: str | schemas.StageIn, stage: schemas.StageIn) -> schemas.StageIn:
    """Another stage, or the device of a name, in place of a stage."""
    if isinstance(other, schemas.StageIn):
        return other.model_copy(update={"name": stage.name, "joins": stage.joins})
    return stage.model_copy(update=dict.fromkeys(OF_DEVICE) | {"device": other})


def _stage(stage: schemas.StageIn, device_named: DeviceNamed, predict: Predict) -> Stage:
    """What is known of a stage.

    Raises:
        BadRequest: a field is missing; the message names it.
        UnanswerableQuery: it cannot run on the device, or the time of a call is not known.
        InputError: as POST /v1/predict.
    """
    if (stage.workload is None) == (stage.time_ms is None):
        raise BadRequest("give a workload or the time of a call, time_ms.")
    if stage.time_ms is not None:
        with in_field("device"):
            device = device_named(stage.device) if isinstance(stage.device, str) else stage.device
        time = IntervalOut(value=stage.time_ms, low=None, high=None, coverage=None, unit="ms")
        return Stage(_with_usual(stage, device, stage.operation.device_count or 1), device, time)
    if stage.device is None:
        raise BadRequest("device: name the device of the workload.")
    if isinstance(stage.workload, LlmDeploymentIn) and stage.workload.concurrency is None:
        raise BadRequest("workload.concurrency: give the requests in flight; the rate follows.")
    query, out = predict(stage)
    for limit in out.limit_details:
        if limit.severity == "refusal":
            raise UnanswerableQuery(f"workload: it cannot run as asked: {limit.message}.")
    found, cycles, request, rate, power = map(out.metrics.get, METRICS)
    slots = 1.0
    if request is not None and rate is not None:
        found, slots = request, rate.value * request.value / 1e3
    elif cycles is not None and stage.clock_mhz is not None:
        found = cycles.times(1e-3, "ms", stage.clock_mhz)
    if found is None:
        why = out.missing.get("latency_ms", "that of a design needs clock_mhz")
        raise UnanswerableQuery(f"workload: no time of a call is known ({why}); give time_ms.")
    items = getattr(query.workload, "batch_size", None) or 1
    stage = _with_usual(stage, query.device, query.operation.device_count, power)
    return Stage(stage, query.device, found, items, slots, out.limit_details)


def _with_usual(
    stage: schemas.StageIn, device: Device | None, devices: int, power: IntervalOut | None = None
) -> schemas.StageIn:
    """A stage with the power and price of its devices where it gives none.

    Args:
        stage: the stage.
        device: its device.
        devices: devices of a replica.
        power: power of each of them while it works.
    """
    usual: dict[str, Any] = {
        "power_w": getattr(power, "value", None),
        "idle_w": getattr(device, "idle_w", None),
        "usd_per_hour": getattr(device and list_price(device.name), "usd_per_device_hour", None),
    }
    lacking = [name for name in usual if getattr(stage, name) is None and usual[name] is not None]
    return stage.model_copy(update={name: usual[name] * devices for name in lacking})


def _stations(stages: Mapping[str, Stage], asked: schemas.PipelineIn) -> dict[str, Station]:
    """Stages and links as queues."""
    found = {}
    for name, stage in stages.items():
        time, given = stage.time_ms, stage.asked
        ends = (time.value if end is None else end for end in (time.low, time.high))
        found[name] = Station(
            np.array([time.value, *ends]) / 1e3,
            stage.slots * given.count,
            given.items_per_call or stage.items,
            given.time_variation,
            tuple(link.name for link in asked.links if link.to == name),
            joins=given.joins == "all",
        )
    for link in asked.links:
        time_s = np.full(3, link.bytes_per_item / 1e9 / (link.bandwidth_gb_s or np.inf))
        delay_s = link.latency_us / 1e6
        found[link.name] = Station(time_s, after=(link.source,), share=link.share, delay_s=delay_s)
    return found


def _figures(stages: Mapping[str, Stage], asked: schemas.PipelineIn) -> schemas.FiguresOut:
    """Figures of a pipeline of these stages."""
    stations, rate = _stations(stages, asked), asked.rate_per_s
    with in_field("links"):
        flow = flow_of(stations)
    most, waits = float(flow.throughput_per_s[0]), dict.fromkeys(stations, np.full(3, np.inf))
    if rate is not None:
        waits = waits_at(stations, rate)
    loaded = slowest_path_s(stations, waits)
    figures, missing = _sums(stages, flow, min(rate or most, most))
    if rate is not None and not isfinite(loaded[0]):
        why = f"the queue of {flow.bottleneck} grows without bound: it takes {most:,.4g} items/s"
        missing["latency_at_rate_ms"] = why
    known = {name: stage.time_ms for name, stage in stages.items()}
    times = [*known.values()]
    graded = [(name, time) for name, time in known.items() if isinstance(time, EstimateOut)]
    name, worst = max(graded, key=lambda own: own[1].grade, default=("", None))
    return schemas.FiguresOut(
        throughput_per_s=_interval(flow.throughput_per_s, "items/s", times),
        bottleneck=flow.bottleneck,
        latency_ms=_interval(1e3 * flow.latency_s, "ms", times),
        latency_at_rate_ms=_interval(1e3 * loaded, "ms", times) if isfinite(loaded[0]) else None,
        **figures,
        missing=missing,
        grade=worst and worst.grade,
        grade_reason=worst and f"{name}: {worst.grade_reason}",
        stations=[
            _station_out(name, station, stages.get(name), flow, rate or most, waits[name])
            for name, station in stations.items()
        ],
    )


def _interval(ends: Column, unit: str, times: Sequence[IntervalOut]) -> IntervalOut:
    """An estimate that follows from times; calibrated only where a single one has an interval."""
    coverages = [time.coverage for time in times if time.low is not None]
    low, high = (float(end) if coverages and isfinite(end) else None for end in ends[1:])
    coverage = coverages[0] if len(coverages) == 1 and high is not None else None
    return IntervalOut(value=float(ends[0]), low=low, high=high, coverage=coverage, unit=unit)


def _sums(
    stages: Mapping[str, Stage], flow: Flow, rate_per_s: float
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Power, energy and price of all stages, and why one is not known."""
    rows = []
    for name, stage in stages.items():
        capacity, price = float(flow.capacity_per_s[name][0]), stage.asked.usd_per_hour
        mean, power = stage.power_w(rate_per_s / capacity), stage.power_w(1.0)
        rows.append((mean, power, power and power / capacity, price and price * stage.asked.count))
    known, missing = {}, {}
    for (figure, field), values in zip(NEEDED.items(), zip(*rows, strict=True), strict=True):
        lacking = [name for name, value in zip(stages, values, strict=True) if value is None]
        known[figure] = None if lacking else sum(filter(None, values))
        if lacking:
            missing[figure] = f"{field} is not known of {', '.join(lacking)}"
    return known, missing


def _station_out(
    name: str, station: Station, stage: Stage | None, flow: Flow, rate_per_s: float, wait_s: Column
) -> schemas.StationOut:
    """A stage or a link as the answer lists it."""
    ends, times = flow.capacity_per_s[name], [stage.time_ms] if stage else []
    capacity, bounded = float(ends[0]), isfinite(ends[0])
    return schemas.StationOut(
        name=name,
        device=stage.device.name if stage and stage.device else None,
        time_ms=_interval(1e3 * station.call_s, "ms", times),
        throughput_per_s=_interval(ends, "items/s", times) if bounded else None,
        utilisation=min(rate_per_s, float(flow.throughput_per_s[0])) / capacity,
        headroom=capacity / rate_per_s - 1.0 if bounded else None,
        wait_ms=1e3 * float(wait_s[0]) if isfinite(wait_s[0]) else None,
        grade=getattr(stage and stage.time_ms, "grade", None),
    )


def _limits(stages: Mapping[str, Stage], whole: schemas.FiguresOut) -> list[LimitOut]:
    """Limits of queues, and those of the stages under their names."""
    return ([LimitOut.of(QUEUES)] if whole.latency_at_rate_ms else []) + [
        limit.model_copy(update={"message": f"{name}: {limit.message}"})
        for name, stage in stages.items()
        for limit in stage.limits
        if limit.metric != PEAK_MEMORY or limit.severity == "refusal"
    ]


def _alternative(
    stage: str, name: str, own: schemas.FiguresOut, whole: schemas.FiguresOut
) -> schemas.AlternativeOut:
    """Figures with an alternative, and their differences to those of the pipeline as asked."""
    differences = {
        figure: float(value) - float(before)
        for (figure, value), (_, before) in zip(own, whole, strict=True)
        if isinstance(value, float | IntervalOut) and before is not None
    }
    return schemas.AlternativeOut(**dict(own), stage=stage, name=name, differences=differences)


def _order(own: schemas.AlternativeOut) -> tuple[float, float]:
    """Throughput, then the time of an item, the best first."""
    return -own.throughput_per_s.value, (own.latency_at_rate_ms or own.latency_ms).value
