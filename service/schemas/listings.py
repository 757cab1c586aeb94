"""Answers of the paths that list what the service has: kinds of workload, presets, readiness."""

from typing import Any

from pydantic import AwareDatetime

from forerun.data.described import Described
from forerun.service.presets import PresetOut


class DifferenceOut(Described):
    """How far the candidate's answers differ from the champion's."""

    answers: int
    """answers of both that were compared"""
    mean_percent: float
    """mean absolute difference of the best estimates, percent of the champion's"""


class TrialOut(Described):
    """A candidate on trial, and how its answers differ from the champion's."""

    version: str
    """version of the candidate"""
    canary_share: float
    """share of the questions that it answers"""
    shadow_share: float
    """share of the questions that it answers as well, to be compared"""
    compared: int
    """questions that both answered, since the service started"""
    failed: int
    """questions that only the candidate failed to answer"""
    left_out: int
    """questions that were not compared, for lack of time"""
    differences: dict[str, DifferenceOut]
    """metric -> difference of the answers"""


class RegistryOut(Described):
    """The latest answer of the registry."""

    version: str | None
    """version of the champion fetched last; null for none"""
    asked: AwareDatetime
    """time of the latest query"""
    answered: bool
    """whether it answered with a usable champion, or that there is none; otherwise the log gives
    the reason"""


class ReadyOut(Described):
    """Whether the service answers questions, whether it can store, and what answers."""

    status: str
    """status of the service: ok"""
    storing: bool
    """whether graphs, devices and measurements can be stored"""
    not_storing: str | None
    """why they cannot be stored and how to correct it; null if they can"""
    version: str
    """version of the predictor in use"""
    registry: RegistryOut | None = None
    """the registry; null without one, and before it was asked"""


class FieldOut(Described):
    """A field of a kind of workload."""

    name: str
    """name of the field"""
    description: str
    """what it means, and its unit"""
    required: bool
    """whether a request must have it"""
    default: Any
    """its value when absent; null where there is none"""
    values: list[str | int]
    """allowed values, of the field or of its entries; empty where it is no choice"""


class WorkloadOut(Described):
    """A kind of workload, or one form of it."""

    kind: str
    """value of `kind` in the workload of a request"""
    form: str
    """search space of an architecture; else the kind"""
    title: str
    """what it is, in a few words"""
    endpoint: str
    """path that answers it, by POST"""
    fields: list[FieldOut]
    """its fields"""
    metrics: list[str]
    """metrics of it; for a benchmark, see `suites`"""
    devices: list[str]
    """devices on which such workloads were measured, if they are not in GET /v1/devices; else
    empty"""
    example: dict[str, Any]
    """body of a valid request"""


class SettingOut(Described):
    """A setting of a benchmark suite."""

    name: str
    """name of the setting"""
    meaning: str
    """what it means, where the name does not say it"""
    required: bool
    """whether a test must have it"""
    values: list[str]
    """allowed texts; empty for numbers and free texts"""
    low: float | None
    """smallest number in the training set; null for texts"""
    high: float | None
    """largest number in the training set; null for texts"""


class SuiteOut(Described):
    """A benchmark suite."""

    name: str
    """value of `suite`"""
    settings: list[SettingOut]
    """settings of its tests"""
    metrics: list[str]
    """metrics that its tests may have"""
    kinds: list[str]
    """kinds of device that it runs on"""
    devices: list[str]
    """measured devices that are not in GET /v1/devices, by the names that requests may use"""


class HlsProgramOut(Described):
    """A program for high-level synthesis."""

    name: str
    """value of `program` in a hardware design"""
    slots: list[str]
    """slots for directives"""


class WorkloadsOut(Described):
    """What can be asked about, with one valid example of each kind."""

    workloads: list[WorkloadOut]
    """kinds of workload"""
    networks: list[str]
    """names of networks whose graphs are known"""
    programs: list[HlsProgramOut]
    """programs for hardware designs"""
    suites: list[SuiteOut]
    """benchmark suites of the predictor in use"""


class PresetsOut(Described):
    """Named questions of every kind of workload."""

    presets: list[PresetOut]
    """presets, grouped by kind of workload"""
