"""Time of a training step of a language model, by constant rates and a Gaussian process.

What constant rates of arithmetic, traffic and messages leave is the error of frameworks, number
formats, devices, and of models and layouts near measured ones: a Gaussian process over these. Near
measured models and devices, and inside the ranges of their runs, intervals follow its variance.
Elsewhere its variance says little about errors, and intervals have one width, that of families of
models or of devices that were left out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Matrix, Names
from forerun.data.device import Device
from forerun.data.language_models.training import LlmTraining
from forerun.data.level import HALF_WIDTH, LEVEL
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.step import (
    FLAGS,
    FRAMEWORKS,
    PARTS,
    PRECISIONS,
    SHAPE,
    SHEET,
    SIZE,
    TrainingRows,
    step_work,
)
from forerun.models.answers.assumed import other_arithmetic
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.conformal import group_weights, held_out_folds, weighted_quantile
from forerun.models.domain.feature_range import SAME_DEVICE, FeatureRange
from forerun.models.gaussian_process.regression import (
    Answer,
    Covariance,
    GaussianProcessRegression,
    scale_of,
)
from forerun.models.limit import LATENCY, Limit
from forerun.models.llm_training.rates import StepTimes, step_times
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

SHARES: Final = (*PARTS, "head", "bubble", "data_messages", "launches")
"""Parts of a step whose share of its time is a feature."""
BLOCKS: Final[Mapping[str, int]] = {
    **{"shape": len(SHAPE), "shares": len(SHARES), "size": len(SIZE), "sheet": len(SHEET)},
    **{"framework": len(FRAMEWORKS), "precision": len(PRECISIONS), "flags": len(FLAGS)},
}
"""Name of a block of columns -> how many it has, in their order."""
SWITCHES: Final = ("framework", "precision", "flags")
"""Blocks of zeros and ones."""
SWITCH: Final = 2.0
"""What a one in them counts, in standard deviations of other columns."""
FOLDS: Final = 10
MOST_DEVIATIONS: Final = 4.0
"""Largest distance of a column from its mean, in standard deviations."""
NOISE: Final = (-5.0, 1.0)
"""Mean and standard deviation of the logarithm of the noise's variance: 8 %."""


def _columns(first: str, last: str) -> tuple[int, int]:
    names, ends = list(BLOCKS), np.cumsum([0, *BLOCKS.values()]).tolist()
    return ends[names.index(first)], ends[names.index(last) + 1]


COVARIANCES: Final = (
    Covariance("linear", _columns("framework", "framework"), prior=(-2.0, 1.0)),
    Covariance("linear", _columns("precision", "precision"), prior=(-4.0, 1.0)),
    Covariance("linear", _columns("flags", "flags"), prior=(-5.0, 1.0)),
    Covariance("radial", _columns("sheet", "sheet"), 1.0, prior=(-4.0, 1.0)),
    Covariance("radial", _columns("shape", "shape"), 0.2, prior=(-4.0, 1.0)),
    Covariance("radial", _columns("shape", "flags"), 0.3, prior=(-4.0, 1.0)),
)
"""Errors of frameworks, formats, settings, devices, models, and of runs like measured ones."""
CHECKED: Final = (*SHAPE[:2], *SIZE, "log_devices")
"""Features whose ranges are checked."""
NEAR: Final = (0.1, 0.2, 0.05, 0.5)
"""Largest difference of a model to one that was measured near it, in each column of `SHAPE`: a
tenth of the width, a fifth of the weights, a twentieth of the weights in experts. With 0.4, 0.7 and
0.2 in their place, intervals of near models held 68 % of the runs of left-out families."""
SAME: Final = (SAME_DEVICE,) * len(SHEET)
"""The same of a device, in each column of `SHEET`."""
TOGETHER: Final[Mapping[str, Sequence[float]]] = {
    **{"shape": NEAR, "sheet": SAME, "framework": (0.5,) * len(FRAMEWORKS)}
}
"""Block -> the same: of a run of nearly this model with the framework on the device."""
UNSEEN_MODEL: Final = Limit(
    "no training of a model of similar width, size and kind was measured",
    LATENCY,
    severity="transfer",
)
PAIRS: Final = ("framework_on", "precision_on")
"""Settings with an architecture."""
MEANING: Final[Mapping[str, str]] = {
    **{"log_hidden": "a hidden state of width {}", "log_weights": "{} weights"},
    **{"log_tokens": "{} tokens a micro-batch", "log_width": "width {} on one device"},
    **{"log_micro_batches": "{} micro-batches a step", "log_sequence": "sequences of {} tokens"},
    "log_devices": "{} devices",
}
"""Feature of `CHECKED` -> what is said of it: of micro-batches, it is the logarithm of one more."""
NOT_TOGETHER: Final = Limit(
    "nearly this model, this framework and this device were not measured in one run",
    LATENCY,
    severity="transfer",
)
UNSEEN_DEVICE: Final = Limit(
    "no training on this device was measured; the interval is that of held-out devices",
    LATENCY,
    severity="transfer",
)


