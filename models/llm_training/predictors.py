"""What answers about a run: kernels of its network, or the closed form of large clusters."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix
from forerun.data.device import Device
from forerun.data.language_models.training import LlmTraining, TrainingLayout
from forerun.data.level import HALF_WIDTH
from forerun.data.query import Query
from forerun.features.llm_training.layouts import Layouts
from forerun.models.answers.served_models import InUse
from forerun.models.limit import LATENCY, PEAK_MEMORY
from forerun.models.llm_training.by_kernels import are_by_kernels, columns_by_kernels
from forerun.models.llm_training.memory import LlmTrainingMemory
from forerun.models.llm_training.step_time import LlmTrainingStep
from forerun.models.router import predictors_in

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
