"""Benchmark suites in a training set: their settings, allowed values, metrics and devices."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from forerun.data.query import Query
from forerun.data.spec_sheet import DeviceKind


@dataclass(frozen=True)
class KnownSetting:
    """A setting of a suite.

    Attributes:
        name: name of the setting.
        values: allowed texts, sorted; empty for a number or free text.
        low, high: range of a number in the training set; None for a text.
        required: whether a test is meaningless without it.
        meaning: a short explanation where the name is not enough.
    """

    name: str
    values: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    required: bool = False
    meaning: str = ""


@dataclass(frozen=True)
class KnownSuite:
    """A suite in the training set.

    Attributes:
        name: name of the suite.
        settings: its settings.
        metrics: metrics that its tests may have.
        kinds: kinds of device that it runs on.
        devices: names of measured devices without a spec sheet -> their kind.
        alone: names of the devices that it is answered for; empty for all of `kinds`.
    """

    name: str
    settings: tuple[KnownSetting, ...]
    metrics: tuple[str, ...]
    kinds: tuple[DeviceKind, ...]
    devices: Mapping[str, DeviceKind] = field(default_factory=dict)
    alone: tuple[str, ...] = ()


@runtime_checkable
class KnowsSuites(Protocol):
    """A predictor of benchmark suites."""

    def known_suites(self) -> tuple[KnownSuite, ...]:
        """The suites in the training set."""
        ...

    def usual_settings(self, query: Query) -> Mapping[str, float | str]:
        """Settings common in training rows like the query, for those that it leaves out."""
        ...
