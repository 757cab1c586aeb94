"""Answers about pipelines: what stages and links carry, where they saturate, and alternatives."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError
from math import isfinite
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.errors import BadRequest, InputError, UnanswerableQuery, in_field
from forerun.data.graph import OperatorGraph
from forerun.data.language_models.training import Cluster
from forerun.data.list_prices import list_price
from forerun.features.links import PCIE_BYTES_S, Links
from forerun.models.answers.served_models import InUse
from forerun.models.limit import LATENCY, PEAK_MEMORY, Limit
from forerun.models.pipelines import (
    CLOSE,
    Flow,
    Station,
    flow_of,
    order_of,
    slowest_path_s,
    visits_of,
    waits_at,
)
from forerun.service.answers.answer import answers_to, predictor_out
from forerun.service.answers.question import Question
from forerun.service.answers.requested import DeviceNamed, question_of
from forerun.service.schemas.answers import (
    EstimateOut,
    IntervalOut,
    LimitOut,
    PredictionOut,
)
from forerun.service.schemas.pipelines import (
    AlternativeOut,
    FiguresOut,
    LinkIn,
    PipelineIn,
    PipelineOut,
    StageIn,
    StationOut,
)
from forerun.service.schemas.prediction import PredictIn
from forerun.service.schemas.workload_kinds import LlmDeploymentIn

PREDICTED: Final = ("software", "operation", "device", "workload")
"""Fields of a stage that are those of POST /v1/predict."""
COMPARED: Final = (
    *("throughput_per_s", "latency_ms", "latency_at_rate_ms", "power_w", "busy_power_w"),
    *("energy_per_item_j", "usd_per_hour"),
)
"""Figures of which an alternative gives the differences."""
OF_DEVICE: Final = ("power_w", "idle_w", "usd_per_hour")
"""Fields of a stage that another device does not keep."""
NEEDED: Final[Mapping[str, str]] = {
    **{"power_w": "power_w or idle_w", "busy_power_w": "power_w", "energy_per_item_j": "power_w"},
    "usd_per_hour": "usd_per_hour",
}
"""Figure -> field of a stage that it needs."""
NO_RATE: Final = "no rate_per_s was asked for"
SATURATES: Final = Limit(
    "at the upper ends of the times the pipeline saturates below this rate", LATENCY, "note"
)
CONCURRENT: Final = Limit(
    "its times are those at the given concurrency, also where fewer requests are in flight",
    LATENCY,
    "note",
)
QUEUES: Final = Limit(
    "waits are those of random arrivals by a queueing formula that no measured run checks, up to "
    "20 % from simulated chains at utilisations up to 0.8",
    LATENCY,
    "note",
)


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage with what is known of it.

    Attributes:
        asked: the stage as asked.
        device: its device; None where none is named.
        devices: devices of one replica.
        items: items of one call.
        call_ms: time of a call.
        slots: calls that a replica runs at once.
        out: what was predicted; None where the time was given.
    """

    asked: StageIn
    device: Device | None
    devices: int
    items: int
    call_ms: IntervalOut
    slots: float = 1.0
    out: PredictionOut | None = None

    @property
    def trust(self) -> EstimateOut | None:
        """Its time with a grade; None where that was given."""
        return self.call_ms if isinstance(self.call_ms, EstimateOut) else None

    @property
    def power_w(self) -> float | None:
        """Power of a replica while it works."""
        own = None if self.out is None else self.out.metrics.get("power_w")
        predicted = None if own is None else own.value * self.devices
        return predicted if self.asked.power_w is None else self.asked.power_w

    @property
    def idle_w(self) -> float | None:
        """Power of a replica while it waits."""
        own = None if self.device is None else self.device.idle_w
        by_sheet = None if own is None else own * self.devices
        return by_sheet if self.asked.idle_w is None else self.asked.idle_w

    @property
    def usd_per_hour(self) -> float | None:
        """Price of all replicas."""
        own = None if self.device is None else list_price(self.device.name)
        listed = None if own is None else own.usd_per_device_hour * self.devices
        one = listed if self.asked.usd_per_hour is None else self.asked.usd_per_hour
        return None if one is None else one * self.asked.count

    def mean_power_w(self, busy: float) -> float | None:
        """Power of all replicas at a utilisation."""
        power, idle = self.power_w, 0.0 if busy >= 1.0 - CLOSE else self.idle_w
        if power is None or idle is None:
            return None
        return self.asked.count * (idle + busy * max(0.0, power - idle))

    @property
    def energy_j(self) -> float | None:
        """Energy of an item's work."""
        power = self.power_w
        return power and power * self.call_ms.value / 1e3 / self.slots / self.items