@dataclass(frozen=True)
class LlmTrainingStep(StoredPredictor):
    """Time of one training step of a language model on many devices.

    Attributes:
        seed: deals groups to the folds of the calibration.
        centre, spread: (columns,) mean and standard deviation of the process's columns.
        columns: (n, columns) standardised columns of the measured runs.
        errors: (n,) their log(measured / time by rates).
        weights: (terms,) weights of `COVARIANCES`; empty if unfitted.
        noise: variance of the errors of a measurement.
        factor: on its standard deviation near measured models and devices, calibrated on
            configurations that were left out.
        far_model, far_device: half-width, in logarithms, of intervals about models and on devices
            that are not near measured ones, calibrated on families and devices that were left out,
            each of which counts alike. No interval near measured ones is wider.
        settings: name of a setting -> its values in the training set.
        ranges: ranges of `CHECKED` in the training set; None if unfitted.
    """

    seed: int = field(default=0, metadata=SETTING)
    centre: Column = field(default_factory=lambda: np.zeros(0))
    spread: Column = field(default_factory=lambda: np.ones(0))
    columns: Matrix = field(default_factory=lambda: np.zeros((0, sum(BLOCKS.values()))))
    errors: Column = field(default_factory=lambda: np.zeros(0))
    weights: Column = field(default_factory=lambda: np.zeros(0))
    noise: float = 0.0
    factor: float = 1.0
    far_model: float = np.inf
    far_device: float = np.inf
    settings: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ranges: FeatureRange | None = None
    name: ClassVar[str] = "llm_training"
    metrics: ClassVar[tuple[str, ...]] = (LATENCY,)
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {
        "columns of a training step": (*SHAPE, *SHARES, *SIZE, *SHEET, *FRAMEWORKS, *PRECISIONS)
    }

    @cached_property
    def process(self) -> GaussianProcessRegression | None:
        """Of log(measured / time by rates); None if unfitted.

        Its posterior is computed from what is stored: 30 ms once, in place of 2 MB.
        """
        if not len(self.weights):
            return None
        prior = GaussianProcessRegression(COVARIANCES, NOISE)
        return prior.with_weights(self.columns, self.errors, self.weights, self.noise)

    def answers(self, query: Query) -> bool:
        """Training of language models on devices with a sheet."""
        return query.workload.kind == "llm_training" and query.device.has_sheet

    def fit(self, measurements: Measurements) -> Self:
        """The process, and the factor on its deviation.

        Args:
            measurements: steps; the group `family` keeps models together that are alike.
        """
        rows = _with_time(measurements, self)
        table = TrainingRows.of(rows.queries)
        logs = np.log(rows.column(LATENCY) / 1e3)
        times = step_times(table.work)
        matrix = _matrix(table)
        centre, spread = _scale(matrix)
        fitted = replace(
            self,
            centre=centre,
            spread=spread,
            settings=_settings(rows.queries),
            ranges=FeatureRange.of(CHECKED, _checked(table)),
        )
        columns, errors = fitted._standardised(matrix), logs - np.log(times.total)
        prior = GaussianProcessRegression(COVARIANCES, NOISE)
        own = prior.fit(columns, errors)

        def left_out(key: str, folds: int | None = None) -> Column:
            return _left_out(prior, columns, errors, rows.group(key), folds, self.seed)

        factor = max(1.0, left_out("config", FOLDS)[1] / HALF_WIDTH)
        least = HALF_WIDTH * factor * np.sqrt(own.noise)
        return replace(
            fitted,
            columns=columns,
            errors=errors,
            weights=own.weights,
            noise=own.noise,
            factor=factor,
            far_model=max(least, left_out("family")[0]),
            far_device=max(least, left_out("device")[0]),
        )

    def adapt(self, measurements: Measurements) -> Self:
        """The predictor with further runs in its process, whose covariance stays."""
        rows = _with_time(measurements, self)
        if self.process is None or not len(rows):
            return self
        table = TrainingRows.of(rows.queries)
        times = step_times(table.work)
        columns = np.vstack([self.columns, self._standardised(_matrix(table))])
        errors = np.log(rows.column(LATENCY) / 1e3 / times.total)
        return replace(self, columns=columns, errors=np.concatenate([self.errors, errors]))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Step times, milliseconds, with intervals where fitted, and what they are made of."""
        table = TrainingRows.of(queries)
        found = self.of_rows(table)
        ends = None if self.process is None else (1e3 * found.low, 1e3 * found.high)
        return Predictions.of_metric(
            LATENCY,
            1e3 * found.seconds,
            ends,
            coverage=None if self.process is None else LEVEL,
            limits=[self._limits(query, table, row) for row, query in enumerate(queries)],
            breakdowns_ms=[found.breakdown_ms(row) for row in range(len(queries))],
        )

    def drawn_logs(self, queries: Sequence[Query], draws: int, seed: int) -> Matrix:
        """Logarithms of seconds of queries, drawn with the errors that they share: (draws, n)."""
        table = TrainingRows.of(queries)
        times = step_times(table.work)
        logs, generator = np.log(times.total), np.random.default_rng(seed)
        if self.process is None:
            return np.tile(logs, (draws, 1))
        found = self.process.joint(self._standardised(_matrix(table)))
        errors = generator.multivariate_normal(*found, size=draws, method="eigh")
        return np.asarray(logs + errors)

    def of_layouts(self, run: LlmTraining, device: Device, layouts: Layouts) -> "LayoutTimes":
        """Step times of n layouts of a run on a device."""
        return self.of_rows(TrainingRows.of_layouts(run, device, layouts))

    def of_rows(self, table: TrainingRows) -> "LayoutTimes":
        """Step times of n rows; never below what their arithmetic takes at the most."""
        times = step_times(table.work)
        bound = table.work.bound
        if self.process is None:
            seconds = np.maximum(times.total, bound)
            return LayoutTimes(times, seconds, seconds, seconds, bound)
        answer: Answer = self.process.predict(self._standardised(_matrix(table)))
        width = self._half_width(table, HALF_WIDTH * self.factor * np.sqrt(answer.variance))
        seconds = times.total * np.exp(answer.mean)
        low, high = seconds * np.exp(-width), seconds * np.exp(width)
        seconds, low, high = (np.maximum(own, bound) for own in (seconds, low, high))
        return LayoutTimes(times, seconds, low, high, bound)

    def _standardised(self, matrix: Matrix) -> Matrix:
        scaled = (matrix - self.centre) / self.spread
        return np.asarray(np.clip(scaled, -MOST_DEVIATIONS, MOST_DEVIATIONS))

    def _half_width(self, table: TrainingRows, near: Column) -> Column:
        """Half-widths of the intervals of n rows, in logarithms, by those near measured runs."""
        model = np.where(self._is_near(table, {"shape": NEAR}), 0.0, self.far_model)
        device = np.where(self._is_near(table, {"sheet": SAME}), 0.0, self.far_device)
        most = max(self.far_model, self.far_device)
        assert self.ranges is not None
        outside = self.ranges.is_outside(_checked(table)).any(axis=1)
        apart = (model + device == 0.0) & ~self._is_near(table, TOGETHER)
        far = np.where(outside, most, np.where(apart, self.far_model, np.maximum(model, device)))
        known = (far > 0.0) & np.isfinite(far)
        return np.where(known, far, np.minimum(near, most))

    def _is_near(self, table: TrainingRows, most: Mapping[str, Sequence[float]]) -> Mask:
        """Whether a measured run differs by at most so much in each column of the blocks, (n,)."""
        place = np.concatenate([np.arange(*_columns(block, block)) for block in most])
        measured = self.columns[:, place] * self.spread[place] + self.centre[place]
        own = np.hstack([getattr(table, block) for block in most])
        known = np.unique(measured.round(6), axis=0)
        found, rows = np.unique(own, axis=0, return_inverse=True)
        apart = np.abs(found[:, None, :] - known[None, :, :])
        near = (apart <= np.concatenate([*most.values()])).all(axis=2)
        return np.asarray(near.sum(axis=1) > 0)[rows.ravel()]

    def _limits(self, query: Query, table: TrainingRows, row: int) -> tuple[Limit, ...]:
        if self.ranges is None:
            return ()
        unknown = self._unknown(query)
        one = table.take(slice(row, row + 1))
        model = () if self._is_near(one, {"shape": NEAR}) else (UNSEEN_MODEL,)
        device = () if self._is_near(one, {"sheet": SAME}) else (UNSEEN_DEVICE,)
        alone = not (unknown or model or device or self._is_near(one, TOGETHER))
        outside = self._outside(_checked(table)[row])
        apart = (NOT_TOGETHER,) * alone
        return (*unknown, *_substitutes(query), *model, *device, *apart, *outside)

    def _unknown(self, query: Query) -> list[Limit]:
        """Settings that no run had, or a framework or format that none had on the architecture."""
        own, architecture = _settings([query]), f" on {query.device.architecture}"
        lines = [
            f"{name.replace('_', ' ')}: no training with {own[name][0]} was measured"
            for name, values in self.settings.items()
            if name not in PAIRS and own[name][0] not in values
        ]
        lines = lines or [
            f"no training with {own[name][0]} GPUs was measured"
            for name in PAIRS
            if any(one.endswith(architecture) for one in self.settings[name])
            and own[name][0] not in self.settings[name]
        ]
        return [Limit(line, LATENCY) for line in lines]

    def _outside(self, checked: Column) -> tuple[Limit, ...]:
        """Sizes outside the range of the training set, in their own units."""
        assert self.ranges is not None
        found = []
        for limit in self.ranges.outside(checked, LATENCY):
            assert limit.feature is not None
            ends = (limit.value, limit.low, limit.high)
            more = float(limit.feature == "log_micro_batches")
            own, low, high = (f"{np.exp(end or 0.0) - more:,.0f}" for end in ends)
            line = f"{MEANING[limit.feature].format(own)}; measured runs had {low} to {high}"
            found.append(replace(limit, message=line))
        return tuple(found)


@dataclass(frozen=True, slots=True)
class LayoutTimes:
    """Step times of n layouts, seconds.

    Attributes:
        parts: times by the rates alone.
        seconds: best estimates.
        low, high: ends of intervals that hold 90 %.
        bound: arithmetic at the peak of the sheet.
    """

    parts: StepTimes
    seconds: Column
    low: Column
    high: Column
    bound: Column

    def breakdown_ms(self, row: int) -> dict[str, float]:
        """Part -> milliseconds of one layout, which add up to its time."""
        total = self.parts.total[row]
        parts = {name: own[row] for name, own in self.parts.parts.items() if own[row] > 0.0}
        rest = total - sum(parts.values())
        if rest > 1e-3 * total:
            parts["waiting"] = rest
        scale = 1e3 * self.seconds[row] / sum(parts.values())
        return {name: float(scale * own) for name, own in parts.items()}


def _matrix(table: TrainingRows) -> Matrix:
    """Columns of the process in the order of `BLOCKS`, shape (n, columns)."""
    times = step_times(table.plain)
    parts = {**times.parts, "launches": times.launches}
    shares = np.column_stack([parts[name] / times.total for name in SHARES])
    shares[:, -1] = np.log(shares[:, -1])
    blocks = {"shares": shares}
    return np.column_stack(
        [blocks[name] if name in blocks else getattr(table, name) for name in BLOCKS]
    )


def _scale(matrix: Matrix) -> tuple[Column, Column]:
    """Centre and spread of columns, (columns,) each; those of zeros and ones are set."""
    centre, spread = scale_of(matrix)
    for name in SWITCHES:
        first, end = _columns(name, name)
        centre[first:end], spread[first:end] = 0.0, 1.0 / SWITCH
    return centre, spread


def _substitutes(query: Query) -> tuple[Limit, ...]:
    """What stands for another format, schedule or length than those that were asked for."""
    run, found = query.llm_training, other_arithmetic(query)
    if run.layout.schedule != "1f1b":
        line = f"schedule: {run.layout.schedule} was not measured; its bubble is as published"
        found.append(Limit(line, LATENCY))
    return (*found, *limits_of_lengths(query))


def mean_cost(run: LlmTraining, device: Device, layouts: Layouts) -> Column:
    """Time with a distribution of lengths over that of full sequences, by constant rates, (n,)."""
    runs = (run, replace(run, lengths=()))
    mean, full = (step_times(step_work(own, device, layouts)).total for own in runs)
    return np.asarray(mean / full)


def limits_of_lengths(query: Query) -> tuple[Limit, ...]:
    """That sequences have several lengths, or are longer than the model's configuration allows."""
    run, found = query.llm_training, []
    longest = run.model.most_tokens
    if any(one.tokens < run.sequence_tokens for one in run.lengths):
        found.append(Limit("lengths: the mean of their costs, which was not measured", LATENCY))
    if longest is not None and run.sequence_tokens > longest:
        line = f"sequences are longer than the {longest:,} tokens of the model's configuration"
        own = float(run.sequence_tokens)
        found.append(Limit(line, None, "note", "sequence_tokens", own, 1.0, float(longest)))
    return tuple(found)


