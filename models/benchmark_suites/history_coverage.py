"""Which systems are in the training set: how much history a query has, and which keys are new."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from forerun.data.columns import Names
from forerun.data.query import Query
from forerun.data.workload import Benchmark
from forerun.models.gaussian_process.additive_categorical import KeyedRows
from forerun.models.limit import Limit

HISTORIES = (
    ("system", ("submitter", "part", "model", "scenario", "stack")),
    ("part", ("part", "model", "scenario", "stack")),
    ("device", ("device", "base")),
    ("model", ("base", "kind")),
)
"""(level, keys) from the most to the least specific. A query's level of history is the first one
whose keys have the same values in a row of the training set."""

NOTHING = "nothing"
"""Level of a query without history."""
YEARS_AHEAD = 1.0
"""A query about a round later than the last one by more than this many years has a limit."""


@dataclass(frozen=True)
class HistoryCoverage:
    """Values of the keys in the training set.

    Attributes:
        suites: names of the suites.
        known: level of history -> joined values of its keys.
        values: key -> its values.
        years: first and last round, in years since v2.0.
        scale: largest centred logarithm of a number of devices.
    """

    suites: tuple[str, ...] = ()
    known: Mapping[str, frozenset[str]] = field(default_factory=dict)
    values: Mapping[str, frozenset[str]] = field(default_factory=dict)
    years: tuple[float, float] = (0.0, 0.0)
    scale: float = 0.0

    @classmethod
    def of(cls, queries: Sequence[Query], rows: KeyedRows) -> Self:
        """Coverage of n training queries, given with their rows."""
        suites = {q.workload.suite for q in queries if isinstance(q.workload, Benchmark)}
        known = {level: frozenset(_joined(rows, keys)) for level, keys in HISTORIES}
        values = {
            key: frozenset(np.unique(rows.keys[key]).tolist())
            for key in ("base", "scenario", "device")
        }
        time, scale = rows.numbers["time"], rows.numbers["scale"]
        years = (float(time.min()), float(time.max()))
        return cls(tuple(sorted(suites)), known, values, years, float(scale.max()))

    def strata(self, rows: KeyedRows) -> Names:
        """Level of history of each row, shape (n,)."""
        levels = np.full(len(rows), NOTHING, dtype="<U16")
        for level, keys in reversed(HISTORIES):
            known = [text in self.known.get(level, ()) for text in _joined(rows, keys)]
            levels[np.array(known, dtype=np.bool_)] = level
        return levels

    def limits(self, queries: Sequence[Query], rows: KeyedRows) -> list[tuple[Limit, ...]]:
        """Limits: what in each of n queries lies outside the training set."""
        limits = []
        for row, query in enumerate(queries):
            model, scenario = rows.keys["base"][row], rows.keys["scenario"][row]
            lines = []
            if model not in self.values.get("base", ()):
                lines.append(f"no result of the model {model} was seen")
            if scenario not in self.values.get("scenario", ()):
                lines.append(f"no result of the scenario {scenario} was seen")
            if rows.keys["device"][row] not in self.values.get("device", ()):
                sheet = "" if query.device.has_sheet else ", and it has no spec sheet"
                lines.append(f"no result of this device was seen{sheet}")
            if rows.numbers["scale"][row] > self.scale + 1e-9:
                count = query.operation.device_count
                lines.append(f"{count} devices are more than any system seen had")
            if rows.numbers["time"][row] > self.years[1] + YEARS_AHEAD:
                lines.append("the round is more than a year after the last one seen")
            limits.append(tuple(map(Limit, lines)))
        return limits


def _joined(rows: KeyedRows, keys: Sequence[str]) -> list[str]:
    columns = [rows.keys[key].tolist() for key in keys]
    return ["|".join(texts) for texts in zip(*columns, strict=True)]
