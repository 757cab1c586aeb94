"""Cycles and area of hardware designs: boosters over programs, a process on a program's few rows.

Three sets of boosters share the work: for programs that teach, for programs never
seen, and for differences within programs only. The latter two learn logarithms over a bound
of `features.directives`. Once some designs of a program are measured, `DesignGaussianProcess` takes
over for that program; the trees of the third set tell it which designs are alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Design
from forerun.features.hls.directives import coordinates
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.hls_designs.features import (
    BOUND_COLUMNS,
    FEATURES,
    LEAST,
    METRICS,
    ROUNDED,
    Key,
    design_of,
    deviations_within,
    feature_matrix,
    from_logarithm,
    log_bound,
    log_over_bound,
    place_matrix,
    program_key,
    unit_rows,
)
from forerun.models.hls_designs.gaussian_process import (
    DesignGaussianProcess,
    DesignInputs,
    spread_rows,
)
from forerun.models.hls_designs.support_set import SupportDesigns
from forerun.models.prediction import Predictions

Column = NDArray[np.float64]
Matrix = NDArray[np.float64]
SHOTS = 20
"""Designs of a program, when the width after adapting is measured."""

COVERAGE = 0.9

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "seen": {
        "learning_rate": 0.08,
        "num_leaves": 63,
        "min_data_in_leaf": 3,
        "feature_fraction": 0.5,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
        "objective": "l2",
    },
    "unseen": {
        "learning_rate": 0.08,
        "num_leaves": 8,
        "min_data_in_leaf": 100,
        "feature_fraction": 0.3,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 20.0,
        "objective": "l2",
    },
    "within": {
        "learning_rate": 0.1,
        "num_leaves": 24,
        "min_data_in_leaf": 10,
        "feature_fraction": 0.4,
        "bagging_fraction": 0.8,
        "bagging_freq": 1,
        "lambda_l2": 1.0,
        "objective": "l2",
    },
}
TREES: Mapping[str, int] = {"seen": 400, "unseen": 150, "within": 100}
BAGS: Mapping[str, int] = {"seen": 1, "unseen": 3, "within": 1}


@dataclass(frozen=True)
class DesignBoost:
    """Designs of programs never seen, seen in training, or known from a few of their rows.

    Attributes:
        seed: of boosters and draws.
        trees: set of boosters -> rounds.
        calibrated: whether `fit` makes intervals.
        boosters: `SET/METRIC` -> bag, once fitted.
        scales: median deviation within programs of each feature in `BOUNDS`.
        ranges: of features in training.
        programs: (digest, tool version) of programs that taught.
        widths: `seen`, `unseen`, `shown` -> metric -> half-width of the interval; in log2, for
            `shown` in deviations of the process.
        shown: program -> designs adapted to.
    """

    seed: int = 0
    trees: Mapping[str, int] = field(default_factory=lambda: dict(TREES))
    calibrated: bool = True
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    scales: tuple[float, ...] = ()
    ranges: FeatureRange | None = None
    programs: tuple[Key, ...] = ()
    widths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    shown: Mapping[Key, SupportDesigns] = field(default_factory=dict)
    name: ClassVar[str] = "design_boost"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Cycles and four shares of the chip."""
        return METRICS

    def answers(self, query: Query) -> bool:
        """Designs, once fitted."""
        return bool(self.boosters) and isinstance(query.workload, Design)

    def fit(self, measurements: Measurements) -> Self:
        """Fit three sets of boosters.

        Args:
            measurements: designs with the five metrics and the group `kernel`, the program.
        """
        queries, matrix = measurements.queries, feature_matrix(measurements.queries)
        tools = np.array([str(query.software.version) for query in queries])
        program = np.char.add(np.char.add(measurements.groups["kernel"], " "), tools)
        _, place, counts = np.unique(program, return_inverse=True, return_counts=True)
        weights = 1.0 / np.sqrt(counts[place])
        every = np.hstack([matrix, place_matrix(queries)])
        boosters: dict[str, BoosterBag] = {}
        for metric in METRICS:
            over = log_over_bound(metric, measurements.values[metric], matrix)
            mean = np.bincount(place, over) / counts
            targets = {
                "seen": over if metric == "latency_cycles" else measurements.values[metric],
                "unseen": over,
                "within": over - mean[place],
            }
            for kind, target in targets.items():
                boosters[f"{kind}/{metric}"] = BoosterBag.fit(
                    every if kind == "seen" else matrix,
                    target,
                    parameters=SETTINGS[kind],
                    trees=self.trees[kind],
                    seeds=range(self.seed * 100 + 1, self.seed * 100 + 1 + BAGS[kind]),
                    weights=None if kind == "seen" else weights / weights.mean(),
                )
        fitted = replace(
            self,
            boosters=boosters,
            scales=deviations_within(matrix[:, BOUND_COLUMNS], place),
            ranges=FeatureRange.of(FEATURES, matrix),
            programs=tuple(sorted({program_key(query) for query in queries})),
            widths={},
            shown={},
        )
        if not self.calibrated:
            return fitted
        from forerun.models.hls_designs.intervals import calibrated_widths

        return replace(fitted, widths=calibrated_widths(self, measurements))

    def adapt(self, measurements: Measurements) -> Self:
        """Take measured designs into account, in place of earlier ones of the same programs."""
        keys = [program_key(query) for query in measurements.queries]
        shown = dict(self.shown)
        for key in sorted(set(keys)):
            rows = [row for row, other in enumerate(keys) if other == key]
            shown[key] = SupportDesigns(
                tuple(measurements.queries[row] for row in rows),
                {m: v[rows] for m, v in measurements.values.items() if m in METRICS},
            )
        return replace(self, shown=shown)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Answers with intervals; those of a program that was adapted to come from its process."""
        matrix = feature_matrix(queries)
        keys = [program_key(query) for query in queries]
        values, low, high = {}, {}, {}
        for metric in METRICS:
            middle, half = self.in_logarithms(metric, queries, matrix)
            bound = log_bound(metric, matrix)
            values[metric] = np.maximum(from_logarithm(metric, middle + bound), LEAST)
            low[metric] = np.minimum(from_logarithm(metric, middle - half + bound), values[metric])
            if metric != "latency_cycles":
                low[metric] = np.where(low[metric] < ROUNDED, 0.0, low[metric])
            high[metric] = np.maximum(from_logarithm(metric, middle + half + bound), values[metric])
        limits = [self._limits(key, row) for key, row in zip(keys, matrix, strict=True)]
        if not self.widths:
            return Predictions(values, limits=limits)
        return Predictions(values, low, high, COVERAGE, limits)

    def in_logarithms(
        self, metric: str, queries: Sequence[Query], matrix: Matrix
    ) -> tuple[Column, Column]:
        """log2 over the bound, and half the interval's width (1 deviation while uncalibrated).

        Args:
            metric: one of `METRICS`.
            queries: n designs.
            matrix: their features.
        """
        middle, half = np.zeros(len(queries)), np.zeros(len(queries))
        keys = [program_key(query) for query in queries]
        for key in sorted(set(keys)):
            rows = np.array([row for row, other in enumerate(keys) if other == key], dtype=np.intp)
            mine = [queries[row] for row in rows]
            process = self._process(metric, key)
            if process is not None:
                answer, spread = process.predict(self._places(metric, mine, matrix[rows]))
                middle[rows], half[rows] = answer, spread * self._width("shown", metric)
                continue
            kind = "seen" if key in self.programs else "unseen"
            middle[rows] = self._boosted(kind, metric, mine, matrix[rows])
            half[rows] = self._width(kind, metric)
        return middle, half

    def _boosted(self, kind: str, metric: str, queries: Sequence[Query], matrix: Matrix) -> Column:
        """Answers of a set of boosters as log2 over the bound."""
        bag = self.boosters[f"{kind}/{metric}"]
        if kind == "unseen":
            return bag.predict(matrix)
        answer = bag.predict(np.hstack([matrix, place_matrix(queries)]))
        if metric == "latency_cycles":
            return answer
        return log_over_bound(metric, np.maximum(answer, 0.0), matrix)

    def _width(self, kind: str, metric: str) -> float:
        return self.widths.get(kind, {}).get(metric, 1.0)

    def _process(self, metric: str, key: Key) -> DesignGaussianProcess | None:
        shown = self.shown.get(key)
        measured = None if shown is None else shown.values.get(metric)
        if shown is None or measured is None or np.isfinite(measured).sum() < 2:
            return None
        rows = np.flatnonzero(np.isfinite(measured))
        queries = [shown.queries[row] for row in rows]
        matrix = feature_matrix(queries)
        over = log_over_bound(metric, measured[rows], matrix)
        return DesignGaussianProcess.of(self._places(metric, queries, matrix), over, self.seed)

    def _places(self, metric: str, queries: Sequence[Query], matrix: Matrix) -> DesignInputs:
        outputs = self.boosters[f"within/{metric}"].tree_outputs(matrix)
        directives = np.array([coordinates(design_of(query)) for query in queries])
        bounds = matrix[:, BOUND_COLUMNS] / np.array(self.scales)
        return DesignInputs((bounds, directives, outputs), outputs.sum(axis=1))

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Designs of one program that lie far apart in directives and in the boosters' eyes."""
        matrix = feature_matrix(queries)
        parts = [np.array([coordinates(design_of(query)) for query in queries])]
        parts += [
            0.7 * unit_rows(self.boosters[f"within/{m}"].tree_outputs(matrix)) for m in METRICS
        ]
        parts[0] = unit_rows(parts[0])
        return spread_rows(np.hstack(parts), count, seed)

    def _limits(self, key: Key, row: Column) -> tuple[str, ...]:
        if key in self.shown or key in self.programs:
            return ()
        assert self.ranges is not None
        new = f"no design of this program was measured; {len(self.programs)} others teach"
        return (new, *self.ranges.outside(row))

    def save(self, folder: Path) -> None:
        """Boosters as LightGBM text, the rest as JSON."""
        ranges = None if self.ranges is None else self.ranges.to_json()
        parameters = {
            "seed": self.seed,
            "trees": dict(self.trees),
            "calibrated": self.calibrated,
            "boosters": {name: len(bag.texts) for name, bag in self.boosters.items()},
            "scales": self.scales,
            "features": FEATURES,
            "ranges": ranges,
            "programs": self.programs,
            "widths": {kind: dict(metrics) for kind, metrics in self.widths.items()},
            "shown": [shown.to_json() for shown in self.shown.values()],
        }
        write_content(folder, self.name, parameters)
        for name, bag in self.boosters.items():
            bag.save(folder, name.replace("/", "-"))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or was fitted on other features.
        """
        content = read_content(folder, cls.name)
        FeatureRange.check_names(folder, FEATURES, content["features"])
        shown = [SupportDesigns.from_json(one) for one in content["shown"]]
        return cls(
            seed=content["seed"],
            trees=content["trees"],
            calibrated=content["calibrated"],
            boosters={
                name: BoosterBag.load(folder, name.replace("/", "-"), count)
                for name, count in content["boosters"].items()
            },
            scales=tuple(content["scales"]),
            ranges=FeatureRange.from_json(content["ranges"]) if content["ranges"] else None,
            programs=tuple((one[0], one[1]) for one in content["programs"]),
            widths=content["widths"],
            shown={program_key(one.queries[0]): one for one in shown},
        )