def pipeline(
    asked: PipelineIn,
    device_named: DeviceNamed,
    graph_named: Callable[[str], OperatorGraph],
    in_use: InUse,
) -> PipelineOut:
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
    _check(asked)
    tried = [*_tried(asked)]
    given = [*asked.stages, *(one for _, _, one in tried)]
    found = _stages(given, asked.level, device_named, graph_named, in_use)
    stages: list[Stage] = []
    for number, (one, own) in enumerate(zip(asked.stages, found, strict=False)):
        if isinstance(own, InputError):
            own.args = (f"stages.{number} ({one.name}): {own}",)
            with in_field("stages", number):
                raise own
        stages.append(own)
    _check_joins(stages, asked)
    whole = _figures(stages, asked)
    alternatives, unanswered = [], {}
    for (place, label, one), own in zip(tried, found[len(stages) :], strict=True):
        try:
            if isinstance(own, InputError):
                raise own
            other = _figures([*stages[:place], own, *stages[place + 1 :]], asked)
            alternatives.append((one.name, label, other))
        except InputError as error:
            unanswered[f"{one.name}: {label}"] = str(error)
    limits = _limits(stages, whole)
    return PipelineOut(
        **dict(whole),
        limits=[limit.message for limit in limits],
        limit_details=limits,
        level=asked.level,
        rate_per_s=asked.rate_per_s,
        alternatives=_ranked(whole, alternatives),
        unanswered=unanswered,
        predictor=predictor_out(
            in_use, sum(in_use.rows.get(d, 0) for d in {one.device for one in stages} if d)
        ),
    )


def _check(asked: PipelineIn) -> None:
    """Refuse names that are unknown or not alone, and links that are cycles or no whole."""
    names = [one.name for one in asked.stages]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise _wrong("another stage has this name; give each its own", "stages", number, "name")
    for name in asked.alternatives:
        _check_known(name, names, "alternatives", name)
    for number, link in enumerate(asked.links):
        _check_link(link, names, number)
        if link.name in (*names, *(other.name for other in asked.links[:number])):
            raise _wrong(f"{link.name!r:.80} is there already", "links", number)
    try:
        order_of({name: tuple(own.source for own in _into(asked, name)) for name in names})
    except CycleError as error:
        raise _wrong(f"{' -> '.join(error.args[1])} is a cycle", "links") from None
    _check_joined(asked, names)


def _check_joined(asked: PipelineIn, names: Sequence[str]) -> None:
    """Refuse stages that no link joins to the others."""
    joined = {names[0]}
    for _ in names:
        for ends in ({link.source, link.to} for link in asked.links):
            joined |= ends if ends & joined else set()
    for number, name in enumerate(names):
        if name not in joined:
            why = f"no link joins {name!r:.80} to {names[0]!r:.80}; add one"
            raise _wrong(why, "stages", number, "name")


def _check_link(link: LinkIn, names: Sequence[str], number: int) -> None:
    _check_known(link.source, names, "links", number, "from")
    _check_known(link.to, names, "links", number, "to")
    if link.bandwidth_gb_s is not None and link.over is not None:
        raise _wrong("give bandwidth_gb_s or over, not both", "links", number, "over")
    if link.bytes_per_item and link.bandwidth_gb_s is None and link.over is None:
        why = "give the bandwidth of the link, or over for a usual one"
        raise _wrong(why, "links", number, "bandwidth_gb_s")


def _check_known(name: str, names: Sequence[str], *field: str | int) -> None:
    if name not in names:
        raise _wrong(f"no stage {name!r:.80}; there are {', '.join(names)}", *field)


def _wrong(why: str, *field: str | int) -> BadRequest:
    error = BadRequest(f"{'.'.join(map(str, field))}: {why}.")
    error.field = field
    return error


