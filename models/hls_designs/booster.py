"""Cycles and area of hardware designs: boosters over all programs, few-shot adaptation to one.

There are three sets of boosters. `seen` predicts programs of the training set from differences to
the nearest designs there (`KnownDesigns`), `unseen` predicts all others, and `within` is trained on
differences from a program's mean. The latter two predict logarithms relative to an analytical bound
of `features.hls.directives`. For programs of the training set, answers average `seen` and a graph
network over loops, `LoopNetwork`.

Once some designs of a program are measured, `DesignGaussianProcess` predicts that program; one of
its similarity measures uses the tree outputs of `within`. Intervals are calibrated on held-out
programs and held-out designs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.columns import Column, Matrix, Positions, groups_of, rows_by
from forerun.data.level import LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.split import fold_of
from forerun.data.workload import Design
from forerun.features.hls.directives import PLACE_COLUMNS, coordinates
from forerun.features.hls.loop_tree import LOOP_FEATURES
from forerun.models.adaptation.support_set import farthest_points
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import held_out_folds, weighted_quantile
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.hls_designs.features import (
    ARE_SHARES,
    BOUND_COLUMNS,
    FEATURES,
    FLOORS,
    LEAST,
    METRICS,
    NETWORK_FEATURES,
    ROUNDED,
    Key,
    by_metric,
    deviations_within,
    feature_matrix,
    from_logarithms,
    log_bounds,
    log_values,
    place_matrix,
    program_key,
    unit_rows,
)
from forerun.models.hls_designs.gaussian_process import (
    DesignGaussianProcess,
    DesignInputs,
    SupportDesigns,
)
from forerun.models.hls_designs.known_designs import KnownDesigns, Nearest
from forerun.models.hls_designs.limits import chip_limits
from forerun.models.hls_designs.loop_network import LoopNetwork, LoopShape, averaged
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

COMMON: Mapping[str, Any] = {"bagging_fraction": 0.8, "bagging_freq": 1, "objective": "l2"}
"""Parameters of all boosters."""
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "seen": {
        "learning_rate": 0.12,
        "num_leaves": 63,
        "min_data_in_leaf": 9,
        "feature_fraction": 0.5,
        "lambda_l2": 1.0,
    },
    "unseen": {
        "learning_rate": 0.08,
        "num_leaves": 8,
        "min_data_in_leaf": 100,
        "feature_fraction": 0.3,
        "lambda_l2": 20.0,
    },
    "within": {
        "learning_rate": 0.1,
        "num_leaves": 24,
        "min_data_in_leaf": 10,
        "feature_fraction": 0.4,
        "lambda_l2": 1.0,
    },
}
"""Set of boosters -> further parameters."""
TREES: Mapping[str, int] = {"seen": 150, "unseen": 150, "within": 100}
"""Set of boosters -> boosting rounds."""
BAGS: Mapping[str, int] = {"seen": 1, "unseen": 3, "within": 1}
"""Set of boosters -> number of averaged boosters."""
MEMBERS = 2
"""Number of averaged networks."""
SHOTS = 20
"""Support set size for which intervals after adaptation are calibrated."""
ADAPTED = "adapted"
"""Key of `DesignBoost.widths` for programs with a support set, also in stored files."""
_CYCLES = METRICS.index("latency_cycles")


@dataclass(frozen=True)
class DesignBoost(StoredPredictor):
    """Predicts designs of programs in the training set, of unseen programs, and after adaptation.

    Attributes:
        seed: of the boosters, and of the draws of the Gaussian process.
        trees: set of boosters -> boosting rounds.
        calibrated: whether `fit` also calibrates prediction intervals.
        loop_shape: layer sizes and training hyperparameters of the loop network; None for none.
        members: number of averaged networks.
        boosters: `SET/METRIC` -> trained bag of boosters.
        scales: median standard deviation, within programs, of each feature in `BOUNDS`.
        ranges: of the features in the training set.
        programs: (digest, tool version) of the programs in the training set.
        widths: `seen`, `unseen`, ADAPTED -> metric -> half-width of the prediction interval: in
            log2, or for ADAPTED in standard deviations of the process.
        support: program -> measured designs that it was adapted to.
        network: graph network for the programs in the training set.
        known: designs of the training set, with which `seen` compares others.
    """

    seed: int = field(default=0, metadata=SETTING)
    trees: Mapping[str, int] = field(default_factory=lambda: dict(TREES), metadata=SETTING)
    calibrated: bool = field(default=True, metadata=SETTING)
    loop_shape: LoopShape | None = field(default=LoopShape(), metadata=SETTING)
    members: int = field(default=MEMBERS, metadata=SETTING)
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    scales: tuple[float, ...] = ()
    ranges: FeatureRange | None = None
    programs: tuple[Key, ...] = ()
    widths: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    support: Mapping[Key, SupportDesigns] = field(default_factory=dict)
    network: LoopNetwork | None = None
    known: KnownDesigns | None = None
    name: ClassVar[str] = "design_boost"
    metrics: ClassVar[tuple[str, ...]] = METRICS
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "features": NETWORK_FEATURES,
        "features of a loop": (*PLACE_COLUMNS, *LOOP_FEATURES),
    }

    def answers(self, query: Query) -> bool:
        """Whether the query is a design; false before `fit`."""
        return bool(self.boosters) and isinstance(query.workload, Design)

    def fit(self, measurements: Measurements) -> Self:
        """Fit boosters and the network, and calibrate intervals unless `calibrated` is false.

        Args:
            measurements: n designs with the five metrics and the grouping key `kernel`, the
                program.
        """
        queries, matrix = measurements.queries, feature_matrix(measurements.queries)
        tools = np.array([str(query.software.version) for query in queries])
        program = np.char.add(np.char.add(measurements.groups["kernel"], " "), tools)
        _, index, counts = np.unique(program, return_inverse=True, return_counts=True)
        weights = 1.0 / np.sqrt(counts[index])
        measured = np.column_stack([measurements.values[metric] for metric in METRICS])
        known, boosters = self._seen(queries, matrix, index, measured)
        for metric, over in zip(
            METRICS, (log_values(measured) - log_bounds(matrix)).T, strict=True
        ):
            mean = np.bincount(index, over) / counts
            for kind, target in (("unseen", over), ("within", over - mean[index])):
                boosters[f"{kind}/{metric}"] = BoosterBag.fit(
                    matrix,
                    target,
                    parameters={**SETTINGS[kind], **COMMON},
                    trees=self.trees[kind],
                    seeds=self._seeds(kind),
                    weights=weights / weights.mean(),
                )
        fitted = replace(
            self,
            boosters=boosters,
            scales=deviations_within(matrix[:, BOUND_COLUMNS], index),
            ranges=FeatureRange.of(FEATURES, matrix),
            programs=tuple(sorted({program_key(query) for query in queries})),
            widths={},
            support={},
            network=self._network(measurements, matrix),
            known=known,
        )
        if not self.calibrated:
            return fitted

        return replace(fitted, widths=calibrated_widths(self, measurements))

    def _seeds(self, kind: str) -> range:
        first = self.seed * 100 + 1
        return range(first, first + BAGS[kind])

    def _seen(
        self, queries: Sequence[Query], matrix: Matrix, program: Positions, measured: Matrix
    ) -> tuple[KnownDesigns | None, dict[str, BoosterBag]]:
        """The designs of the training set, and boosters of differences to the nearest of them."""
        if not self.trees["seen"]:
            return None, {}
        places, values = place_matrix(queries), np.array(measured)
        values[:, _CYCLES] = np.log2(values[:, _CYCLES])
        known = KnownDesigns.of(queries, places, program, values)
        pairs = known.pairs(known.nearest(queries, others=True), matrix)
        parameters = {**SETTINGS["seen"], **COMMON}
        return known, {
            f"seen/{metric}": BoosterBag.fit(
                pairs.inputs,
                values[pairs.design, at] - pairs.values[:, at],
                parameters=parameters,
                trees=self.trees["seen"],
                seeds=self._seeds("seen"),
            )
            for at, metric in enumerate(METRICS)
        }

    def _network(self, rows: Measurements, matrix: Matrix) -> LoopNetwork | None:
        if self.loop_shape is None:
            return None
        return LoopNetwork.fit(rows, matrix, self.loop_shape, self.members, self.seed)

    def adapt(self, measurements: Measurements) -> Self:
        """Store support sets, replacing earlier ones of the same program."""
        support = dict(self.support)
        for key, rows in rows_by(map(program_key, measurements.queries)).items():
            support[key] = SupportDesigns.of(
                [measurements.queries[row] for row in rows],
                {m: v[rows] for m, v in measurements.values.items() if m in METRICS},
            )
        return replace(self, support=support)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals, from the Gaussian process for programs with a support set."""
        matrix, nearest = feature_matrix(queries), self._nearest(queries)
        bounds = log_bounds(matrix)
        middle, half = self._log_answers(queries, matrix, bounds, nearest)
        logs = (middle + bounds, middle - half + bounds, middle + half + bounds)
        values, low, high = map(from_logarithms, logs)
        values = np.maximum(values, LEAST)
        low, high = np.minimum(low, values), np.maximum(high, values)
        low[(low < ROUNDED) & ARE_SHARES] = 0.0
        if not self.widths:
            low = high = values
        limits = [
            self._limits(query, features, nearest.get(row))
            for row, (query, features) in enumerate(zip(queries, matrix, strict=True))
        ]
        for row in set(np.nonzero((high > 1.0) & ARE_SHARES)[0].tolist()):
            limits[row] = (*chip_limits(values[row], low[row], high[row]), *limits[row])
        if not self.widths:
            return Predictions(by_metric(values), limits=limits)
        return Predictions(by_metric(values), by_metric(low), by_metric(high), LEVEL, limits)

    def predict_log(self, queries: Sequence[Query], matrix: Matrix) -> tuple[Matrix, Matrix]:
        """Predictions in log2 relative to the bound.

        Args:
            queries: n designs.
            matrix: their features, shape (n, len(FEATURES)).

        Returns:
            Predictions and half-widths of their intervals, shapes (n, len(METRICS)). Before
            calibration a half-width is 1, or one standard deviation of the process.
        """
        return self._log_answers(queries, matrix, log_bounds(matrix), self._nearest(queries))

    def _nearest(self, queries: Sequence[Query]) -> dict[int, Nearest]:
        """Position of each design predicted by `seen` -> its nearest training designs."""
        keys = enumerate(map(program_key, queries))
        rows = [row for row, key in keys if key in self.programs and not self._adapted(key)]
        if not rows:
            return {}
        assert self.known is not None
        return dict(zip(rows, self.known.nearest([queries[row] for row in rows]), strict=True))

    def _log_answers(
        self,
        queries: Sequence[Query],
        matrix: Matrix,
        bounds: Matrix,
        nearest: Mapping[int, Nearest],
    ) -> tuple[Matrix, Matrix]:
        """Implements `predict_log`.

        Args:
            queries: n designs.
            matrix: their features, shape (n, len(FEATURES)).
            bounds: their `log_bounds`.
            nearest: their `_nearest`.
        """
        middle, half = np.zeros((2, len(queries), len(METRICS)))
        if nearest:
            rows = list(nearest)
            designs, inputs = [queries[row] for row in rows], matrix[rows]
            middle[rows] = self._seen_logs(designs, inputs, list(nearest.values())) - bounds[rows]
            half[rows] = self._half_widths("seen")
        programs = groups_of(map(program_key, queries))
        others = [key for key in programs if key not in self.programs and not self._adapted(key)]
        if others:
            rows = [row for key in others for row in programs[key]]
            boosters = [self.boosters[f"unseen/{metric}"] for metric in METRICS]
            middle[rows] = np.column_stack([bag.predict(matrix[rows]) for bag in boosters])
            half[rows] = self._half_widths("unseen")
        for key in filter(self.support.__contains__, programs):
            rows = programs[key]
            designs = [queries[row] for row in rows]
            for at, metric in enumerate(METRICS):
                process = self._process(metric, key)
                if process is not None:
                    mean, deviation = process.predict(self._inputs(metric, designs, matrix[rows]))
                    middle[rows, at] = mean
                    half[rows, at] = deviation * self._width(ADAPTED, metric)
        return middle, half

    def _adapted(self, key: Key) -> bool:
        """Whether a program has processes for all metrics."""
        return all(self._measured(metric, key) is not None for metric in METRICS)

    def _seen_logs(
        self, queries: Sequence[Query], matrix: Matrix, nearest: Sequence[Nearest]
    ) -> Matrix:
        """log2 of the metrics from the boosters `seen` and the network, (n, len(METRICS))."""
        assert self.known is not None
        pairs = self.known.pairs(nearest, matrix)
        boosters = [self.boosters[f"seen/{metric}"] for metric in METRICS]
        apart = np.array([bag.predict(pairs.inputs) for bag in boosters])
        answers = pairs.means(pairs.values + apart.T)
        # Boosters of cycles answer in logarithms.
        logs = log_values(np.where(ARE_SHARES, np.maximum(answers, 0.0), 1.0))
        logs = np.where(ARE_SHARES, logs, answers)
        if self.network is None:
            return logs
        return averaged(logs, self.network.predict_log(queries, matrix))

    def _half_widths(self, kind: str) -> list[float]:
        return [self._width(kind, metric) for metric in METRICS]

    def _width(self, kind: str, metric: str) -> float:
        return self.widths.get(kind, {}).get(metric, 1.0)

    def _measured(self, metric: str, key: Key) -> Positions | None:
        """Support designs of a program with a value; None if there are fewer than two."""
        support = self.support.get(key)
        if support is None or metric not in support.values:
            return None
        rows = np.flatnonzero(np.isfinite(support.values[metric]))
        return rows if len(rows) >= 2 else None

    def _process(self, metric: str, key: Key) -> DesignGaussianProcess | None:
        """The process fitted to a program's support set; None with fewer than two values."""
        rows = self._measured(metric, key)
        if rows is None:
            return None
        support, at = self.support[key], METRICS.index(metric)
        queries = [support.queries[row] for row in rows]
        matrix = feature_matrix(queries)
        measured = np.log2(support.values[metric][rows] + FLOORS[metric])
        over = measured - log_bounds(matrix)[:, at]
        return DesignGaussianProcess.of(self._inputs(metric, queries, matrix), over, self.seed)

    def _inputs(self, metric: str, queries: Sequence[Query], matrix: Matrix) -> DesignInputs:
        outputs = self.boosters[f"within/{metric}"].tree_outputs(matrix)
        directives = np.array([coordinates(query.design) for query in queries])
        bounds = matrix[:, BOUND_COLUMNS] / np.array(self.scales)
        return DesignInputs((bounds, directives, outputs), outputs.sum(axis=1))

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Designs to measure first: far apart in directives and in the outputs of the trees.

        Args:
            queries: n candidate designs of one program.
            count: how many to suggest.
            seed: of the first design and of ties.

        Returns:
            Positions of the suggested designs among the candidates.
        """
        matrix = feature_matrix(queries)
        directives = np.array([coordinates(query.design) for query in queries])
        outputs = [self.boosters[f"within/{m}"].tree_outputs(matrix) for m in METRICS]
        points = np.hstack(
            [
                unit_rows(directives),
                *(0.7 * unit_rows(outputs_of_trees) for outputs_of_trees in outputs),
            ]
        )
        random = np.random.default_rng(seed)
        return farthest_points(points, count, [int(random.integers(len(points)))], random=random)

    def _limits(self, query: Query, row: Column, nearest: Nearest | None) -> tuple[Limit, ...]:
        """Limits with respect to the training set.

        Args:
            query: a design.
            row: its features, (len(FEATURES),).
            nearest: its nearest training designs, if `seen` predicts it.
        """
        key = program_key(query)
        support = self.support.get(key)
        of_directives: tuple[Limit, ...] = ()
        if self.known is not None:
            measured = () if support is None else support.directives
            of_directives = self.known.directive_range(key, measured).outside(query.design)
        if support is not None:
            # The interval of a process widens by itself with the distance from measured designs.
            return of_directives
        if nearest is not None:
            far = None if of_directives else KnownDesigns.combination_limit(nearest)
            return of_directives if far is None else (far,)
        assert self.ranges is not None
        others = f"{len(self.programs)} other programs were in the training set"
        unseen = f"no design of this program was measured; {others}"
        outside = self.ranges.outside(row)
        return (Limit(unseen, severity="transfer"), *of_directives, *outside)


Widths = Mapping[str, Mapping[str, float]]
FOLDS = 4
"""Folds of held-out programs."""
HELD_OUT_SHARE = 5
"""One in this many designs of each program is held out to calibrate the width of seen programs."""

UNCALIBRATED_WIDTH = 10.0
"""Half-width, in log2 or in standard deviations, if nothing could be held out."""

HeldOutErrors = tuple[str, str, Column]
"""Kind of program, metric, absolute errors of one program's designs."""