def _checked(table: TrainingRows) -> Matrix:
    return np.column_stack([table.shape[:, :2], table.size, np.log(table.devices)])


def framework_on(query: Query) -> str:
    """Framework and architecture of the device of a run."""
    return f"{query.llm_training.framework} on {query.device.architecture}"


def _settings(queries: Sequence[Query]) -> dict[str, tuple[str, ...]]:
    """Settings without a scale -> their distinct values in queries."""
    runs = [query.llm_training for query in queries]
    found: dict[str, set[str]] = {
        "framework": {run.framework for run in runs},
        "framework_on": {framework_on(query) for query in queries},
        "precision_on": {
            f"{query.llm_training.precision} on {query.device.architecture}" for query in queries
        },
        "precision": {run.precision for run in runs},
        "optimizer": {run.optimizer for run in runs},
        "attention": {run.attention for run in runs},
        "recomputation": {
            f"{run.layout.recompute}{' of some layers' if run.layout.recompute_layers else ''}"
            for run in runs
        },
        "offloading": {run.layout.offload for run in runs},
        "adapters": {f"LoRA in {run.framework}" if run.lora_rank else "none" for run in runs},
        "frozen_weights": {run.frozen_weights or "those of the run" for run in runs},
    }
    return {name: tuple(sorted(values)) for name, values in found.items()}


def _with_time(measurements: Measurements, predictor: LlmTrainingStep) -> Measurements:
    """The rows that the predictor answers and whose time was measured."""
    known: Mask = np.array([predictor.answers(query) for query in measurements.queries])
    return measurements.take(known & (measurements.column(LATENCY) > 0.0))


def _left_out(
    process: GaussianProcessRegression,
    columns: Matrix,
    errors: Column,
    groups: Names,
    folds: int | None,
    seed: int,
) -> Column:
    """What 90 % of the errors on left-out groups are at most: by themselves, and over the standard
    deviations of the process, (2,). With one group the first is infinite, which widens nothing.
    """
    found = np.full((2, len(errors)), np.nan)
    for held in held_out_folds(groups, folds, seed):
        answer = process.fit(columns[~held], errors[~held]).predict(columns[held])
        own = np.abs(errors[held] - answer.mean)
        found[:, held] = own, own / np.sqrt(answer.variance)
    if np.isnan(found).all():
        return np.array([np.inf, HALF_WIDTH])
    weights = group_weights(groups)
    return np.array([weighted_quantile(own, weights, LEVEL) for own in found])
