"""Memory of training steps as it is measured: what the allocator holds, and what the device shows.

The sum of parts of `stage_memory` times a factor, for rounding and fragmentation of the allocator,
is what it reserves; the device shows its context and the buffers of collectives on top. The factor
and the context have priors, so that few rows move them little. Errors of a setting, a framework
with its kind of attention, have mostly one sign; intervals of settings without rows therefore come
from settings that were held out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Self

import numpy as np

from forerun.data.columns import Column, Columns, Mask, Names
from forerun.data.language_models.training import LlmTraining
from forerun.data.level import LEVEL
from forerun.features.llm_serving.device_bytes import GIB
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.memory import StageMemory, stage_memory
from forerun.models.conformal import Intervals, LogQuantiles, out_of_fold

MemoryKind = Literal["allocated", "reserved", "device"]
"""What was measured: bytes of live tensors, those of the caching allocator, or those of the device
as its management library shows them."""

PRIOR: Final = (np.log(1.05), np.log(3.0 * GIB))
"""Logarithms of the factor and of the context. PyTorch's allocator rounds and fragments by a few
percent; the context of an A100 takes 1,573 MiB (BigScience, chronicles of the 176B model), and
buffers of a few communicators of NCCL about as much."""
SPREAD: Final = (0.05, 0.3)
"""Standard deviations of both priors."""
NOISE: Final = 0.08
"""Standard deviation of log(measured / predicted) that the fit assumes."""
FOLDS: Final = 10


@dataclass(frozen=True)
class MemoryRows:
    """Measured memory of n runs, each at its own layout.

    Attributes:
        runs: n runs.
        kinds: n kinds of measured memory.
        measured: (n,) bytes of the fullest device.
        configurations: (n,) labels of runs that are alike.
    """

    runs: Sequence[LlmTraining]
    kinds: Sequence[MemoryKind]
    measured: Column
    configurations: Names

    def take(self, rows: Mask) -> Self:
        """The rows where the mask is True."""
        places = np.flatnonzero(rows).tolist()
        return type(self)(
            [self.runs[i] for i in places],
            [self.kinds[i] for i in places],
            self.measured[rows],
            self.configurations[rows],
        )

    def settings(self) -> Names:
        """Setting of each row, shape (n,)."""
        return np.array([setting_of(run) for run in self.runs], dtype=np.str_)

    def parts(self) -> Column:
        """Sum of parts of each row, bytes, shape (n,)."""
        return np.array([stage_memory(run, Layouts.of(run)).total[0] for run in self.runs])


def setting_of(run: LlmTraining) -> str:
    """Framework and kind of attention, which errors depend on most."""
    return f"{run.framework}/{run.attention}"


@dataclass(frozen=True, slots=True)
class TrainingMemory(Columns):
    """Memory of the fullest device for n layouts, bytes; columns have shape (n,).

    Attributes:
        parts: the sum of parts, which nothing was fitted to, by part and stage.
        reserved: what the allocator holds.
        device: what the device shows: `reserved` and its context.
        low, high: ends of the interval of `device`.
        coverage: nominal coverage of the interval; None where no run of the setting was measured,
            and the interval comes from other settings.
    """

    parts: StageMemory
    reserved: Column
    device: Column
    low: Column
    high: Column
    coverage: float | None

    @property
    def allocated(self) -> Column:
        """Bytes of live tensors, shape (n,)."""
        return self.parts.total


@dataclass(frozen=True)
class FittedMemory:
    """Two constants and intervals.

    Attributes:
        fragmentation: what the allocator holds over what is live.
        context_bytes: what the device shows on top.
        settings: settings with measured rows.
        intervals: quantiles of log(measured / predicted): `seen` with configurations held out,
            `unseen` with settings held out.
    """

    fragmentation: float = float(np.exp(PRIOR[0]))
    context_bytes: float = float(np.exp(PRIOR[1]))
    settings: tuple[str, ...] = ()
    intervals: Intervals = field(default_factory=lambda: Intervals(LogQuantiles()))

    @classmethod
    def fit(cls, rows: MemoryRows) -> Self:
        """Constants and intervals of measured rows."""
        parts, settings = rows.parts(), rows.settings()

        def errors(held: Mask) -> Column:
            return _residuals(rows, parts, held, _constants(rows, parts, ~held))

        by_configuration = out_of_fold(rows.configurations, errors, folds=FOLDS)[0]
        by_setting = out_of_fold(settings, errors)[0]
        seen = LogQuantiles.of(by_configuration, settings)
        everything = np.ones(len(parts), dtype=bool)
        factor, context = np.exp(_constants(rows, parts, everything))
        known = tuple(np.unique(settings).tolist())
        intervals = Intervals(seen, LogQuantiles.of(by_setting))
        return cls(float(factor), float(context), known, intervals)

    def predict(self, run: LlmTraining, layouts: Layouts) -> TrainingMemory:
        """Memory of n layouts of a run."""
        parts = stage_memory(run, layouts)
        reserved = self.fragmentation * parts.total
        device = reserved + self.context_bytes
        setting = setting_of(run)
        seen = setting in self.settings
        ends = self.intervals.log_ends([setting], np.array([seen]))[0]
        low, high = device * np.exp(ends[0]), device * np.exp(ends[1])
        return TrainingMemory(parts, reserved, device, low, high, LEVEL if seen else None)


def _constants(rows: MemoryRows, parts: Column, used: Mask) -> Column:
    """Logarithms of the factor and the context, maximum a posteriori with a soft absolute loss."""
    from scipy.optimize import least_squares

    def errors(logs: Column) -> Column:
        found = -_residuals(rows, parts, used, logs) / NOISE
        return np.concatenate([found, (logs - PRIOR) / SPREAD])

    return np.asarray(least_squares(errors, PRIOR, loss="soft_l1").x)


def _residuals(rows: MemoryRows, parts: Column, used: Mask, logs: Column) -> Column:
    """log(measured / predicted) of the used rows."""
    kinds = np.array(rows.kinds)
    factor = np.where(kinds == "allocated", 1.0, np.exp(logs[0]))
    predicted = factor * parts + np.where(kinds == "device", np.exp(logs[1]), 0.0)
    return np.asarray(np.log(rows.measured[used] / predicted[used]))
