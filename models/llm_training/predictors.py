"""What answers about a training run: kernels of its network, or the closed form of large clusters.

Memory is what the allocator holds, and what the device shows. The sum of parts of `stage_memory`
times a factor, for rounding and fragmentation of the allocator, is what it reserves; the device
shows its context and the buffers of collectives on top. Errors of a framework have mostly one sign:
each has a factor of its own, near the one that all share. Intervals of frameworks without rows, or
without rows on an architecture, come from frameworks and architectures that were left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Matrix, Names
from forerun.data.device import Device
from forerun.data.language_models.training import LlmTraining, TrainingLayout
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.memory import StageMemory, stage_memory
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import Intervals, LogQuantiles, out_of_fold
from forerun.models.limit import LATENCY, PEAK_MEMORY, Limit
from forerun.models.llm_training.by_kernels import are_by_kernels, columns_by_kernels
from forerun.models.llm_training.step_time import LlmTrainingStep, framework_on
from forerun.models.prediction import Predictions
from forerun.models.router import predictors_in

RESERVED_MEMORY: Final = "reserved_memory_mib"
MIB: Final = 2.0**20
PRIOR: Final = (float(np.log(3.0 * 1024.0)), float(np.log(1.05)))
"""Logarithms of the context in MiB and of the factor. PyTorch's allocator rounds and fragments by a
few percent; the context of an A100 takes 1,573 MiB (BigScience, chronicles of the 176B model), and
the buffers of NCCL's communicators about as much."""
SPREAD: Final = (0.3, 0.03)
"""Standard deviations of both priors."""
OWN_SPREAD: Final = 0.07
"""Standard deviation of a framework's factor around the common one, in logarithms."""
NOISE: Final = 0.08
"""Standard deviation of log(measured / predicted) that the fit assumes."""
FOLDS: Final = 10


@dataclass(frozen=True, slots=True)
class LayoutMemory(Columns):
    """Memory of the fullest device for n layouts of a run; columns have shape (n,), MiB.

    Attributes:
        parts: the sum of parts, to which nothing was fitted, by part and stage, in bytes.
        reserved: what the allocator holds.
        device: what the device shows.
        low, high: ends of the interval of `device`; never below what is held between steps.
    """

    parts: StageMemory
    reserved: Column
    device: Column
    low: Column
    high: Column

    def breakdown_mib(self, row: int) -> dict[str, float]:
        """Part -> MiB of one layout, which add up to what the device shows."""
        # Where less is held than the parts are, each of them is less.
        share = min(1.0, float(self.reserved[row] * MIB / self.parts.total[row]))
        parts = {n: share * float(own[row]) / MIB for n, own in self.parts.parts().items()}
        found = {name: own for name, own in parts.items() if own > 0.0}
        found["allocator"] = float(self.reserved[row]) - sum(parts.values())
        found["context"] = float(self.device[row] - self.reserved[row])
        return found


