"""Answers to measurements and observations: errors of answers, sets that are stored, changes."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from forerun.data.described import Described
from forerun.service.schemas.fields import Name, Strict

LARGEST = 1e15


class GivenEstimate(Strict):
    """A value with its 90 % interval as it was answered, and the predictor that answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float = Field(gt=0, le=LARGEST)
    """best estimate, in the unit of the metric"""
    low: Annotated[float, Field(ge=0, le=LARGEST)] | None = None
    """lower end of the 90 % interval, null where none was calibrated"""
    high: float | None = Field(default=None, gt=0, le=LARGEST)
    """upper end of that interval"""
    version: Name | None = None
    """`predictor.version` of the answer; null where it is not known"""

    @model_validator(mode="after")
    def _is_an_interval(self) -> Self:
        """Both ends are given, in order, or neither."""
        if (self.low is None) != (self.high is None):
            raise ValueError("an interval has both ends: give low and high, or neither")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise ValueError(f"low is {self.low:g}, above high, {self.high:g}")
        return self

    def holds(self, measured: float) -> bool | None:
        """Whether a measured value lies in the interval; None where there is none."""
        if self.low is None or self.high is None:
            return None
        return self.low <= measured <= self.high


class LiveErrorOut(Described):
    """Errors of answers, compared with later measurements."""

    rows: int
    """observations with an answer"""
    mape: float
    """mean absolute percentage error, percent of the measured value"""
    median_ape: float
    """median absolute percentage error, percent"""
    bias: float
    """median of log(measured / answered); at 0.1, runs take about 10 % more than was answered"""
    rows_with_interval: int
    """observations whose answer had a 90 % interval"""
    coverage_90: float | None
    """share of them inside that interval, percent; null where there are none"""

    def figures(self) -> tuple[str, str, str]:
        """The error, the bias and the share inside intervals, in words."""
        held = "" if self.coverage_90 is None else f"{self.coverage_90:.0f} %"
        return f"{self.mape:.1f} %", f"{self.bias:+.3f}", held


class ObservedOut(Described):
    """The observations that were stored, and the errors of the answers about them."""

    set: str
    """identifier of the set of observations"""
    device: str
    """name of the device"""
    source: Literal["observe"]
    """what the measurements are for: observe"""
    rows: int
    """observations in this set"""
    judged: int
    """observations with an answer to a metric that was measured"""
    errors: dict[str, LiveErrorOut]
    """metric -> errors of the answers"""


class ChangeOut(Described):
    """A persistent change of log(measured / answered)."""

    since: datetime
    """time at which the first observation after it was stored"""
    observation: int
    """number of that observation among those of the device that are kept, from 1"""
    noticed: datetime
    """time at which the observation that revealed it was stored"""
    after: int
    """observations of the slice from the change until it was noticed"""
    percent: float
    """change of measured over answered, percent: 15 if runs now take 15 % more than before"""
    low_percent: float
    """lower end of its approximate 90 % interval, percent"""
    high_percent: float
    """upper end of that interval, percent"""


class SliceOut(Described):
    """The observations of one metric of a device, or of a part of its workloads."""

    metric: str
    """name of the metric"""
    device: str
    """name of the device"""
    version: str | None = None
    """version of the predictors whose answers are scored, without the measurements that they were
    adapted to; null where the observations do not name one"""
    kind: str | None
    """kind of workload; null for all"""
    family: str | None
    """kind of operator, family of language models, or of a network: convolutional, transformer,
    recurrent or other; null for all"""
    precision: str | None
    """precision of the runs; null for all"""
    rows: int
    """observations of the slice that are kept"""
    live: LiveErrorOut
    """errors of the latest 1,000 answers, excluding those before an adaptation that changed them"""
    changes: list[ChangeOut]
    """every change, the oldest first"""
    alarm: bool
    """whether the error level differs from the reference now: the latest change was found with the
    current answers and not reversed by another"""

    def name(self) -> str:
        """The part of the workloads in words, such as `kernel linear fp16`."""
        return " ".join(own for own in (self.kind, self.family, self.precision) if own) or "all"


class AlarmOut(Described):
    """The widest slice in which a change persists."""

    message: str
    """what changed, where, by how much and since when, in words"""
    slice: SliceOut
    """the slice"""


class DriftOut(Described):
    """Errors of live answers, and what changed, by slice."""

    observations: dict[str, int]
    """device -> number of its observations that are kept"""
    versions: dict[str, int] = Field(default_factory=dict)
    """version of the predictors -> number of observations with its answers; slices and alarms are
    for the version in use, unless another is requested"""
    alarms: list[AlarmOut]
    """each persistent change once: in the widest slice in which every part changed"""
    slices: list[SliceOut]
    """every slice with at least 20 observations, by device, metric and properties"""


class ErrorOut(Described):
    """One metric's error on the rows of a request, before and after adaptation."""

    rows: int
    """rows with a measured value and a prediction"""
    mape_before: float
    """mean absolute percentage error before adaptation, percent"""
    mape_after: float | None
    """mean absolute percentage error after adaptation to the other rows, percent; null where no
    other row was left to learn from"""
    width_before: float | None
    """median ratio of the interval's high to its low before adaptation"""
    width_after: float | None
    """the same ratio after adaptation"""
    held_before: float | None
    """share of rows inside their interval before adaptation, 0 to 1"""
    held_after: float | None
    """the same share after adaptation"""
    enough: bool
    """whether further rows would lower the error by less than one percentage point"""
    worse: bool
    """whether adaptation raised the error; the adapted predictor is in use all the same, until the
    set is rolled back"""


class AdaptationOut(Described):
    """The result of adapting to a set of measurements."""

    set: str
    """identifier of the set, with which it can be rolled back"""
    device: str
    """name of the device"""
    rows: int
    """measurements in this set"""
    rows_in_use: int
    """measurements of the device in use, including these"""
    errors: dict[str, ErrorOut]
    """metric -> errors before and after"""
    folds: int
    """number of folds, each with an adaptation of its own"""
    one_by_one: bool
    """whether each fold held out a single model or operator"""
    version: str
    """version of the predictor that answers from now on"""
    source: Literal["adapt"] = "adapt"
    """what the measurements are for"""


class SetOut(Described):
    """A set of measurements."""

    set: str
    """identifier of the set"""
    time: datetime
    """when it was stored"""
    rows: int
    """number of measurements in the set"""
    undone: bool
    """whether it was rolled back"""
    source: Literal["adapt", "observe"]
    """whether answers adapt to it, or are only compared with it"""


class SetsOut(Described):
    """A device's sets of measurements, the oldest first."""

    device: str
    """name of the device"""
    sets: list[SetOut]
    """all sets, including those that were rolled back"""