def calibrated_widths(settings: DesignBoost, rows: Measurements) -> Widths:
    """Half-widths of the intervals for seen programs, unseen programs, and after adaptation.

    Args:
        settings: predictor with the seed and trees to use; its boosters are refitted for each fold.
        rows: the training rows passed to `fit`.

    Returns:
        `DesignBoost.widths`.
    """
    plain = replace(settings, calibrated=False)
    held_out = [*_of_held_out_programs(plain, rows), *_of_held_out_designs(plain, rows)]

    def width(*kind_and_metric: str) -> float:
        return _width([errors for *key, errors in held_out if tuple(key) == kind_and_metric])

    kinds = ("seen", "unseen", ADAPTED)
    return {kind: {metric: width(kind, metric) for metric in METRICS} for kind in kinds}


def _of_held_out_programs(plain: DesignBoost, rows: Measurements) -> Iterator[HeldOutErrors]:
    """Errors on held-out programs, before and after adaptation to SHOTS of their designs."""
    quick = replace(plain, trees={**plain.trees, "seen": 0}, loop_shape=None)
    program = rows.groups["kernel"]
    for held in held_out_folds(program, FOLDS, plain.seed):
        fitted = quick.fit(rows.take(~held))
        for name in np.unique(program[held]):
            designs = rows.take(program == name)
            yield from _errors("unseen", fitted, designs)
            if len(designs) >= 2 * SHOTS:
                support = np.zeros(len(designs), dtype=np.bool_)
                support[fitted.suggest(designs.queries, SHOTS, plain.seed)] = True
                adapted = fitted.adapt(designs.take(support))
                yield from _errors(ADAPTED, adapted, designs.take(~support))