def _into(asked: PipelineIn, name: str) -> list[LinkIn]:
    """Links that lead to a stage."""
    return [link for link in asked.links if link.to == name]


def _check_joins(stages: Sequence[Stage], asked: PipelineIn) -> None:
    """Refuse stages that wait for items of links with unequal flows."""
    visits = visits_of(_stations(stages, asked))
    for number, one in enumerate(asked.stages):
        flows = [visits[link.name] for link in _into(asked, one.name)]
        if one.joins == "all" and flows and max(flows) > min(flows) * (1.0 + CLOSE):
            why = "links bring unequal shares of the items; `any` lets each pass by itself"
            raise _wrong(why, "stages", number, "joins")


def _tried(asked: PipelineIn) -> Iterator[tuple[int, str, StageIn]]:
    """Position of a stage; the label of another, and that in its place."""
    place = {one.name: number for number, one in enumerate(asked.stages)}
    for name, others in asked.alternatives.items():
        stage = asked.stages[place[name]]
        for number, other in enumerate(others):
            if isinstance(other, StageIn):
                same = {"name": name, "joins": stage.joins}
                yield place[name], other.name, other.model_copy(update=same)
                continue
            if stage.workload is None:
                why = "the time of this stage was given; give that of another as a stage"
                raise _wrong(why, "alternatives", name, number)
            own = dict.fromkeys(OF_DEVICE) | {"device": other}
            yield place[name], other, stage.model_copy(update=own)


def _stages(
    asked: Sequence[StageIn],
    level: float,
    device_named: DeviceNamed,
    graph_named: Callable[[str], OperatorGraph],
    in_use: InUse,
) -> list[Stage | InputError]:
    """What is known of each stage, or why it cannot be answered; all are predicted in one call."""
    found: dict[int, Stage | InputError] = {}
    questions: dict[int, Question] = {}
    for row, one in enumerate(asked):
        try:
            if one.workload is None:
                found[row] = _given(one, device_named)
            else:
                request = _request(one, level)
                predictor = in_use.loaded.predictor
                questions[row] = question_of(request, device_named, graph_named, predictor)
        except InputError as error:
            found[row] = error
    answers = answers_to(list(questions.values()), in_use)
    for row, out in zip(questions, answers, strict=True):
        try:
            if isinstance(out, InputError):
                raise out
            found[row] = _predicted(asked[row], questions[row], out)
        except InputError as error:
            found[row] = error
    return [found[row] for row in range(len(asked))]


def _request(one: StageIn, level: float) -> PredictIn:
    """The request of POST /v1/predict about a stage."""
    if one.time_ms is not None:
        raise _wrong("give a workload or the time of a call, not both", "time_ms")
    if one.device is None:
        raise _wrong("name the device of the workload", "device")
    if isinstance(one.workload, LlmDeploymentIn) and one.workload.concurrency is None:
        why = "give the requests that a replica answers at once; the rate is the pipeline's"
        raise _wrong(why, "workload", "concurrency")
    own = {name: getattr(one, name) for name in PREDICTED}
    return PredictIn.model_construct(**own, metrics=None, level=level, explain=False)


def _given(one: StageIn, device_named: DeviceNamed) -> Stage:
    """A stage whose time was measured."""
    if one.time_ms is None:
        raise _wrong("give it a workload, or the time of a call", "workload")
    with in_field("device"):
        device = device_named(one.device) if isinstance(one.device, str) else one.device
    time = IntervalOut(value=one.time_ms, low=None, high=None, coverage=None, unit="ms")
    count = one.operation.device_count or 1
    return Stage(one, device, count, one.items_per_call or 1, time)


def _predicted(one: StageIn, question: Question, out: PredictionOut) -> Stage:
    """A stage whose workload was predicted.

    Raises:
        BadRequest: a hardware design has no clock.
        UnanswerableQuery: its time is not known.
    """
    query, slots = question.query, 1.0
    rate, latency = out.metrics.get("requests_per_s"), out.metrics.get("request_latency_ms")
    cycles, time = out.metrics.get("latency_cycles"), out.metrics.get("latency_ms")
    if rate is not None and latency is not None:
        time, slots = latency, rate.value * latency.value / 1e3
    if cycles is not None:
        if one.clock_mhz is None:
            raise _wrong("give the clock of the design", "clock_mhz")
        time = cycles.times(1e-3, "ms", one.clock_mhz)
    if time is None:
        why = out.missing.get("latency_ms", "this kind of workload has none")
        raise UnanswerableQuery(f"workload: no time of a run is known ({why}); give time_ms.")
    items = one.items_per_call or getattr(query.workload, "batch_size", None) or 1
    return Stage(one, query.device, query.operation.device_count, items, time, slots, out)


