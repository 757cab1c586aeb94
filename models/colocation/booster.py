"""P of programs beside neighbours: boosters on window statistics, and a program's own mean."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation
from forerun.features.host_windows import NAMES, RESOURCES, Resource, metrics_of
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.colocation.base import ColocationBase, Engine
from forerun.models.colocation.features import METRICS, ColocationRows, Column, colocation_of
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.prediction import Predictions

VIEWS: Mapping[str, tuple[tuple[Resource, ...], ...]] = {
    "p_cpu": (
        ("cache", "disk"),
        ("cache", "memory_bandwidth"),
        ("cache", "cpu", "network"),
        RESOURCES,
    ),
    "p_wall": (("cpu",), ("cpu", "cache", "memory_bandwidth"), RESOURCES),
}
"""Metric -> what each part of the committee looks at. The median over them is nearer than any of
them beside neighbours held out, because what one view overfits another does not see; wall time goes
by who has the CPU, CPU time by the caches."""

TREES = 200
PARAMETERS: dict[str, Any] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
}


@dataclass(frozen=True)
class BoostEngine:
    """A committee of boosters; the answer is their median.

    Attributes:
        metric: that it answers.
        views: one booster bag each.
    """

    metric: str
    views: tuple[BoosterBag, ...]

    @classmethod
    def fit(cls, metric: str, rows: ColocationRows, target: Column, seeds: Sequence[int]) -> Self:
        """One bag a view."""
        bags = [
            BoosterBag.fit(
                rows.matrix(_places(view)), target, parameters=PARAMETERS, trees=TREES, seeds=seeds
            )
            for view in VIEWS[metric]
        ]
        return cls(metric, tuple(bags))

    def predict(self, rows: ColocationRows) -> Column:
        """Median over views, shape (n,)."""
        each = [
            bag.predict(rows.matrix(_places(view)))
            for view, bag in zip(VIEWS[self.metric], self.views, strict=True)
        ]
        found: Column = np.median(each, axis=0)
        return found

    def save(self, folder: Path, name: str) -> None:
        """One file a booster."""
        for place, bag in enumerate(self.views):
            bag.save(folder, f"{name}-{place}")

    @classmethod
    def load(cls, folder: Path, name: str) -> Self:
        """The engine that `save` wrote.

        Raises:
            BadArtifact: a file is missing.
        """
        places = range(len(VIEWS[name]))
        counts = [len(list(folder.glob(f"{name}-{p}-*.txt.*"))) for p in places]
        bags = [BoosterBag.load(folder, f"{name}-{p}", max(n, 1)) for p, n in enumerate(counts)]
        return cls(name, tuple(bags))


@dataclass(frozen=True)
class ColocationBoost(ColocationBase):
    """LightGBM on window statistics and the program's profile."""

    name: ClassVar[str] = "colocation_boost"
    bags: int = 2

    def engine(self, metric: str, rows: ColocationRows, target: Column) -> Engine:
        """A committee."""
        return BoostEngine.fit(metric, rows, target, range(self.seed, self.seed + self.bags))

    def lighter(self) -> Self:
        """One booster a view."""
        return replace(self, bags=1)

    @classmethod
    def load_engine(cls, folder: Path, name: str) -> Engine:
        """The committee that was saved under that name."""
        return BoostEngine.load(folder, name)


@dataclass(frozen=True)
class ProgramMean:
    """The mean P of a program whatever is beside it, or of all programs: a baseline.

    Attributes:
        means: (metric, program) -> mean.
        common: metric -> mean over programs.
    """

    name: ClassVar[str] = "program_mean"
    means: dict[tuple[str, str], float] = field(default_factory=dict)
    common: dict[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that training measured; both before it."""
        return tuple(m for m in METRICS if m in self.common or not self.common)

    def answers(self, query: Query) -> bool:
        """Programs beside neighbours, once anything was taught."""
        return isinstance(query.workload, Colocation) and bool(self.common)

    def fit(self, measurements: Measurements) -> Self:
        """Means of each metric."""
        programs = np.array([colocation_of(q).profile.program for q in measurements.queries])
        means: dict[tuple[str, str], float] = {}
        common: dict[str, float] = {}
        for metric in METRICS:
            values = measurements.values.get(metric, np.full(len(programs), np.nan))
            own = {
                str(name): float(np.nanmean(values[programs == name]))
                for name in np.unique(programs)
                if np.isfinite(values[programs == name]).any()
            }
            if own:
                common[metric] = float(np.mean(list(own.values())))
                means |= {(metric, name): mean for name, mean in own.items()}
        return replace(self, means=means, common=common)

    def adapt(self, measurements: Measurements) -> Self:
        """Means of programs that were not known."""
        other = type(self)().fit(measurements)
        return replace(self, means={**other.means, **self.means})

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Means, without intervals."""
        names = [colocation_of(query).profile.program for query in queries]
        values = {
            m: np.array([self.means.get((m, name), self.common[m]) for name in names])
            for m in self.metrics
        }
        return Predictions(values)

    def save(self, folder: Path) -> None:
        """All as JSON."""
        means = [[*key, value] for key, value in sorted(self.means.items())]
        write_content(folder, self.name, {"means": means, "common": self.common})

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged.
        """
        content = read_content(folder, cls.name)
        means = {(metric, name): value for metric, name, value in content["means"]}
        return cls(means, content["common"])


def _places(view: Sequence[Resource]) -> list[int]:
    names = {name for resource in view for name in metrics_of(resource)}
    return [place for place, name in enumerate(NAMES) if name in names]
