"""Latency of whole networks: an additive model of launched kernels, corrected by boosted trees.

A prediction is the geometric mean of two estimates: the additive time of `AdditiveLatencyModel`
times a correction by a booster of its residuals, and the kernels' roofline times a correction by a
second booster. The difference between the two scales the prediction interval. A Gaussian process
adds the residuals that both leave on similar networks (`NetworkResiduals`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.lowering import lower_owned, lowering_mode
from forerun.features.networks.features import chip_of
from forerun.features.operators.kinds import OPERATOR_CLASSES, by_class
from forerun.features.operators.labels import operator_label
from forerun.features.recent import Recent
from forerun.models.adaptation.suggestions import suggest_for_errors
from forerun.models.adaptation.support_gp import ENOUGH_ROWS, Standardizer, SupportGP, graph_digests
from forerun.models.artifact.codec import NOT_STORED
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals, group_weights, out_of_fold, weighted_quantile
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.equal_runs import RunKey, batch_key
from forerun.models.estimator import SETTING
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.networks.additive_model import COLUMNS, AdditiveLatencyModel, execution_mode
from forerun.models.networks.domain import NetworkDomain
from forerun.models.networks.features import (
    CLASS_OF_KERNEL_KIND,
    DIRECT,
    FEATURES,
    RANGED,
    NetworkRows,
    TrainingRows,
)
from forerun.models.networks.intervals import (
    FOLDS,
    WidthLaw,
    intervals_of,
    spread_of,
)
from forerun.models.networks.novelty import KernelMixes
from forerun.models.networks.residual_process import NetworkResiduals
from forerun.models.operators.operator_times import OperatorTime, merged_times
from forerun.models.prediction import Predictions

SETTINGS: Mapping[str, Any] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 16,
    "min_data_in_leaf": 100,
    "feature_fraction": 0.4,
    "bagging_fraction": 0.7,
    "bagging_freq": 1,
    "lambda_l2": 2.0,
}
RESIDUAL, WHOLE = "residual", "whole"
ANSWERS_KEPT = 10_000
"""Networks on a device and at a batch size whose times are kept for the next adaptation."""
OTHER_MODES_WEIGHT = 0.5
"""Weight of rows other than mixed-precision inference on a GPU in nchw."""

WITHIN = 0.9
"""Share of the held-out families that count as within the training domain."""


class _Answer(NamedTuple):
    """Uncalibrated predictions for n networks.

    Attributes:
        log_seconds: (n,).
        spread: (n,) absolute difference of the two estimates in log units, clipped, plus a floor.
        novelty: (n,) distance to the nearest training network.
        terms: (n, len(COLUMNS)) seconds of each term of the additive time.
    """

    log_seconds: Column
    spread: Column
    novelty: Column
    terms: Matrix


@dataclass(frozen=True)
class NetworkBoost(StoredPredictor):
    """Latency of networks on the kinds of devices, precisions and phases that were measured.

    Attributes:
        seed: random seed of the boosters and of the assignment of families to folds.
        trees: boosting rounds of each booster.
        threads: LightGBM threads while fitting.
        calibrated: whether `fit` also calibrates intervals, at six to nine times the cost.
        kernel_times: the additive model.
        boosters: `residual` (of the additive time) and `whole` (of the roofline).
        intervals: quantiles of scaled log errors; by execution mode on seen devices.
        ranges: ranges of the features over the training rows.
        domain: devices, phases, precisions and ranges of the training rows.
        mixes: kernel mixes of the training networks.
        residuals: Gaussian processes on the boosters' residuals.
        width_law: how the scale of errors grows with spread and novelty.
        support_gp: errors on devices that were adapted to.
        scale: standardises features by the training rows.
    """

    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=400, metadata=SETTING)
    threads: int = field(default=1, metadata={**SETTING, **NOT_STORED})
    calibrated: bool = field(default=True, metadata=SETTING)
    kernel_times: AdditiveLatencyModel = field(default_factory=AdditiveLatencyModel)
    boosters: Mapping[str, BoosterBag] = field(default_factory=dict)
    intervals: Intervals | None = None
    ranges: FeatureRange | None = None
    domain: NetworkDomain = field(default_factory=NetworkDomain)
    mixes: KernelMixes | None = None
    residuals: NetworkResiduals = field(default_factory=NetworkResiduals)
    width_law: WidthLaw = field(default_factory=WidthLaw)
    support_gp: SupportGP = field(default_factory=SupportGP)
    scale: Standardizer | None = None
    name: ClassVar[str] = "network_boost"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features": FEATURES, "terms": COLUMNS}

    def answers(self, query: Query) -> bool:
        """Whether the query is a network whose device kind, phase and precision were trained on."""
        return self.domain.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the additive model and boosters on all rows, and calibrate on held-out groups.

        Args:
            measurements: networks with `latency_ms`, and the groups `device` and `family`. Rows
                without a latency or with a weight of zero are left out.
        """
        training = TrainingRows.of(measurements)
        fitted = replace(
            self._fitted(training),
            domain=NetworkDomain.of(measurements.queries, _domains(training.rows)),
            support_gp=SupportGP(),
            scale=Standardizer.of(training.rows.features),
        )
        if not self.calibrated:
            return replace(fitted, intervals=None)
        errors, spreads, novelty = self._held_out(training)
        law = WidthLaw.of(errors, spreads, novelty, training.family)
        intervals = intervals_of(
            training, errors, law.scale(spreads, novelty), partial(self._refit_errors, training)
        )
        domain = replace(fitted.domain, farthest=_farthest(novelty, training))
        return replace(fitted, intervals=intervals, width_law=law, domain=domain)

    def _held_out(self, training: TrainingRows) -> tuple[Column, Column, Column]:
        """Log errors, spreads and novelty of each row, from a fit without its family; each (n,)."""

        def predict(held: Mask) -> tuple[Column, Column, Column]:
            answer = self._refitted(training, ~held, held)
            return answer.log_seconds, answer.spread, answer.novelty

        predicted, spreads, novelty = out_of_fold(
            training.family, predict, folds=FOLDS, seed=self.seed, columns=3
        )
        errors = training.log_measured - predicted
        return errors, np.where(np.isnan(spreads), 1.0, spreads), novelty

    def adapt(self, measurements: Measurements, together: bool = False) -> Self:
        """Adapt to the devices of a few networks with `latency_ms`: errors by execution mode.

        Args:
            measurements: the networks.
            together: whether these devices share all errors, so that their order stays; otherwise
                each has those of its own rows.
        """
        rows = NetworkRows.of(measurements.queries)
        # Whoever adapts to one more device adapts to the rows of all others again.
        unadapted = self._log_seconds.of_each(
            [batch_key(query) for query in measurements.queries],
            lambda missing: self._answer(rows.take(np.array(missing))).log_seconds.tolist(),
        )
        unadapted_ms = np.exp(unadapted) * 1e3
        errors = np.log(measurements.values["latency_ms"] / unadapted_ms)
        devices, modes = [q.device for q in measurements.queries], rows.modes.tolist()
        support_gp = self.support_gp.updated(
            errors,
            devices,
            modes,
            self._standard(rows),
            self.domain.known,
            graph_digests(measurements.queries),
            comparable=True,
            together=together,
        )
        return replace(self, support_gp=support_gp)

    @cached_property
    def _log_seconds(self) -> Recent[RunKey, float]:
        """Logarithm of the seconds of networks on a device without corrections."""
        return Recent(ANSWERS_KEPT)

    def suggest(self, queries: Sequence[Query], count: int, seed: int = 0) -> list[int]:
        """Positions of the `count` networks that are most informative to measure on a new device.

        Args:
            queries: candidates.
            count: how many to choose.
            seed: draws a subset where there are very many candidates.
        """
        return suggest_for_errors(self._standard(NetworkRows.of(queries)), count, seed)

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency of each network, with its interval, limits and breakdown by operator class.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        rows = NetworkRows.of(queries)
        answer = self._answer(rows)
        devices = [q.device for q in queries]
        error, deviation = np.zeros(len(queries)), np.full(len(queries), np.nan)
        if self.support_gp.devices:
            error, deviation = self.support_gp.correction(
                devices, rows.modes.tolist(), self._standard(rows), graph_digests(queries)
            )
        values = np.exp(answer.log_seconds + error) * 1e3
        ends = None
        if self.intervals is not None:
            seen = np.array([d in self.domain.known for d in devices], dtype=np.bool_)
            # On an unseen device the shift of the whole device dominates; it has a constant width.
            scale = self.width_law.scale(answer.spread, answer.novelty)
            ends = self.intervals.around(values, rows.modes, seen, scale)
            ends = self.support_gp.intervals(values, deviation, *ends)
        shares = rows.class_shares(answer.terms)
        return Predictions.of_metric(
            "latency_ms",
            values,
            ends,
            coverage=self.intervals.seen.coverage if self.intervals else None,
            limits=self._limits(queries, rows, answer),
            breakdowns_ms=[by_class(row) for row in shares * values[:, None]],
        )

    def operator_times(self, query: Query) -> list[OperatorTime]:
        """Time of each launched kernel by the additive model at the batch size of the query.

        Kernels that the runtime adds to an operator, such as casts, have the label of the operator
        and a class of their own.
        """
        network = query.network
        mode = lowering_mode(network.graph, network.precision, query.software)
        kernels, owners = lower_owned(network.graph, mode)
        chip = chip_of(query.device, network.precision)
        batch = np.array([network.batch_size], dtype=np.float64)
        (seconds,) = self.kernel_times.kernel_seconds(kernels, chip, batch, execution_mode(query))
        classes = [OPERATOR_CLASSES[code] for code in CLASS_OF_KERNEL_KIND[kernels.kind].tolist()]
        labels = [" + ".join(map(operator_label, own)) for own in owners]
        return merged_times(labels, classes, kernels.repeat, seconds * 1e3)

    def _fitted(self, training: TrainingRows) -> Self:
        rows = training.rows
        times = AdditiveLatencyModel.fit(
            rows.design_matrix, training.log_measured, rows.modes.tolist()
        )
        terms = times.terms(rows.design_matrix, rows.modes.tolist())
        matrix, log_seconds = rows.matrix(terms)
        weights = training.weights * np.where(rows.usual, 1.0, OTHER_MODES_WEIGHT)
        targets = {
            RESIDUAL: (matrix, training.log_measured - log_seconds, 2 * self.seed),
            WHOLE: (rows.features, training.log_measured - rows.log_roofline, 2 * self.seed + 1),
        }
        boosters = {
            name: BoosterBag.fit(
                features,
                target,
                parameters=SETTINGS,
                trees=self.trees,
                seeds=(seed,),
                weights=weights,
                threads=self.threads,
            )
            for name, (features, target, seed) in targets.items()
        }
        mixes = KernelMixes.of(rows.features, terms, rows.fused)
        fitted = replace(
            self,
            kernel_times=times,
            boosters=boosters,
            ranges=FeatureRange.of(FEATURES, matrix),
            mixes=mixes,
            residuals=NetworkResiduals(),
        )
        residual = training.log_measured - fitted._answer(rows).log_seconds
        residuals = NetworkResiduals.fit(
            mixes.positions(rows.features, terms), residual, rows.modes, training.same
        )
        return replace(fitted, residuals=residuals)

    def _answer(self, rows: NetworkRows) -> _Answer:
        assert self.ranges is not None
        assert self.mixes is not None
        terms = self.kernel_times.terms(rows.design_matrix, rows.modes.tolist())
        matrix, log_seconds = rows.matrix(terms)
        matrix = self.ranges.clip(matrix)
        additive = log_seconds + self.boosters[RESIDUAL].predict(matrix)
        direct = rows.log_roofline + self.boosters[WHOLE].predict(matrix[:, :DIRECT])
        residual = self.residuals.at(self.mixes.positions(rows.features, terms), rows.modes)
        return _Answer(
            (additive + direct) / 2 + residual,
            spread_of(additive, direct),
            self.mixes.novelty(rows.features, terms, rows.fused),
            terms,
        )

    def _refitted(self, training: TrainingRows, used: Mask, held: Mask) -> _Answer:
        """Predictions for the rows `held`, of a fit on the rows `used`."""
        return self._fitted(training.take(used))._answer(training.rows.take(held))

    def _refit_errors(
        self, training: TrainingRows, used: Mask, held: Mask
    ) -> tuple[Column, Column]:
        """Log errors on the rows `held` of a fit on the rows `used`, and a scale of 1 for each."""
        errors = training.log_measured[held] - self._refitted(training, used, held).log_seconds
        return errors, np.ones(len(errors))

    def _standard(self, rows: NetworkRows) -> Column:
        assert self.scale is not None
        return self.scale.apply(rows.features, rows.features.shape[1])

    def _limits(
        self, queries: Sequence[Query], rows: NetworkRows, answer: _Answer
    ) -> list[tuple[Limit, ...]]:
        assert self.mixes is not None
        checked, fused = rows.features[:, RANGED], rows.fused
        limits = []
        for row, query in enumerate(queries):
            adapted = self.support_gp.rows(query.device) >= ENOUGH_ROWS
            own = self.domain.limits(query, checked[row], adapted)
            if query.device.kind == "gpu" and answer.novelty[row] > self.domain.farthest:
                differs = self.mixes.nearest_difference(
                    rows.features[row], answer.terms[row], bool(fused[row])
                )
                own = (*own, self.domain.far_limit(float(answer.novelty[row]), differs))
            limits.append((*own, *self.support_gp.limits(query.device)))
        return limits


def _domains(rows: NetworkRows) -> dict[str, FeatureRange]:
    kinds, features = np.where(rows.modes == "cpu", "cpu", "gpu"), rows.features
    names = [FEATURES[index] for index in RANGED]
    return {
        str(kind): FeatureRange.of(names, features[kinds == kind][:, RANGED])
        for kind in np.unique(kinds)
    }


def _farthest(novelty: Column, training: TrainingRows) -> float:
    """Distance within which `WITHIN` of the held-out families on GPUs lie, weighted equally."""
    known = np.isfinite(novelty) & (training.rows.modes != "cpu")
    if not known.any():
        return float("inf")
    return weighted_quantile(novelty[known], group_weights(training.family[known]), WITHIN)