def _column(own: IntervalOut) -> Column:
    """Value, lower and upper end, (3,) in seconds."""
    ends = (own.value if end is None else end for end in (own.low, own.high))
    return np.array([own.value, *ends]) / 1e3


def _stations(stages: Sequence[Stage], asked: PipelineIn) -> dict[str, Station]:
    """Stages and links as queues."""
    found = {
        one.asked.name: Station(
            _column(one.call_ms),
            one.slots * one.asked.count,
            one.items,
            one.asked.time_variation,
            tuple(link.name for link in _into(asked, one.asked.name)),
            joins=one.asked.joins == "all",
        )
        for one in stages
    }
    devices = {one.asked.name: one.device for one in stages}
    for number, link in enumerate(asked.links):
        with in_field("links", number, "over"):
            time = np.full(3, _link_s(link, devices))
        found[link.name] = Station(
            time, after=(link.source,), share=link.share, delay_s=link.latency_us / 1e6
        )
    return found


def _link_s(link: LinkIn, devices: Mapping[str, Device | None]) -> float:
    """Time that an item occupies a link, seconds."""
    if not link.bytes_per_item:
        return 0.0
    if link.bandwidth_gb_s is not None:
        return link.bytes_per_item / link.bandwidth_gb_s / 1e9
    if link.over == "pcie":
        return link.bytes_per_item / PCIE_BYTES_S
    ends = [own for end in (link.source, link.to) if (own := devices[end]) is not None]
    if not ends:
        raise BadRequest(f"over: {link.name} joins no named device; give bandwidth_gb_s.")
    rates = [Links.of(device, Cluster()) for device in ends]
    of_ends = [own.link if link.over == "interconnect" else own.network for own in rates]
    return link.bytes_per_item / min(of_ends)


def _figures(stages: Sequence[Stage], asked: PipelineIn) -> FiguresOut:
    """Figures of a pipeline of these stages."""
    stations = _stations(stages, asked)
    flow, wanted = flow_of(stations), asked.rate_per_s
    most = float(flow.throughput_per_s[0])
    waits: dict[str, Column] = {}
    loaded = np.full(3, np.inf)
    if wanted is not None:
        waits = waits_at(stations, flow.visits, wanted)
        loaded = slowest_path_s(stations, waits)
    rate = most if wanted is None else min(wanted, most)
    busy = {name: rate / float(own[0]) for name, own in flow.capacity_per_s.items()}
    known, missing = _sums(stages, flow, busy)
    if not isfinite(loaded[0]):
        missing["latency_at_rate_ms"] = NO_RATE if wanted is None else (
            f"the queue of {flow.bottleneck} grows without bound: it takes {most:,.4g} items/s"
        )  # fmt: skip
    graded = [(one.trust, one.asked.name) for one in stages if one.trust is not None]
    worst, name = max(graded, key=lambda own: own[0].grade, default=(None, ""))
    return FiguresOut(
        throughput_per_s=_interval(flow.throughput_per_s, stages, "items/s"),
        bottleneck=flow.bottleneck,
        latency_ms=_interval(1e3 * flow.latency_s, stages, "ms"),
        latency_at_rate_ms=_interval(1e3 * loaded, stages, "ms") if isfinite(loaded[0]) else None,
        **known,
        missing=missing,
        grade=worst and worst.grade,
        grade_reason=worst and f"{name}: {worst.grade_reason}",
        stations=[*_station_outs(stages, asked, stations, flow, busy, waits)],
    )


def _interval(ends: Column, stages: Sequence[Stage], unit: str) -> IntervalOut:
    """An estimate; calibrated only where the time of a single stage has an interval."""
    value, low, high = (float(end) if isfinite(end) else None for end in ends)
    assert value is not None
    ranges = [one.call_ms for one in stages if one.call_ms.low is not None]
    if not ranges:
        low = high = None
    coverage = ranges[0].coverage if len(ranges) == 1 and high is not None else None
    return IntervalOut(value=value, low=low, high=high, coverage=coverage, unit=unit)


