"""Latency of whole networks by a graph network that corrects the additive model.

The network is trained in torch (`forerun.models.graph_network.encoder`) and evaluated by
onnxruntime. The encoder runs once for each graph and its result is cached; the small head runs once
for each query, for many devices and batch sizes at once. An ensemble is trained, each member
without one fold of the families. Errors on these folds calibrate the intervals; the prediction is
the members' geometric mean.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.lowering.kernel_kinds import KERNEL_KINDS
from forerun.features.networks.kernel_graph import KERNEL_ROOTS, NODE_FEATURES
from forerun.features.operators.kinds import CLASS_CODE, OPERATOR_CLASSES
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS, ShrunkScalars
from forerun.models.artifact.codec import NOT_STORED
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal.intervals import Intervals, held_out_folds
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.estimator import SETTING
from forerun.models.graph_network.batching import GraphBatches, RunGraphs
from forerun.models.graph_network.encoder import GraphShape, export
from forerun.models.graph_network.inference import GraphAnswers
from forerun.models.graph_network.inputs import DOMAIN_FEATURES, PAIR_FEATURES, RUN_FEATURES
from forerun.models.graph_network.training import torch_threads, train
from forerun.models.networks.additive_model import (
    COLUMNS,
    AdditiveLatencyModel,
    execution_mode,
    log_seconds_of,
)
from forerun.models.networks.domain import NetworkDomain
from forerun.models.networks.features import TrainingRows
from forerun.models.networks.intervals import intervals_of
from forerun.models.prediction import Predictions

if TYPE_CHECKING:
    from torch import nn

Column = NDArray[np.float64]
Mask = NDArray[np.bool_]

OTHER_MODES_WEIGHT = 0.25
"""Weight of rows other than mixed-precision inference on a GPU in nchw."""
_SEEDS_APART = 100
_BASE_FOLDS = 8
_TINY = 1e-12
_SPREAD_FLOOR, _MOST_SPREAD = 0.06, 0.5
_USUAL = ("eager", "compiled")
_FEATURES = [*KERNEL_ROOTS, *NODE_FEATURES, *PAIR_FEATURES, *RUN_FEATURES]
_CLASS_OF_KERNEL_KIND = np.array([CLASS_CODE[kind.op_class] for kind in KERNEL_KINDS])
_IN_CLASS = np.eye(len(OPERATOR_CLASSES))[_CLASS_OF_KERNEL_KIND]


class _TrainingSet(NamedTuple):
    """The training set of all members.

    Attributes:
        rows: features, measured times and groups of n rows.
        queries: their n queries.
        graphs: their kernel graphs.
        weights: (n,) weight of each row in the loss.
    """

    rows: TrainingRows
    queries: Sequence[Query]
    graphs: RunGraphs
    weights: Column


class _Answer(NamedTuple):
    """Uncalibrated predictions for n networks.

    Attributes:
        log_seconds: (n,).
        log_base: (n,) logarithm of the additive time.
        by_class: (n, len(OPERATOR_CLASSES)) seconds.
        features: (n, len(DOMAIN_FEATURES)) values of the domain's features.
    """

    log_seconds: Column
    log_base: Column
    by_class: NDArray[np.float64]
    features: NDArray[np.float64]


def silent(line: str) -> None:
    """Report no progress."""


@dataclass(frozen=True)
class GraphNetwork(StoredPredictor):
    """Latency of networks on the kinds of devices, precisions and phases that were measured.

    Attributes:
        seed: random seed of the members and of the assignment of families to folds.
        members: size of the ensemble; each member is trained without one fold of the families.
        folds: number of folds of families; those beyond `members` are in every training set.
        shape: layer sizes and training hyperparameters.
        threads: torch threads while fitting; inference uses one.
        calibrated: whether `fit` also calibrates intervals, which trains one more member for each
            device.
        kernel_times: the additive model.
        encoder, head: serialised ONNX files.
        intervals: quantiles of scaled log errors; by execution mode on seen devices.
        domain: devices, phases, precisions and ranges of the training rows.
        scalars: corrections of devices that were adapted to.
        progress: called with a line of text for each step of fitting.
    """

    seed: int = field(default=0, metadata=SETTING)
    members: int = field(default=3, metadata=SETTING)
    folds: int = field(default=5, metadata=SETTING)
    shape: GraphShape = field(default_factory=GraphShape, metadata=SETTING)
    threads: int = field(default=1, metadata={**SETTING, **NOT_STORED})
    calibrated: bool = field(default=True, metadata=SETTING)
    kernel_times: AdditiveLatencyModel = field(default_factory=AdditiveLatencyModel)
    encoder: bytes = b""
    head: bytes = b""
    intervals: Intervals | None = None
    domain: NetworkDomain = field(default_factory=NetworkDomain)
    scalars: ShrunkScalars = field(default_factory=ShrunkScalars)
    progress: Callable[[str], None] = field(default=silent, metadata={**SETTING, **NOT_STORED})
    name: ClassVar[str] = "graph_network"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features": _FEATURES, "terms": COLUMNS}

    @property
    def metrics(self) -> tuple[str, ...]:
        """The only metric: `latency_ms`."""
        return ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Whether the query is a network whose device kind, phase and precision were trained on."""
        return self.domain.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the additive model to all rows, and each member without its held-out families.

        Args:
            measurements: networks with `latency_ms`, and the groups `device` and `family`. Rows
                without a latency or with a weight of zero are left out.
        """
        latency = measurements.values["latency_ms"]
        weights = np.ones(len(latency)) if measurements.weights is None else measurements.weights
        # NaN compares false: rows without a latency are left out.
        kept = measurements.take((latency > 0) & (weights > 0))
        training = TrainingRows.of(kept)
        usual = np.array([_usual(query) for query in kept.queries], dtype=np.bool_)
        weights = training.weights * np.where(usual, 1.0, OTHER_MODES_WEIGHT)
        graphs = RunGraphs.of_queries(kept.queries)
        with torch_threads(self.threads):
            return self._fitted(_TrainingSet(training, kept.queries, graphs, weights))

    def adapt(self, measurements: Measurements) -> Self:
        """Adapt to devices by shrunken factors of execution modes, from a few measured networks.

        Args:
            measurements: networks with `latency_ms`.
        """
        unadapted = replace(self, scalars=ShrunkScalars()).predict(measurements.queries)
        residuals = np.log(measurements.values["latency_ms"] / unadapted.values["latency_ms"])
        devices = [q.device for q in measurements.queries]
        modes = [execution_mode(q) for q in measurements.queries]
        known = self.domain.known
        return replace(self, scalars=self.scalars.updated(residuals, devices, modes, known))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Latency of each network, with its interval, limits and breakdown by operator class.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        answer = self._answer(queries)
        modes = [execution_mode(query) for query in queries]
        scale = self.scalars.correction([query.device for query in queries], modes)
        values = np.exp(answer.log_seconds + scale) * 1e3
        low: dict[str, Column] = {}
        high: dict[str, Column] = {}
        if self.intervals is not None:
            seen = np.array([self._has_seen(q) for q in queries], dtype=np.bool_)
            below, above = self.intervals.around(np.ones(len(queries)), modes, seen)
            # On an unseen device the shift of the whole device dominates; it has a constant width.
            width = np.where(seen, _spread(answer.log_seconds, answer.log_base), 1.0)
            low["latency_ms"] = values * below**width
            high["latency_ms"] = values * above**width
        shares = answer.by_class / (answer.by_class.sum(axis=1, keepdims=True) + _TINY)
        return Predictions(
            {"latency_ms": values},
            low,
            high,
            self.intervals.seen.coverage if self.intervals else None,
            [self.domain.limits(q, row) for q, row in zip(queries, answer.features, strict=True)],
            [_breakdown(row, v) for row, v in zip(shares, values.tolist(), strict=True)],
        )

    def _fitted(self, training_set: _TrainingSet) -> Self:
        training = training_set.rows
        errors, spreads = np.full(len(training), np.nan), np.ones(len(training))
        parts = []
        folds = held_out_folds(training.family, self.folds, self.seed)
        for number, held in enumerate(islice(folds, self.members)):
            self.progress(f"member {number + 1} of {self.members}")
            used = held if held.all() else ~held
            part, errors[held], spreads[held] = self._member(training_set, used, held, number)
            parts.append(part)
        encoder, head = export([p[0] for p in parts], [p[1] for p in parts], self.shape)
        fitted = replace(
            self,
            kernel_times=_times(training, np.ones(len(training), dtype=np.bool_)),
            encoder=encoder,
            head=head,
            intervals=None,
            scalars=ShrunkScalars(),
        )
        fitted = replace(
            fitted, domain=NetworkDomain.of(training_set.queries, fitted._ranges(training_set))
        )
        if not self.calibrated:
            return fitted
        refit_errors = partial(self._refit_errors, training_set)
        return replace(fitted, intervals=intervals_of(training, errors, spreads, refit_errors))

    def _member(
        self, training_set: _TrainingSet, used: Mask, held: Mask, number: int
    ) -> "tuple[nn.ModuleList, Column, Column]":
        """Train a member on the rows `used`, and choose its best epoch on the rows `held`.

        Returns:
            Encoder and head; log errors and their scales on the held rows.
        """
        training, rows = training_set.rows, training_set.rows.rows
        times = _times(training, used)
        bases = _unseen_bases(training, used, times, self.seed)
        needed = np.flatnonzero(used | held)
        batches = GraphBatches(
            [training_set.queries[row] for row in needed.tolist()],
            training_set.graphs.take(needed),
            [bases[row] for row in needed.tolist()],
        )
        parts, log_seconds = train(
            batches,
            training.log_measured[needed],
            training_set.weights[needed],
            np.flatnonzero(used[needed]),
            np.flatnonzero(held[needed]),
            shape=self.shape,
            seed=self.seed * _SEEDS_APART + number,
            progress=lambda epoch, error: self.progress(f"  pass {epoch + 1}: {error:.4f}"),
        )
        terms = times.terms(rows.design_matrix[held], rows.modes[held].tolist())
        spread = _spread(log_seconds, log_seconds_of(terms))
        return parts, training.log_measured[held] - log_seconds, spread

    def _refit_errors(
        self, training_set: _TrainingSet, used: Mask, held: Mask
    ) -> tuple[Column, Column]:
        """Log errors and scales on the rows `held`, by a member trained on the rows `used`."""
        self.progress(f"{int(held.sum()):,} rows of a device held out")
        return self._member(training_set, used, held, self.members)[1:]

    def _ranges(self, training_set: _TrainingSet) -> dict[str, FeatureRange]:
        """Device kind -> ranges of `DOMAIN_FEATURES`."""
        kinds = np.array([query.device.kind for query in training_set.queries])
        features = np.empty((len(kinds), len(DOMAIN_FEATURES)))
        times = [self.kernel_times] * len(kinds)
        for rows, runs in training_set.graphs.runs(training_set.queries, times):
            features[rows] = runs.domain
        return {
            str(kind): FeatureRange.of(DOMAIN_FEATURES, features[kinds == kind])
            for kind in np.unique(kinds)
        }

    def _answer(self, queries: Sequence[Query]) -> _Answer:
        n = len(queries)
        answer = _Answer(
            np.empty(n),
            np.empty(n),
            np.empty((n, len(OPERATOR_CLASSES))),
            np.empty((n, len(DOMAIN_FEATURES))),
        )
        for rows, part in self._answers.answers(queries):
            answer.log_seconds[rows] = part.log_seconds
            answer.log_base[rows] = part.runs.log_base
            answer.by_class[rows] = part.terms @ _IN_CLASS[part.kind]
            answer.features[rows] = part.runs.domain
        return answer

    @cached_property
    def _answers(self) -> GraphAnswers:
        return GraphAnswers(self.encoder, self.head, self.kernel_times)

    def _has_seen(self, query: Query) -> bool:
        return query.device in self.domain.known or self.scalars.rows(query.device) >= ENOUGH_ROWS


def _times(training: TrainingRows, used: Mask) -> AdditiveLatencyModel:
    """The additive model fitted to the rows `used`."""
    rows = training.rows
    return AdditiveLatencyModel.fit(
        rows.design_matrix[used], training.log_measured[used], rows.modes[used].tolist()
    )


def _unseen_bases(
    training: TrainingRows, used: Mask, times: AdditiveLatencyModel, seed: int
) -> Sequence[AdditiveLatencyModel]:
    """For each row, an additive model that was fitted without the row's family.

    An additive model has lower errors on its own training rows than on new families, so a graph
    network trained on these would correct it too little. Rows that are not used for training get
    `times`, which was fitted without them.

    Args:
        training: n training rows.
        used: (n,) mask of the rows that a member is trained on.
        times: additive model fitted to these rows.
        seed: assigns families to folds.
    """
    bases = [times] * len(training)
    rows = np.flatnonzero(used)
    for fold in held_out_folds(training.family[rows], _BASE_FOLDS, seed):
        if fold.all():
            continue
        others = np.zeros(len(training), dtype=np.bool_)
        others[rows[~fold]] = True
        without = _times(training, others)
        for row in rows[fold].tolist():
            bases[row] = without
    return bases


def _spread(log_seconds: Column, log_base: Column) -> Column:
    """Scale of the log error, from the network's correction of the additive time; (n,)."""
    return np.asarray(_SPREAD_FLOOR + np.minimum(np.abs(log_seconds - log_base), _MOST_SPREAD))


def _usual(query: Query) -> bool:
    mixed = query.run.precision in ("amp", "amp_bf16")
    return mixed and execution_mode(query) in _USUAL


def _breakdown(shares: Column, value: float) -> dict[str, float]:
    return {OPERATOR_CLASSES[code]: float(shares[code] * value) for code in np.flatnonzero(shares)}