def _of_held_out_designs(plain: DesignBoost, rows: Measurements) -> Iterator[HeldOutErrors]:
    """Errors on held-out designs of programs whose other designs are in the training set."""
    part = [fold_of(repr(q.workload), HELD_OUT_SHARE, "width") for q in rows.queries]
    held = np.array(part) == 0
    if not held.any() or held.all():
        return
    quick = replace(plain, trees={**plain.trees, "unseen": 1, "within": 1}, members=1)
    fitted = quick.fit(rows.take(~held))
    program = rows.groups["kernel"]
    for name in np.intersect1d(program[held], program[~held]):
        yield from _errors("seen", fitted, rows.take(held & (program == name)))


def _errors(kind: str, fitted: DesignBoost, rows: Measurements) -> Iterator[HeldOutErrors]:
    """Absolute errors on designs of one program: in log2, or in predicted standard deviations."""
    matrix = feature_matrix(rows.queries)
    predicted, deviations = fitted.predict_log(rows.queries, matrix)
    measured = np.column_stack([rows.values[metric] for metric in METRICS])
    errors = np.abs(log_values(measured) - log_bounds(matrix) - predicted)
    if kind == ADAPTED:
        errors = errors / deviations
    for metric, metric_errors in by_metric(errors).items():
        yield kind, metric, metric_errors[np.isfinite(metric_errors)]


def _width(parts: list[Column]) -> float:
    """Quantile of absolute errors at the nominal coverage.

    Each of a program's n errors weighs 1 / sqrt(n), so a program weighs the square root of n.
    """
    if not any(map(len, parts)):
        return UNCALIBRATED_WIDTH
    weights = [np.full(len(part), 1.0 / np.sqrt(max(1, len(part)))) for part in parts]
    return weighted_quantile(np.concatenate(parts), np.concatenate(weights), LEVEL)
