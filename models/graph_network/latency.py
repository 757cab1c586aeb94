"""Latency of whole networks from their kernels' graph: additive times corrected by a network.

Trained in torch (`forerun.models.graph_network.encoder`), answered through onnxruntime: the encoder
runs once a graph and is kept, the light head once a question, for many devices and batch sizes at
once. Several members are trained, each without some families; their answers to those families set
the interval, their geometric mean is the answer.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.errors import BadArtifact
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.lowering.kernel_kinds import KERNEL_KINDS
from forerun.features.networks.kernel_graph import KERNEL_ROOTS, NODE_FEATURES
from forerun.features.operators.kinds import CLASS_CODE, OPERATOR_CLASSES
from forerun.models.adaptation.shrunk_scalar import ENOUGH_ROWS, ShrunkScalars
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.conformal.intervals import Intervals, held_out_folds
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.graph_network.batching import GraphBatches, RunGraphs
from forerun.models.graph_network.encoder import GraphShape, export
from forerun.models.graph_network.inference import GraphAnswers
from forerun.models.graph_network.inputs import DOMAIN_FEATURES, PAIR_FEATURES, RUN_FEATURES
from forerun.models.graph_network.training import torch_threads, train
from forerun.models.networks.additive_model import (
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

ENCODER, HEAD = "encoder.onnx", "head.onnx"
OTHER_MODES_WEIGHT = 0.25
"""Weight of rows that are no mixed-precision inference on a GPU in nchw."""
_SEEDS_APART = 100
_BASE_FOLDS = 8
_TINY = 1e-12
_SPREAD_FLOOR, _MOST_SPREAD = 0.06, 0.5
_USUAL = ("eager", "compiled")
_FEATURES = [*KERNEL_ROOTS, *NODE_FEATURES, *PAIR_FEATURES, *RUN_FEATURES]
_CLASS_OF_KERNEL_KIND = np.array([CLASS_CODE[kind.op_class] for kind in KERNEL_KINDS])
_IN_CLASS = np.eye(len(OPERATOR_CLASSES))[_CLASS_OF_KERNEL_KIND]


class _Lesson(NamedTuple):
    """Everything that members are trained on."""

    taught: TrainingRows
    queries: Sequence[Query]
    graphs: RunGraphs
    weights: Column


class _Answer(NamedTuple):
    """Log seconds, the additive time's, seconds by operator class, what the domain looks at."""

    log_seconds: Column
    log_base: Column
    by_class: NDArray[np.float64]
    features: NDArray[np.float64]


def silent(line: str) -> None:
    """Progress that goes nowhere."""


