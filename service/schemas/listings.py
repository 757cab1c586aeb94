"""Answers of the paths that list what the service has: kinds of workload, presets, readiness."""

from typing import Any

from pydantic import AwareDatetime, BaseModel, Field


class DifferenceOut(BaseModel):
    """How far the answers of a candidate are from those of the champion."""

    answers: int = Field(description="answers of both that were compared")
    mean_percent: float = Field(
        description="mean absolute difference of the best estimates, percent of the champion's"
    )


class TrialOut(BaseModel):
    """A candidate on trial, and how its answers differ from the champion's."""

    version: str = Field(description="version of the candidate")
    canary_share: float = Field(description="share of the questions that it answers")
    shadow_share: float = Field(
        description="share of the questions that it answers as well, to be compared"
    )
    compared: int = Field(description="questions that both answered, since the service started")
    failed: int = Field(description="questions that the candidate alone did not answer")
    left_out: int = Field(description="questions that were not compared, for lack of time")
    differences: dict[str, DifferenceOut] = Field(description="metric -> difference of the answers")


class RegistryOut(BaseModel):
    """What the registry said when it was asked last."""

    version: str | None = Field(
        description="version of the champion that was fetched last; null for none"
    )
    asked: AwareDatetime = Field(description="when it was asked last")
    answered: bool = Field(
        description="whether it answered with a champion that can be used, or that it has none; "
        "where not, the log says why"
    )


class ReadyOut(BaseModel):
    """Whether the service answers questions, whether it can store, and what answers."""

    status: str = Field(description="status of the service: ok")
    storing: bool = Field(description="whether graphs, devices and measurements can be stored")
    not_storing: str | None = Field(
        description="what keeps them from being stored and how to mend it; null where nothing does"
    )
    version: str = Field(description="version of the predictor in use")
    registry: RegistryOut | None = Field(
        default=None, description="the registry; null without one, and before it was asked"
    )


class FieldOut(BaseModel):
    """A field of a kind of workload."""

    name: str = Field(description="name of the field")
    description: str = Field(description="what it means, and its unit")
    required: bool = Field(description="whether a request must have it")
    default: Any = Field(description="its value when absent; null where there is none")
    values: list[str | int] = Field(
        description="allowed values, of the field or of its entries; empty where it is no choice"
    )


class WorkloadOut(BaseModel):
    """A kind of workload, or one form of it."""

    kind: str = Field(description="value of `kind` in the workload of a request")
    form: str = Field(description="search space of an architecture; else the kind")
    title: str = Field(description="what it is, in a few words")
    endpoint: str = Field(description="path that answers it, by POST")
    fields: list[FieldOut] = Field(description="its fields")
    metrics: list[str] = Field(description="metrics of it; for a benchmark, see `suites`")
    devices: list[str] = Field(
        description="names of the devices on which such workloads were measured, where these are "
        "no devices of GET /v1/devices; empty otherwise"
    )
    example: dict[str, Any] = Field(description="body of a valid request")


class SettingOut(BaseModel):
    """A setting of a benchmark suite."""

    name: str = Field(description="name of the setting")
    meaning: str = Field(description="what it means, where the name does not say it")
    required: bool = Field(description="whether a test must have it")
    values: list[str] = Field(description="allowed texts; empty for numbers and free texts")
    low: float | None = Field(description="smallest number in the training set; null for texts")
    high: float | None = Field(description="largest number in the training set; null for texts")


class SuiteOut(BaseModel):
    """A benchmark suite."""

    name: str = Field(description="value of `suite`")
    settings: list[SettingOut] = Field(description="settings of its tests")
    metrics: list[str] = Field(description="metrics that its tests may have")
    kinds: list[str] = Field(description="kinds of device that it runs on")
    devices: list[str] = Field(
        description="measured devices that are not in GET /v1/devices, by the names that requests "
        "may use"
    )


class HlsProgramOut(BaseModel):
    """A program for high-level synthesis."""

    name: str = Field(description="value of `program` in a hardware design")
    slots: list[str] = Field(description="slots for directives")


class WorkloadsOut(BaseModel):
    """What can be asked about, with one valid example of each kind."""

    workloads: list[WorkloadOut] = Field(description="kinds of workload")
    networks: list[str] = Field(description="names of networks whose graphs are known")
    programs: list[HlsProgramOut] = Field(description="programs for hardware designs")
    suites: list[SuiteOut] = Field(description="benchmark suites of the predictor in use")


class PresetOut(BaseModel):
    """A named question that is valid as it stands."""

    name: str = Field(description="name of the preset")
    title: str = Field(description="the question, in one line")
    kind: str = Field(description="kind of workload")
    endpoint: str = Field(description="path that answers it, by POST")
    request: dict[str, Any] = Field(description="body of the request")
    note: str = Field(description="source of the workload, and what to know about the answer")


class PresetsOut(BaseModel):
    """Named questions of every kind of workload."""

    presets: list[PresetOut] = Field(description="presets, grouped by kind of workload")
