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
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Positions, groups_of
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.networks.kernel_graph import KERNEL_ROOTS, NODE_FEATURES
from forerun.features.operators.kinds import OPERATOR_CLASSES, by_class
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS, ShrunkScalars
from forerun.models.artifact.codec import NOT_STORED
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals, held_out_folds
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.estimator import SETTING
from forerun.models.graph_network.batching import RunGraphs, graph_data
from forerun.models.graph_network.encoder import GRAPH_INPUTS, RUN_INPUTS, GraphShape, export
from forerun.models.graph_network.inference import GraphAnswers
from forerun.models.graph_network.inputs import DOMAIN_FEATURES, PAIR_FEATURES, RUN_FEATURES
from forerun.models.graph_network.training import train
from forerun.models.networks.additive_model import (
    COLUMNS,
    AdditiveLatencyModel,
    execution_mode,
    log_seconds_of,
)
from forerun.models.networks.domain import NetworkDomain
from forerun.models.networks.features import CLASS_OF_KERNEL_KIND, TrainingRows, with_latency
from forerun.models.networks.intervals import intervals_of, spread_of
from forerun.models.neural import seeded_torch
from forerun.models.prediction import Predictions

if TYPE_CHECKING:
    from torch import nn


OTHER_MODES_WEIGHT = 0.25
"""Weight of rows other than mixed-precision inference on a GPU in nchw."""
_SEEDS_APART = 100
_BASE_FOLDS = 8
_TINY = 1e-12
_FEATURES = [
    *(*GRAPH_INPUTS, *RUN_INPUTS),
    *(*KERNEL_ROOTS, *NODE_FEATURES, *PAIR_FEATURES, *RUN_FEATURES),
]
"""Names of the inputs of the two ONNX files, and of their columns."""
_IN_CLASS = np.eye(len(OPERATOR_CLASSES))[CLASS_OF_KERNEL_KIND]


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

    def data(self, rows: Positions, times: Sequence[AdditiveLatencyModel]) -> list[Any]:
        """Graphs with the runs at these positions, by the additive model of each row."""
        runs = self.graphs.runs(self.queries, rows, times)
        return [graph_data(*one, self.rows.log_measured, self.weights) for one in runs]


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
    by_class: Matrix
    features: Matrix


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
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms",)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"features": _FEATURES, "terms": COLUMNS}

    def answers(self, query: Query) -> bool:
        """Whether the query is a network whose device kind, phase and precision were trained on."""
        return self.domain.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Fit the additive model to all rows, and each member without its held-out families.

        Args:
            measurements: networks with `latency_ms`, and the groups `device` and `family`. Rows
                without a latency or with a weight of zero are left out.
        """
        kept = with_latency(measurements)
        training = TrainingRows.of(kept)
        weights = training.weights * np.where(training.rows.usual, 1.0, OTHER_MODES_WEIGHT)
        graphs = RunGraphs.of_queries(kept.queries)
        training_set = _TrainingSet(training, kept.queries, graphs, weights)
        errors, spreads = np.full(len(training), np.nan), np.ones(len(training))
        members = []
        every = np.ones(len(training), dtype=np.bool_)
        folds = list(held_out_folds(training.family, self.folds, self.seed)) or [every]
        for number, held in enumerate(folds[: self.members]):
            self.progress(f"member {number + 1} of {self.members}")
            used = held if held.all() else ~held
            member, errors[held], spreads[held] = self._member(training_set, used, held, number)
            members.append(member)
        encoder, head = export(members, self.shape)
        times = _times(training, every)
        fitted = replace(
            self,
            kernel_times=times,
            encoder=encoder,
            head=head,
            intervals=None,
            domain=NetworkDomain.of(kept.queries, _ranges(training_set, times)),
            scalars=ShrunkScalars(),
        )
        if not self.calibrated:
            return fitted
        refit_errors = partial(self._refit_errors, training_set)
        return replace(fitted, intervals=intervals_of(training, errors, spreads, refit_errors))

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
        ends = None
        if self.intervals is not None:
            seen = np.array([self._has_seen(q) for q in queries], dtype=np.bool_)
            # On an unseen device the shift of the whole device dominates; it has a constant width.
            scale = spread_of(answer.log_seconds, answer.log_base)
            ends = self.intervals.around(values, modes, seen, scale)
        shares = answer.by_class / (answer.by_class.sum(axis=1, keepdims=True) + _TINY)
        limits = [self.domain.limits(*one) for one in zip(queries, answer.features, strict=True)]
        return Predictions.of_metric(
            "latency_ms",
            values,
            ends,
            coverage=self.intervals.seen.coverage if self.intervals else None,
            limits=limits,
            breakdowns_ms=[by_class(row) for row in shares * values[:, None]],
        )

    def _member(
        self, training_set: _TrainingSet, used: Mask, held: Mask, number: int
    ) -> "tuple[nn.Module, Column, Column]":
        """Train a member on the rows `used`, and choose its best epoch on the rows `held`.

        Returns:
            The member; log errors and their scales on the held rows.
        """
        training, rows = training_set.rows, training_set.rows.rows
        times = _times(training, used)
        bases = _unseen_bases(training, used, times, self.seed)
        training_data, held_data = (
            training_set.data(np.flatnonzero(mask), bases) for mask in (used, held)
        )
        with seeded_torch(self.seed * _SEEDS_APART + number, self.threads):
            part, predicted = train(
                training_data,
                held_data,
                shape=self.shape,
                progress=lambda epoch, error: self.progress(f"  pass {epoch + 1}: {error:.4f}"),
            )
        log_seconds = np.full(len(training), np.nan)
        log_seconds[np.concatenate([data.rows for data in held_data])] = predicted
        log_seconds = log_seconds[held]
        terms = times.terms(rows.design_matrix[held], rows.modes[held].tolist())
        spread = spread_of(log_seconds, log_seconds_of(terms))
        return part, training.log_measured[held] - log_seconds, spread

    def _refit_errors(
        self, training_set: _TrainingSet, used: Mask, held: Mask
    ) -> tuple[Column, Column]:
        """Log errors and scales on the rows `held`, by a member trained on the rows `used`."""
        self.progress(f"{int(held.sum()):,} rows of a device held out")
        return self._member(training_set, used, held, self.members)[1:]

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


def _ranges(training_set: _TrainingSet, times: AdditiveLatencyModel) -> dict[str, FeatureRange]:
    """Device kind -> ranges of `DOMAIN_FEATURES`."""
    queries = training_set.queries
    features = np.empty((len(queries), len(DOMAIN_FEATURES)))
    every = np.arange(len(queries))
    for rows, _, runs in training_set.graphs.runs(queries, every, [times] * len(queries)):
        features[rows] = runs.domain
    groups = sorted(groups_of(query.device.kind for query in queries).items())
    return {kind: FeatureRange.of(DOMAIN_FEATURES, features[rows]) for kind, rows in groups}


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
        others = np.zeros(len(training), dtype=np.bool_)
        others[rows[~fold]] = True
        without = _times(training, others)
        for row in rows[fold].tolist():
            bases[row] = without
    return bases