def _sums(
    stages: Sequence[Stage], flow: Flow, busy: Mapping[str, float]
) -> tuple[dict[str, float | None], dict[str, str]]:
    """Power, energy and price of all stages, and why one is not known."""
    names = [one.asked.name for one in stages]
    own = {
        "power_w": [one.mean_power_w(busy[one.asked.name]) for one in stages],
        "busy_power_w": [one.mean_power_w(1.0) for one in stages],
        "energy_per_item_j": [
            None if (own := one.energy_j) is None else own * flow.visits[one.asked.name]
            for one in stages
        ],
        "usd_per_hour": [one.usd_per_hour for one in stages],
    }
    known, missing = {}, {}
    for figure, values in own.items():
        lacking = [n for n, value in zip(names, values, strict=True) if value is None]
        known[figure] = None if lacking else sum(value for value in values if value is not None)
        if lacking:
            missing[figure] = f"{NEEDED[figure]} is not known of {', '.join(lacking)}"
    return known, missing


def _station_outs(
    stages: Sequence[Stage],
    asked: PipelineIn,
    stations: Mapping[str, Station],
    flow: Flow,
    busy: Mapping[str, float],
    waits: Mapping[str, Column],
) -> Iterator[StationOut]:
    """Stages and links as the answer lists them."""
    of = {one.asked.name: one for one in stages}
    rate = asked.rate_per_s or float(flow.throughput_per_s[0])
    for name, station in stations.items():
        stage, most = of.get(name), flow.capacity_per_s[name]
        bounded, wait = bool(isfinite(most[0])), 1e3 * float(waits.get(name, [np.inf])[0])
        alone = [] if stage is None else [stage]
        trust = stage and stage.trust
        yield StationOut(
            name=name,
            device=stage.device.name if stage and stage.device else None,
            time_ms=_interval(1e3 * station.call_s, alone, "ms"),
            throughput_per_s=_interval(most, alone, "items/s") if bounded else None,
            utilisation=busy[name],
            headroom=float(most[0]) / rate - 1.0 if bounded else None,
            wait_ms=wait if isfinite(wait) else None,
            power_w=stage and stage.mean_power_w(1.0),
            grade=trust and trust.grade,
            grade_reason=trust and trust.grade_reason,
        )


def _limits(stages: Sequence[Stage], whole: FiguresOut) -> list[LimitOut]:
    """Limits of the stages under their names, and of queues."""
    own = [] if whole.latency_at_rate_ms is None else [QUEUES]
    if whole.latency_at_rate_ms and whole.latency_at_rate_ms.high is None and whole.latency_ms.high:
        own.append(SATURATES)
    found = [LimitOut.of(limit) for limit in own]
    for one in stages:
        said = [] if one.out is None else one.out.limit_details
        if isinstance(one.asked.workload, LlmDeploymentIn):
            said = [*said, LimitOut.of(CONCURRENT)]
        found += [
            limit.model_copy(update={"message": f"{one.asked.name}: {limit.message}"})
            for limit in said
            if limit.metric != PEAK_MEMORY or limit.severity == "refusal"
        ]
    return found


def _ranked(
    whole: FiguresOut, others: Sequence[tuple[str, str, FiguresOut]]
) -> list[AlternativeOut]:
    """Alternatives (stage, name, figures), best first."""

    def key(own: tuple[str, str, FiguresOut]) -> tuple[float, float]:
        latency = own[2].latency_at_rate_ms or own[2].latency_ms
        return -own[2].throughput_per_s.value, latency.value

    found = []
    for rank, (stage, name, own) in enumerate(sorted(others, key=key), 1):
        pairs = {one: (getattr(own, one), getattr(whole, one)) for one in COMPARED}
        differences = {
            one: None if None in pair else float(pair[0]) - float(pair[1])
            for one, pair in pairs.items()
        }
        more = {"rank": rank, "stage": stage, "name": name, "differences": differences}
        found.append(AlternativeOut(**dict(own), **more))
    return found