@dataclass(frozen=True)
class LlmTrainingMemory(StoredPredictor):
    """Memory of the fullest device of a training step of a language model.

    Attributes:
        fragmentation: what the allocator holds over what is live.
        context_mib: what the device shows on top.
        own: framework with measured rows -> its factor, in place of `fragmentation`.
        measured: names by `framework_on` of frameworks and architectures with measured rows.
        intervals: quantiles of log(measured / predicted): `seen` by framework, with configurations,
            and with devices, left out, `unseen` with frameworks, and with architectures, left out.
    """

    fragmentation: float = float(np.exp(PRIOR[1]))
    context_mib: float = float(np.exp(PRIOR[0]))
    own: Mapping[str, float] = field(default_factory=dict)
    measured: tuple[str, ...] = ()
    intervals: Intervals = field(default_factory=lambda: Intervals(LogQuantiles()))
    name: ClassVar[str] = "llm_training_memory"
    metrics: ClassVar[tuple[str, ...]] = (PEAK_MEMORY, RESERVED_MEMORY)

    def answers(self, query: Query) -> bool:
        """Training of language models on any device."""
        return query.workload.kind == "llm_training"

    def fit(self, measurements: Measurements) -> Self:
        """The constants, and intervals.

        Args:
            measurements: steps with one of the metrics; the group `config` keeps runs together
                that are alike.
        """
        rows = _Rows.of(measurements)
        if not len(rows.logs):
            return self

        def errors(held: Mask) -> Column:
            known, logs = _constants(rows.take(~held))
            return rows.residuals(known, logs)[held]

        names, logs = _constants(rows)
        context, factor, *_ = np.exp(logs).tolist()

        def elsewhere(labels: Names) -> Column:
            """Errors with each label left out, where the framework has rows of another."""
            pairs = zip(rows.frameworks, labels, strict=True)
            known = [(labels[rows.frameworks == one] != own).any() for one, own in pairs]
            return np.where(known, out_of_fold(labels, errors)[0], np.nan)

        by_configuration = out_of_fold(rows.configurations, errors, folds=FOLDS)[0]
        seen = np.concatenate([by_configuration, elsewhere(rows.devices)])
        by_framework = out_of_fold(rows.frameworks, errors)[0]
        unseen = np.concatenate([by_framework, elsewhere(rows.places)])
        # With so few frameworks and architectures, a new one may err either way: use both signs.
        unseen = np.concatenate([unseen, -unseen])
        return replace(
            self,
            fragmentation=factor,
            context_mib=context,
            own=dict(zip(names, np.exp(logs[1] + logs[2:]).tolist(), strict=True)),
            measured=tuple(np.unique(rows.places).tolist()),
            intervals=Intervals(
                LogQuantiles.of(seen, np.tile(rows.frameworks, 2)),
                LogQuantiles.of(unseen, groups=np.tile(rows.places, 4)),
            ),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """The same predictor: memory follows from the framework, and devices differ little."""
        return self

    def is_measured(self, run: LlmTraining, device: Device) -> bool:
        """Whether memory of a run's framework was measured on the device's architecture."""
        return framework_on(Query(run, device)) in self.measured

    def of_layouts(self, run: LlmTraining, device: Device, layouts: Layouts) -> LayoutMemory:
        """Memory of n layouts of a run; its own layout is not read."""
        parts = stage_memory(run, layouts)
        factor = self.own.get(run.framework, self.fragmentation)
        # What lasts between steps is held in any case.
        reserved = np.maximum(factor * parts.total, parts.model_states) / MIB
        shown = reserved + self.context_mib
        seen = self.is_measured(run, device)
        ends = np.exp(self.intervals.log_ends([run.framework], np.array([seen]))[0])
        low = np.maximum(ends[0] * shown, parts.model_states / MIB)
        return LayoutMemory(parts, reserved, shown, low, ends[1] * shown)

    def upper_mib(
        self, run: LlmTraining, device: Device, layouts: Layouts
    ) -> tuple[Column, Column]:
        """Best estimates and upper ends of what the device shows for n layouts, (n,) each, MiB.

        A layout may be said to fit where its upper end is at most what runs can use: of layouts at
        the edge about one in twenty then fails.
        """
        found = self.of_layouts(run, device, layouts)
        return found.device, found.high

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Memory of the fullest device, MiB, with intervals, and what it is made of."""
        asked = [(query.llm_training, query.device) for query in queries]
        found = [self.of_layouts(*own, Layouts.of(own[0])) for own in asked]
        shown = np.array([(one.device, one.low, one.high) for one in found])[..., 0].T
        held = shown * [one.reserved[0] / one.device[0] for one in found]
        columns = {PEAK_MEMORY: shown, RESERVED_MEMORY: held}
        seen = [self.is_measured(*own) for own in asked]
        covered = np.where(seen, LEVEL, np.nan)
        return Predictions(
            {name: own[0] for name, own in columns.items()},
            low={name: own[1] for name, own in columns.items()},
            high={name: own[2] for name, own in columns.items()},
            limits=[
                () if own else (_unseen(query),) for own, query in zip(seen, queries, strict=True)
            ],
            breakdowns_mib=[one.breakdown_mib(0) for one in found],
            row_coverage=dict.fromkeys(columns, covered),
        )


def _unseen(query: Query) -> Limit:
    return Limit(
        f"no memory of training with {framework_on(query)} was measured; the interval is that "
        "of held-out frameworks and architectures",
        PEAK_MEMORY,
    )


@dataclass(frozen=True, slots=True)
class _Rows(Columns):
    """n measured runs.

    Attributes:
        parts: sums of parts, MiB.
        of_device: whether the device's memory was measured, or that of the allocator.
        logs: logarithms of the measured MiB.
        configurations, frameworks, devices: labels.
        places: frameworks with architectures, as `framework_on` names them.
    """

    parts: Column
    of_device: Mask
    logs: Column
    configurations: Names
    frameworks: Names
    devices: Names
    places: Names

    @classmethod
    def of(cls, measurements: Measurements) -> Self:
        shown, held = (
            measurements.values.get(name, np.full(len(measurements), np.nan))
            for name in (PEAK_MEMORY, RESERVED_MEMORY)
        )
        known = np.isfinite(shown) | np.isfinite(held)
        rows = measurements.take(known)
        runs = [query.llm_training for query in rows.queries]
        measured = np.where(np.isfinite(shown), shown, held)[known]
        return cls(
            np.array([stage_memory(run, Layouts.of(run)).total[0] / MIB for run in runs]),
            np.isfinite(shown)[known],
            np.log(measured),
            rows.group("config"),
            np.array([run.framework for run in runs], dtype=np.str_),
            rows.group("device"),
            np.array([framework_on(query) for query in rows.queries], dtype=np.str_),
        )

    def residuals(self, known: Sequence[str], logs: Column) -> Column:
        """log(measured / predicted) of the rows, shape (n,).

        Args:
            known: frameworks with a factor of their own.
            logs: logarithms of the context, of the common factor, and of theirs over it.
        """
        own = dict(zip(known, logs[2:].tolist(), strict=True))
        factor = np.exp(logs[1] + np.array([own.get(one, 0.0) for one in self.frameworks]))
        predicted = factor * self.parts + np.exp(logs[0]) * self.of_device
        return np.asarray(self.logs - np.log(predicted))


def _constants(rows: _Rows) -> tuple[list[str], Column]:
    """Frameworks and logarithms as `_Rows.residuals` takes them.

    Maximum a posteriori, robust to outliers.
    """
    from scipy.optimize import least_squares

    known = np.unique(rows.frameworks).tolist()
    centre = np.array([*PRIOR, *(0.0 for _ in known)])
    spread = np.array([*SPREAD, *(OWN_SPREAD for _ in known)])

    def errors(logs: Column) -> Column:
        found = rows.residuals(known, logs) / NOISE
        return np.concatenate([found, (logs - centre) / spread])

    return known, np.asarray(least_squares(errors, centre, loss="soft_l1").x)


HOPELESS: Final = 2.0
"""Memory by the closed form over what runs can use, from which on a search does not ask for that of
the graph, which takes a tenth of a second: 15 public peaks are .96 to 1.4 times as large."""


@dataclass(frozen=True, slots=True)
class Seconds:
    """Times of n steps, seconds, each of shape (n,): best estimates and ends of intervals."""

    seconds: Column
    low: Column
    high: Column


@dataclass(frozen=True, slots=True)
class TrainingPredictors:
    """What answers times and memory: parts of the predictor in use, or what nothing was fitted to.

    Attributes:
        step: times of a step, but of runs that are answered by their kernels.
        memory: memory of the fullest device, with the same exception.
        in_use: what answers about networks; None where nothing does.
    """

    step: LlmTrainingStep
    memory: LlmTrainingMemory
    in_use: InUse | None = None

    @classmethod
    def of(cls, in_use: InUse) -> Self:
        """The parts of a predictor."""
        parts = predictors_in(in_use.loaded.predictor)
        steps = [own for own in parts if isinstance(own, LlmTrainingStep)]
        held = [own for own in parts if isinstance(own, LlmTrainingMemory)]
        first = next(iter(steps), LlmTrainingStep()), next(iter(held), LlmTrainingMemory())
        networks = {LATENCY, PEAK_MEMORY} <= set(in_use.loaded.predictor.metrics)
        return cls(*first, in_use if networks else None)

    @property
    def process(self) -> object | None:
        """What errors of steps were fitted with; None where they were not."""
        return self.step.process

    def by_kernels(self, run: LlmTraining, layouts: Layouts) -> Mask:
        """Which of n layouts of a run are answered by their kernels, (n,)."""
        if self.in_use is None:
            return np.zeros(len(layouts), dtype=np.bool_)
        return are_by_kernels(run, layouts)

    def of_layouts(self, run: LlmTraining, device: Device, layouts: Layouts) -> Seconds:
        """Step times of n layouts of a run."""
        times = self.step.of_layouts(run, device, layouts)
        known = self._ranked(run, device, layouts, LATENCY) / 1e3
        by_form = np.stack([times.seconds, times.low, times.high])
        return Seconds(*np.where(np.isnan(known), by_form, known))

    def upper_mib(
        self, run: LlmTraining, device: Device, layouts: Layouts
    ) -> tuple[Column, Column]:
        """Best estimates and upper ends of what the device shows for n layouts, (n,) each, MiB."""
        held = self.memory.upper_mib(run, device, layouts)
        known = self._ranked(run, device, layouts, PEAK_MEMORY)[[0, 2]]
        value, upper = np.where(np.isnan(known), np.stack(held), known)
        return value, upper

    def _ranked(self, run: LlmTraining, device: Device, layouts: Layouts, metric: str) -> Matrix:
        """A metric of n layouts by kernels, (3, n); NaN for those that a search ranks by the closed
        form: all others, those that are far from fitting, and those that kernels do not answer.
        """
        found, asked = np.full((3, len(layouts)), np.nan), self.by_kernels(run, layouts)
        if asked.any():
            assert self.in_use is not None
            likely = self.memory.upper_mib(run, device, layouts)[0]
            asked = asked & (likely <= HOPELESS * (device.usable_mib or np.inf))
            own = layouts.take(asked)
            found[:, asked] = columns_by_kernels(run, device, own, self.in_use, metric)
        return found

    def drawn_logs(self, queries: Sequence[Query], draws: int, seed: int) -> Matrix:
        """Logarithms of seconds of queries about one device, drawn with the errors that they
        share: (draws, n).

        Of those by kernels it is not known which errors are shared, and they count as independent:
        the best then wins more often than this says.
        """
        runs = [query.llm_training for query in queries]
        by_kernels = np.array([self.by_kernels(run, Layouts.of(run))[0] for run in runs])
        found = np.empty((draws, len(queries)))
        if not by_kernels.all():
            others = [own for own, one in zip(queries, by_kernels, strict=True) if not one]
            found[:, ~by_kernels] = self.step.drawn_logs(others, draws, seed)
        normal = np.random.default_rng(seed).standard_normal((draws, len(queries)))
        for run in dict.fromkeys(replace(one, layout=TrainingLayout()) for one in runs):
            rows = [
                row
                for row, own in enumerate(runs)
                if by_kernels[row] and replace(own, layout=TrainingLayout()) == run
            ]
            if rows:
                layouts = Layouts.of(run, [runs[row].layout for row in rows])
                own = self.of_layouts(run, queries[rows[0]].device, layouts)
                value, low, high = np.log([own.seconds, own.low, own.high])
                side = np.where(normal[:, rows] < 0.0, value - low, high - value) / HALF_WIDTH
                found[:, rows] = value + side * normal[:, rows]
        return found
