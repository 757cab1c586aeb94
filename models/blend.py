"""The geometric mean of predictors that err apart."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.artifact import load_part, read_content, write_content
from forerun.models.prediction import Column, Predictions
from forerun.models.predictor import Predictor


@dataclass(frozen=True)
class Blend:
    """Several predictors of the same metrics, asked together.

    Bounds are geometric means too: right where the parts err together, wider than need be where
    they do not. A row without a bound from every part has none.

    Attributes:
        parts: at least one.
    """

    parts: tuple[Predictor, ...]
    name: ClassVar[str] = "blend"

    @property
    def metrics(self) -> tuple[str, ...]:
        """What all parts answer."""
        first, *others = self.parts
        return tuple(m for m in first.metrics if all(m in part.metrics for part in others))

    def answers(self, query: Query) -> bool:
        """True when all parts answer."""
        return all(part.answers(query) for part in self.parts)

    def fit(self, measurements: Measurements) -> Self:
        """Every part fitted on all rows."""
        return replace(self, parts=tuple(part.fit(measurements) for part in self.parts))

    def adapt(self, measurements: Measurements) -> Self:
        """Every part adapted on all rows."""
        return replace(self, parts=tuple(part.adapt(measurements) for part in self.parts))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Geometric means; limits of all parts, each line once."""
        given = [part.predict(queries) for part in self.parts]
        values = {m: _mean([g.values[m] for g in given]) for m in self.metrics}
        known = [m for m in self.metrics if _bounded(given, m)]
        return Predictions(
            values,
            {m: _mean([g.low[m] for g in given]) for m in known},
            {m: _mean([g.high[m] for g in given]) for m in known},
            _coverage(given, self.metrics),
            [
                tuple(dict.fromkeys(line for g in given if g.limits for line in g.limits[row]))
                for row in range(len(queries))
            ],
            _breakdowns(given, values.get("latency_ms")),
        )

    def save(self, folder: Path) -> None:
        """Each part in a folder of its own."""
        names = [f"{place:02d}-{part.name}" for place, part in enumerate(self.parts)]
        write_content(folder, self.name, {"parts": names})
        for name, part in zip(names, self.parts, strict=True):
            part.save(folder / name)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote."""
        names = read_content(folder, cls.name)["parts"]
        return cls(tuple(load_part(folder / Path(name).name) for name in names))


def _bounded(given: Sequence[Predictions], metric: str) -> bool:
    return all(metric in one.low and metric in one.high for one in given)


def _mean(columns: Sequence[Column]) -> Column:
    return np.asarray(np.exp(np.mean(np.log(columns), axis=0)))


def _coverage(given: Sequence[Predictions], metrics: Sequence[str]) -> dict[str, float | None]:
    """What all parts promise, where they promise the same."""
    promised = {m: {one.coverage_of(m) for one in given} for m in metrics}
    return {m: found.pop() if len(found) == 1 else None for m, found in promised.items()}


def _breakdowns(
    given: Sequence[Predictions], latency: Column | None
) -> Sequence[Mapping[str, float]]:
    """Mean shares of the operator classes, adding up to the blended latency."""
    if latency is None or not all(one.breakdowns_ms for one in given):
        return ()
    found = []
    for row, whole in enumerate(latency.tolist()):
        shares: dict[str, float] = {}
        for one in given:
            parts = one.breakdowns_ms[row]
            total = sum(parts.values())
            for name, value in parts.items():
                shares[name] = shares.get(name, 0.0) + value / total / len(given)
        found.append({name: share * whole for name, share in shares.items()})
    return found
