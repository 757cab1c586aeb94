"""Cumulative counters and gauges, and rates of counters between two readings."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

WIDTHS = (2.0**32, 2.0**64)
WRAP_SHARE = 0.25
"""A counter that falls has wrapped only where it moved less than this share of its width."""

LATE = 1.5
"""Readings further apart than this many intervals of the clock leave a gap."""


@dataclass
class Reading:
    """Values of sources at one time, by name; values that could not be read are missing.

    Attributes:
        cumulative: counters that only grow.
        gauges: instantaneous values.
    """

    cumulative: dict[str, float] = field(default_factory=dict)
    gauges: dict[str, float] = field(default_factory=dict)

    def add(self, other: "Reading") -> None:
        """Add the values of another reading."""
        self.cumulative |= other.cumulative
        self.gauges |= other.gauges


class Readable(Protocol):
    """A source that is read on the clock.

    Attributes:
        name: name of the source in `sources.json`.
    """

    @property
    def name(self) -> str:
        """Name of the source in `sources.json`."""
        ...

    def read(self, root: Path) -> Reading:
        """Its numbers now.

        Args:
            root: root of the file system, another one in tests.

        Raises:
            OSError: it is not there or may not be read.
            ValueError: its text is not understood.
        """
        ...


@dataclass(frozen=True)
class Missing:
    """A source that this machine does not have.

    Attributes:
        name: name of the source in `sources.json`.
        reason: why it is missing.
    """

    name: str
    reason: str

    def read(self, root: Path) -> Reading:
        """Nothing.

        Raises:
            OSError: always.
        """
        raise OSError(self.reason)


def growth(before: float, after: float) -> float:
    """How far a counter moved, through a wrap of 32 or 64 bits; NaN where it was set back."""
    if after >= before:
        return after - before
    for width in WIDTHS:
        moved = (width - before) + after
        if before < width and moved <= WRAP_SHARE * width:
            return moved
    return math.nan


def rates(
    before: Mapping[str, float], after: Mapping[str, float], seconds: float
) -> dict[str, float]:
    """Rate per second of every counter of the later reading; NaN where the earlier one lacks it.

    Args:
        before: name -> value of cumulative counters.
        after: the same, later.
        seconds: monotonic time between them; rates of no time are NaN.
    """
    if not seconds > 0:
        return dict.fromkeys(after, math.nan)
    return {
        name: growth(before.get(name, math.nan), value) / seconds for name, value in after.items()
    }


def is_gap(seconds: float, interval_s: float) -> bool:
    """Whether readings that should be one interval apart are so far apart that some are missing.

    Time that ran backwards is a gap too.
    """
    return not 0 < seconds <= LATE * interval_s
