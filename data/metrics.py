"""The only table of metrics: unit, printed form, and how operators combine into a workload.

Everything that needs to know a metric (schemas, scores, HTTP, documentation) reads `METRICS`, which
comes from `metrics.toml`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from forerun.data.facts import facts_of

Combine = Literal["sum", "max", "time_mean"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One measurable quantity of a run.

    Attributes:
        name: column and field name; ends in its unit where it has one.
        unit: printed unit.
        combine: how operators' values combine: `sum`, `max`, or `time_mean` (weighted by latency).
        meaning: one line for schemas and documentation.
    """

    name: str
    unit: str
    combine: Combine
    meaning: str

    def text(self, value: float | None) -> str:
        """The value with its unit for display; `not known` if it is None."""
        if value is None:
            return "not known"
        return with_unit(value, self.unit)


def with_unit(value: float, unit: str) -> str:
    """A value with its unit for display."""
    figures = f"{value:,.0f}" if 1e4 <= abs(value) < 1e9 else f"{value:,.4g}"
    return f"{figures} {unit}".rstrip()


_TABLE: Final[Mapping[str, Mapping[str, Mapping[str, Any]]]] = facts_of(__file__)
_FIELDS: Final = ("unit", "combine", "meaning")


def _of(group: str) -> tuple[Metric, ...]:
    rows = _TABLE[group].items()
    return tuple(Metric(name, *(entry[field] for field in _FIELDS)) for name, entry in rows)


METRICS: Final = _of("run")
"""Metrics of one run on one device."""
DESIGN_METRICS: Final = _of("design")
"""Metrics of a hardware design or a benchmark; estimated shares of a chip may exceed 1."""
SERVING_METRICS: Final = _of("serving")
"""Metrics of a model that serves requests in steady state."""
CONTENTION_METRICS: Final = _of("contention")
"""Relative speeds of a co-located program; values above 1 are possible."""
_ALL: Final = {name: own for group in _TABLE.values() for name, own in group.items()}
TITLES: Final[Mapping[str, str]] = {name: own["title"] for name, own in _ALL.items()}
"""Metric -> heading of its column or chart, on every page."""
SHARES: Final = frozenset(name for name, own in _ALL.items() if own.get("share"))
"""Metrics on a scale from 0 to about 1, for which the width of an interval is a difference, not a
ratio."""


def metric(name: str) -> Metric:
    """The metric of that name.

    Raises:
        KeyError: no metric has that name.
    """
    return _BY_NAME[name]


_BY_NAME = {own.name: own for group in _TABLE for own in _of(group)}
