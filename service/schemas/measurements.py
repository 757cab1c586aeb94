"""Answers to measurements and observations: errors of answers, sets that are stored, changes."""

from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from forerun.service.schemas.fields import Name, Strict

LARGEST = 1e15


class GivenEstimate(Strict):
    """A value with its 90 % interval as it was answered, and the predictor that answered."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    value: float = Field(gt=0, le=LARGEST, description="best estimate, in the unit of the metric")
    low: Annotated[float, Field(ge=0, le=LARGEST)] | None = Field(
        default=None, description="lower end of the 90 % interval, null where none was calibrated"
    )
    high: float | None = Field(
        default=None, gt=0, le=LARGEST, description="upper end of that interval"
    )
    version: Name | None = Field(
        default=None,
        description="`predictor.version` of the answer; null where it is not known",
    )

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


class LiveErrorOut(BaseModel):
    """Errors of answers against what was measured afterwards."""

    rows: int = Field(description="observations with an answer")
    mape: float = Field(description="mean absolute percentage error, percent of the measured value")
    median_ape: float = Field(description="median absolute percentage error, percent")
    bias: float = Field(
        description="median of log(measured / answered); 0.1 says that runs take about 10 % more "
        "than was answered"
    )
    rows_with_interval: int = Field(description="observations whose answer had a 90 % interval")
    coverage_90: float | None = Field(
        description="share of them inside that interval, percent; null where there are none"
    )

    def figures(self) -> tuple[str, str, str]:
        """The error, the bias and the share inside intervals, in words."""
        held = "" if self.coverage_90 is None else f"{self.coverage_90:.0f} %"
        return f"{self.mape:.1f} %", f"{self.bias:+.3f}", held


class ObservedOut(BaseModel):
    """What was stored of observations, and how good the answers about them were."""

    set: str = Field(description="identifier of the set of observations")
    device: str = Field(description="name of the device")
    source: Literal["observe"] = Field(description="what the measurements are for: observe")
    rows: int = Field(description="observations in this set")
    judged: int = Field(description="observations with an answer to a metric that was measured")
    errors: dict[str, LiveErrorOut] = Field(description="metric -> errors of the answers")


class ChangeOut(BaseModel):
    """A lasting change of log(measured / answered)."""

    since: datetime = Field(description="time at which the first observation after it was stored")
    observation: int = Field(
        description="number of that observation among those of the device that are kept, from 1"
    )
    noticed: datetime = Field(description="time at which the observation was stored that showed it")
    after: int = Field(description="observations of the slice from the change until it was noticed")
    percent: float = Field(
        description="change of measured over answered, percent: 15 for runs that take 15 % more "
        "than before"
    )
    low_percent: float = Field(description="lower end of its approximate 90 % interval, percent")
    high_percent: float = Field(description="upper end of that interval, percent")


class SliceOut(BaseModel):
    """The observations of one metric of a device, or of a part of its workloads."""

    metric: str = Field(description="name of the metric")
    device: str = Field(description="name of the device")
    version: str | None = Field(
        default=None,
        description="version of the predictors whose answers are scored, without the measurements "
        "that they were adapted to; null where the observations do not name one",
    )
    kind: str | None = Field(description="kind of workload; null for all")
    family: str | None = Field(
        description="kind of operator, family of language models, or of a network: convolutional, "
        "transformer, recurrent or other; null for all"
    )
    precision: str | None = Field(description="precision of the runs; null for all")
    rows: int = Field(description="observations of the slice that are kept")
    live: LiveErrorOut = Field(
        description="errors of the newest 1,000 answers, without those before an adaptation that "
        "changed the answers"
    )
    changes: list[ChangeOut] = Field(description="every change, the oldest first")
    alarm: bool = Field(
        description="whether the level is off the reference now: the newest change was found with "
        "the answers of today and was not undone by another"
    )

    def name(self) -> str:
        """The part of the workloads in words, such as `kernel linear fp16`."""
        return " ".join(own for own in (self.kind, self.family, self.precision) if own) or "all"


class AlarmOut(BaseModel):
    """The widest slice of a change that lasts."""

    message: str = Field(description="what changed, where, by how much and since when, in words")
    slice: SliceOut = Field(description="the slice")


class DriftOut(BaseModel):
    """Live errors of the answers, and what changed, by slice."""

    observations: dict[str, int] = Field(description="device -> observations that are kept of it")
    versions: dict[str, int] = Field(
        default_factory=dict,
        description="version of the predictors -> observations that have its answers; slices and "
        "alarms are those of the versions in use, unless others are asked for",
    )
    alarms: list[AlarmOut] = Field(
        description="each change that lasts, once: in the widest slice of which no part stayed as "
        "it was"
    )
    slices: list[SliceOut] = Field(
        description="every slice with 20 observations, by device, metric and properties"
    )


class ErrorOut(BaseModel):
    """One metric's error on the rows of a request, before and after adaptation."""

    rows: int = Field(description="rows with a measured value and a prediction")
    mape_before: float = Field(
        description="mean absolute percentage error before adaptation, percent"
    )
    mape_after: float | None = Field(
        description="mean absolute percentage error after adaptation to the other rows, percent; "
        "null where no other row was left to learn from"
    )
    width_before: float | None = Field(
        description="median ratio of the interval's high to its low before adaptation"
    )
    width_after: float | None = Field(description="the same ratio after adaptation")
    held_before: float | None = Field(
        description="share of rows inside their interval before adaptation, 0 to 1"
    )
    held_after: float | None = Field(description="the same share after adaptation")
    enough: bool = Field(
        description="whether further rows would lower the error by less than one percentage point"
    )
    worse: bool = Field(
        description="whether adaptation raised the error; the adapted predictor is in use all the "
        "same, until the set is rolled back"
    )


class AdaptationOut(BaseModel):
    """The result of adapting to a set of measurements."""

    set: str = Field(description="identifier of the set, with which it can be rolled back")
    device: str = Field(description="name of the device")
    rows: int = Field(description="measurements in this set")
    rows_in_use: int = Field(description="measurements of the device in use, including these")
    errors: dict[str, ErrorOut] = Field(description="metric -> errors before and after")
    folds: int = Field(description="number of folds, each with an adaptation of its own")
    one_by_one: bool = Field(description="whether each fold held out a single model or operator")
    version: str = Field(description="version of the predictor that answers from now on")
    source: Literal["adapt"] = Field(default="adapt", description="what the measurements are for")


class SetOut(BaseModel):
    """A set of measurements."""

    set: str = Field(description="identifier of the set")
    time: datetime = Field(description="when it was stored")
    rows: int = Field(description="number of measurements in the set")
    undone: bool = Field(description="whether it was rolled back")
    source: Literal["adapt", "observe"] = Field(
        description="whether answers adapt to it, or are only compared with it"
    )


class SetsOut(BaseModel):
    """A device's sets of measurements, the oldest first."""

    device: str = Field(description="name of the device")
    sets: list[SetOut] = Field(description="all sets, including those that were rolled back")