@dataclass(frozen=True)
class GraphNetwork:
    """Latency of networks on the kinds of devices, precisions and phases that were measured.

    Attributes:
        seed: of members, and spreads families over them.
        members: networks trained, each without a fold of the families.
        folds: that families are spread over; folds beyond the members are always taught.
        shape: sizes and schedule.
        threads: of torch while fitting; answers take one.
        calibrated: whether `fit` also measures intervals; unseen devices cost a member each.
        kernel_times: the additive time.
        encoder, head: ONNX.
        intervals: in units of the spread; seen devices by way of running.
        domain: what the training rows are.
        scalars: corrections of devices adapted to.
        progress: takes a line for people while fitting.
    """

    seed: int = 0
    members: int = 3
    folds: int = 5
    shape: GraphShape = field(default_factory=GraphShape)
    threads: int = 1
    calibrated: bool = True
    kernel_times: AdditiveLatencyModel = field(default_factory=AdditiveLatencyModel)
    encoder: bytes = b""
    head: bytes = b""
    intervals: Intervals | None = None
    domain: NetworkDomain = field(default_factory=NetworkDomain)
    scalars: ShrunkScalars = field(default_factory=ShrunkScalars)
    progress: Callable[[str], None] = silent
    name: ClassVar[str] = "graph_network"

    @property
    def metrics(self) -> tuple[str, ...]:
        """Latency only."""
        return ("latency_ms",)

    def answers(self, query: Query) -> bool:
        """Forward graphs in a phase and kind of precision measured on that kind of device."""
        return self.domain.answers(query)

    def fit(self, measurements: Measurements) -> Self:
        """Additive time on all rows, members on all but their own held-out families.

        Args:
            measurements: networks with `latency_ms`, and the groups `device` and `family`.
        """
        latency = measurements.values["latency_ms"]
        weights = np.ones(len(latency)) if measurements.weights is None else measurements.weights
        # NaN compares false: rows without a latency are left out.
        kept = measurements.take((latency > 0) & (weights > 0))
        taught = TrainingRows.of(kept)
        usual = np.array([_usual(query) for query in kept.queries], dtype=np.bool_)
        weights = taught.weights * np.where(usual, 1.0, OTHER_MODES_WEIGHT)
        graphs = RunGraphs.of_queries(kept.queries)
        with torch_threads(self.threads):
            return self._fitted(_Lesson(taught, kept.queries, graphs, weights))

    def adapt(self, measurements: Measurements) -> Self:
        """Shrunk scalars by device and way of running, from a few networks with `latency_ms`."""
        plain = replace(self, scalars=ShrunkScalars()).predict(measurements.queries)
        residuals = np.log(measurements.values["latency_ms"] / plain.values["latency_ms"])
        devices = [q.device for q in measurements.queries]
        modes = [execution_mode(q) for q in measurements.queries]
        known = self.domain.known
        return replace(self, scalars=self.scalars.updated(residuals, devices, modes, known))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Time of each network, with its interval, limits and breakdown by operator class.

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
            # A shift of the whole device does not grow with the correction of one network.
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

    def _fitted(self, lesson: _Lesson) -> Self:
        taught = lesson.taught
        errors, spreads = np.full(len(taught), np.nan), np.ones(len(taught))
        parts = []
        folds = held_out_folds(taught.family, self.folds, self.seed)
        for number, held in enumerate(islice(folds, self.members)):
            self.progress(f"member {number + 1} of {self.members}")
            used = held if held.all() else ~held
            part, errors[held], spreads[held] = self._member(lesson, used, held, number)
            parts.append(part)
        encoder, head = export([p[0] for p in parts], [p[1] for p in parts], self.shape)
        fitted = replace(
            self,
            kernel_times=_times(taught, np.ones(len(taught), dtype=np.bool_)),
            encoder=encoder,
            head=head,
            intervals=None,
            scalars=ShrunkScalars(),
        )
        fitted = replace(fitted, domain=NetworkDomain.of(lesson.queries, fitted._ranges(lesson)))
        if not self.calibrated:
            return fitted
        missed = partial(self._missed, lesson)
        return replace(fitted, intervals=intervals_of(taught, errors, spreads, missed))

    def _member(
        self, lesson: _Lesson, used: Mask, held: Mask, number: int
    ) -> "tuple[nn.ModuleList, Column, Column]":
        """A member taught some rows and stopped by others; errors and spreads on the latter."""
        taught, rows = lesson.taught, lesson.taught.rows
        times = _times(taught, used)
        bases = _unseen_bases(taught, used, times, self.seed)
        needed = np.flatnonzero(used | held)
        batches = GraphBatches(
            [lesson.queries[row] for row in needed.tolist()],
            lesson.graphs.take(needed),
            [bases[row] for row in needed.tolist()],
        )
        parts, found = train(
            batches,
            taught.log_measured[needed],
            lesson.weights[needed],
            np.flatnonzero(used[needed]),
            np.flatnonzero(held[needed]),
            shape=self.shape,
            seed=self.seed * _SEEDS_APART + number,
            progress=lambda epoch, error: self.progress(f"  pass {epoch + 1}: {error:.4f}"),
        )
        terms = times.terms(rows.design[held], rows.modes[held].tolist())
        return parts, taught.log_measured[held] - found, _spread(found, log_seconds_of(terms))

    def _missed(self, lesson: _Lesson, used: Mask, held: Mask) -> tuple[Column, Column]:
        self.progress(f"{int(held.sum()):,} rows of a device held out")
        return self._member(lesson, used, held, self.members)[1:]

    def _ranges(self, lesson: _Lesson) -> dict[str, FeatureRange]:
        """Range of the domain's features by kind of device."""
        kinds = np.array([query.device.kind for query in lesson.queries])
        features = np.empty((len(kinds), len(DOMAIN_FEATURES)))
        times = [self.kernel_times] * len(kinds)
        for rows, runs in lesson.graphs.runs(lesson.queries, times):
            features[rows] = runs.domain
        return {
            str(kind): FeatureRange.of(DOMAIN_FEATURES, features[kinds == kind])
            for kind in np.unique(kinds)
        }

    def _answer(self, queries: Sequence[Query]) -> _Answer:
        n = len(queries)
        found = _Answer(
            np.empty(n),
            np.empty(n),
            np.empty((n, len(OPERATOR_CLASSES))),
            np.empty((n, len(DOMAIN_FEATURES))),
        )
        for rows, part in self._answers.answers(queries):
            found.log_seconds[rows] = part.log_seconds
            found.log_base[rows] = part.runs.log_base
            found.by_class[rows] = part.terms @ _IN_CLASS[part.kind]
            found.features[rows] = part.runs.domain
        return found

    @cached_property
    def _answers(self) -> GraphAnswers:
        return GraphAnswers(self.encoder, self.head, self.kernel_times)

    def _has_seen(self, query: Query) -> bool:
        return query.device in self.domain.known or self.scalars.rows(query.device) >= ENOUGH_ROWS

    def save(self, folder: Path) -> None:
        """Two ONNX files, the rest as JSON."""
        parameters = {
            "seed": self.seed,
            "members": self.members,
            "folds": self.folds,
            "shape": asdict(self.shape),
            "features": _FEATURES,
            "kernel_times": self.kernel_times.to_json(),
            "intervals": self.intervals.to_json() if self.intervals else None,
            "scalars": self.scalars.to_json(),
            **self.domain.to_json(),
        }
        write_content(folder, self.name, parameters)
        (folder / ENCODER).write_bytes(self.encoder)
        (folder / HEAD).write_bytes(self.head)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or was fitted on other features.
        """
        content = read_content(folder, cls.name)
        FeatureRange.check_names(folder, _FEATURES, content["features"])
        intervals = content["intervals"]
        return cls(
            seed=content["seed"],
            members=content["members"],
            folds=content["folds"],
            shape=GraphShape(**content["shape"]),
            kernel_times=AdditiveLatencyModel.from_json(content["kernel_times"]),
            encoder=_part(folder / ENCODER),
            head=_part(folder / HEAD),
            intervals=Intervals.from_json(intervals) if intervals else None,
            domain=NetworkDomain.from_json(content),
            scalars=ShrunkScalars.from_json(content["scalars"]),
        )


def _times(taught: TrainingRows, used: Mask) -> AdditiveLatencyModel:
    rows = taught.rows
    return AdditiveLatencyModel.fit(
        rows.design[used], taught.log_measured[used], rows.modes[used].tolist()
    )


def _unseen_bases(
    taught: TrainingRows, used: Mask, times: AdditiveLatencyModel, seed: int
) -> Sequence[AdditiveLatencyModel]:
    """For each row an additive time that was not fitted on the row's family.

    On rows it was fitted on, an additive time is better than it will be on new families, and a
    network would learn to trust it too much. Rows not used keep `times`, which never saw them.
    """
    found = [times] * len(taught)
    rows = np.flatnonzero(used)
    for fold in held_out_folds(taught.family[rows], _BASE_FOLDS, seed):
        if fold.all():
            continue
        others = np.zeros(len(taught), dtype=np.bool_)
        others[rows[~fold]] = True
        without = _times(taught, others)
        for row in rows[fold].tolist():
            found[row] = without
    return found


def _spread(log_seconds: Column, log_base: Column) -> Column:
    """How unsure an answer is, from how far the network moved it from the additive time."""
    return np.asarray(_SPREAD_FLOOR + np.minimum(np.abs(log_seconds - log_base), _MOST_SPREAD))


def _usual(query: Query) -> bool:
    mixed = query.run.precision in ("amp", "amp_bf16")
    return mixed and execution_mode(query) in _USUAL


def _breakdown(shares: Column, value: float) -> dict[str, float]:
    return {OPERATOR_CLASSES[code]: float(shares[code] * value) for code in np.flatnonzero(shares)}


def _part(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BadArtifact(f"{file.parent} lacks {file.name}: {error}") from None
