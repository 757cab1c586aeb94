"""What predictors of co-location share: levels of known programs, intervals, limits, what is saved.

An engine answers how many of its program's spreads log P lies off that program's level, so that
programs which nothing slows teach as much as those which everything does. A program that was not
measured has a level and a spread by yardsticks: what one load did to it, and how its times alone
scatter; one that waits far more than all of the training set is taken as unslowed in CPU time. Rows
without a window get the level alone. By how much the isolated runs that P refers to were slower
than usual for the program is added to every answer. Intervals too wide to decide by are withheld,
and `slowed` gives a class with its error rates in their place.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.host_windows import NAMES, natural
from forerun.models.artifact.sealed_folder import read_content, write_content
from forerun.models.colocation.calibration import calibrated, calibrated_ahead
from forerun.models.colocation.features import (
    METRICS,
    ColocationRows,
    Column,
    Names,
    ProgramEffects,
    colocation_of,
    idle_window,
)
from forerun.models.colocation.held_out_runs import (
    ANYONE,
    MODES,
    Mode,
    log_p,
)
from forerun.models.colocation.host_forecast import Mixing, mixing_of
from forerun.models.colocation.limits import limits_of
from forerun.models.colocation.serialization import base_from_json, base_to_json
from forerun.models.colocation.slowed_class import WIDEST_RATIO, ClassErrors, Slowed, classes
from forerun.models.conformal.intervals import POOLED, LogQuantiles
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.prediction import Predictions

LEAST_LOG, MOST_LOG = np.log(0.02), np.log(50.0)
FARTHEST = 8.0
"""Spreads off its level that a program's answer may be."""
PRIOR_ROWS = 3.0
UNLIKE = 0.5
"""Share of the least `cpu_share` of the training set below which a program that was not measured is
unlike all of it. How its times scatter then says nothing of how neighbours slow it; the rule that
it is not slowed is nearer. Chosen on the family `io` left out, which alone has such a program."""
UNIT_POWER = 0.75
"""Power of spreads that intervals of programs which were not measured widen with. Chosen on
families left out, by the least predictable one: with 1 the ends of its programs are a hundredfold
apart, with 0.5 its runs are held too rarely."""


class Engine(Protocol):
    """Answers one target."""

    def predict(self, rows: ColocationRows) -> Column:
        """N answers."""
        ...

    def save(self, folder: Path, name: str) -> None:
        """Write it under that name."""
        ...


@dataclass(frozen=True)
class ColocationBase(ABC):
    """P for CPU and wall time of a program beside neighbours.

    Attributes:
        seed: of engines and folds.
        levels: metric -> levels of programs.
        engines: metric -> what answers.
        widths: (metric, mode) -> quantiles of what is missed on groups held out; of programs that
            were not measured in units of `interval_units`.
        trust: (metric, program) -> share of the engine's answer, away from the level, that counts.
        offsets: (metric, program) -> correction in log space after `adapt`.
        training_metrics: metrics of the host that training had.
        idle: what an otherwise idle host shows.
        ranges: of the windows' medians in training.
        mixing: how profiles add up to what a host shows.
        ahead: metric -> quantiles of what is missed where the host is put together from profiles,
            in spreads of a program.
        errors: (metric, mode) -> error rates of the class `slowed` on groups held out; the mode is
            `ahead` where the host is put together from profiles.
        least_cpu_share: least CPU time over wall time of a program alone in training.
        unit_power: as UNIT_POWER; an earlier version had 1.
    """

    name: ClassVar[str]
    folds: ClassVar[int] = 10
    looks_ahead: ClassVar[bool] = True
    """Whether intervals of hosts put together are measured, which takes another round of fits."""
    seed: int = 0
    levels: Mapping[str, ProgramEffects] = field(default_factory=dict)
    engines: Mapping[str, Engine] = field(default_factory=dict)
    widths: Mapping[tuple[str, Mode], LogQuantiles] = field(default_factory=dict)
    trust: Mapping[tuple[str, str], float] = field(default_factory=dict)
    offsets: Mapping[tuple[str, str], float] = field(default_factory=dict)
    training_metrics: tuple[str, ...] = ()
    idle: HostWindow = field(default_factory=HostWindow)
    ranges: FeatureRange | None = None
    mixing: Mixing = field(default_factory=Mixing)
    ahead: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    errors: Mapping[tuple[str, str], ClassErrors] = field(default_factory=dict)
    least_cpu_share: float = 0.0
    unit_power: float = UNIT_POWER

    @property
    def metrics(self) -> tuple[str, ...]:
        """Those that training measured; both before it."""
        return tuple(m for m in METRICS if m in self.levels or not self.levels)

    def answers(self, query: Query) -> bool:
        """Programs beside neighbours, once anything was taught."""
        return isinstance(query.workload, Colocation) and bool(self.levels)

    @abstractmethod
    def engine(self, metric: str, rows: ColocationRows, target: Column) -> Engine:
        """An engine fitted on n rows.

        Args:
            metric: that it is to answer.
            rows: with windows.
            target: n values.
        """

    @abstractmethod
    def lighter(self) -> Self:
        """The same with fewer members, for the many fits that intervals are measured by."""

    @classmethod
    @abstractmethod
    def load_engine(cls, folder: Path, name: str) -> Engine:
        """The engine that was saved under that name."""

    def fit(self, measurements: Measurements) -> Self:
        """Levels and engines of each metric; widths from neighbours and families held out."""
        idle = idle_window(measurements.queries)
        rows = ColocationRows.of(measurements.queries, idle)
        fitted = self.without_intervals(rows, measurements)
        widths, trust, errors = calibrated(fitted, rows, measurements)
        median = rows.found[:, 0]
        some = np.isfinite(median).sum(axis=0) > 0
        names = tuple(name for name, there in zip(NAMES, some, strict=True) if there)
        found = FeatureRange.of(names, natural(median)[:, some]) if names else None
        neighbours = measurements.groups.get("neighbour", np.full(len(rows), ""))
        mixing = mixing_of([colocation_of(q) for q in measurements.queries], neighbours, idle)
        fitted = replace(fitted, widths=widths, trust=trust, training_metrics=names, ranges=found)
        fitted = replace(fitted, idle=idle, mixing=mixing, errors=errors)
        ahead, errors_ahead = calibrated_ahead(fitted, rows, measurements)
        return replace(fitted, ahead=ahead, errors={**errors, **errors_ahead})

    def interval_units(self, rows: ColocationRows) -> Column:
        """What intervals of programs that were not measured are counted in, by either clock, (n,).

        A program's own spread and that of all: what yardsticks say may be wrong.
        """
        levels = self.levels.get("p_cpu", next(iter(self.levels.values())))
        _, spread, _ = levels.rows(rows.programs, rows.yardsticks)
        units: Column = (spread + levels.common[1]) ** self.unit_power
        return units

    def without_intervals(
        self, rows: ColocationRows, measured: Measurements, metrics: Sequence[str] = METRICS
    ) -> Self:
        """Levels and engines of some metrics."""
        levels: dict[str, ProgramEffects] = {}
        engines: dict[str, Engine] = {}
        for metric in metrics:
            target = log_p(measured, metric)
            known = np.isfinite(target)
            if not known.any():
                continue
            train, values = rows.take(known), target[known]
            levels[metric] = ProgramEffects.of(train.programs, values, train.yardsticks)
            middle, spread, modes = levels[metric].rows(train.programs, train.yardsticks)
            usable = train.seen & (modes == "known")
            if usable.any():
                wanted = (values - middle) / spread
                engines[metric] = self.engine(metric, train.take(usable), wanted[usable])
        shares = rows.cpu_share[np.isfinite(rows.cpu_share)]
        least = float(shares.min()) if len(shares) else 0.0
        fitted = replace(self, levels=levels, engines=engines, offsets={}, trust={})
        return replace(fitted, least_cpu_share=least)

    def adapt(self, measurements: Measurements) -> Self:
        """One correction a program, shrunk to none."""
        plain = replace(self, offsets={})
        offsets = dict(self.offsets)
        rows = ColocationRows.of(measurements.queries, self.idle)
        for metric in self.metrics:
            missed = log_p(measurements, metric) - plain.in_logarithms(rows, metric)[0]
            for program in np.unique(rows.programs):
                mine = missed[(rows.programs == program) & np.isfinite(missed)]
                if len(mine):
                    shrunk = len(mine) / (len(mine) + PRIOR_ROWS) * float(np.median(mine))
                    offsets[metric, str(program)] = shrunk
        return replace(self, offsets=offsets)

    def in_logarithms(self, rows: ColocationRows, metric: str) -> tuple[Column, Names]:
        """Log P of n rows, and the mode of each."""
        answer, modes = self._plain(rows, metric)
        answer = answer + [self.offsets.get((metric, str(p)), 0.0) for p in rows.programs]
        answer = answer + rows.reference
        return np.clip(answer, LEAST_LOG, MOST_LOG), modes

    def _plain(self, rows: ColocationRows, metric: str) -> tuple[Column, Names]:
        """The same before `adapt`; wall time is CPU time and waiting where that was seen."""
        middle, spread, modes = self.program_levels(rows, metric)
        answer, part, engine = middle.copy(), rows.seen, self.engines.get(metric)
        if engine is not None and part.any():
            found = spread[part] * np.clip(engine.predict(rows.take(part)), -FARTHEST, FARTHEST)
            pairs = zip(modes[part], rows.programs[part], strict=True)
            who = [ANYONE.get(mode, str(program)) for mode, program in pairs]
            answer[part] += [self.trust.get((metric, w), 1.0) for w in who] * found
        if metric == "p_wall" and "p_cpu" in self.levels:
            busy, _ = self._plain(rows, "p_cpu")
            answer = np.where(np.isnan(rows.waiting), answer, busy + rows.waiting)
        return answer, modes

    def program_levels(self, rows: ColocationRows, metric: str) -> tuple[Column, Column, Names]:
        """Level, spread and mode of each program, shapes (n,).

        Both are 0 in CPU time for a program unlike all of the training set.
        """
        middle, spread, modes = self.levels[metric].rows(rows.programs, rows.yardsticks)
        unlike = (metric == "p_cpu") & self._unlike(rows, modes)
        return np.where(unlike, 0.0, middle), np.where(unlike, 0.0, spread), modes

    def _unlike(self, rows: ColocationRows, modes: Names) -> NDArray[np.bool_]:
        """Whether a program was not measured and waits more than any in training, shape (n,)."""
        found: NDArray[np.bool_] = rows.cpu_share < UNLIKE * self.least_cpu_share
        found &= modes != "known"
        return found

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """P with intervals; where one is too wide to decide by, its ends are NaN."""
        rows = ColocationRows.of(queries, self.idle)
        values: dict[str, Column] = {}
        low: dict[str, Column] = {}
        high: dict[str, Column] = {}
        modes = np.full(len(rows), "new")
        coming = np.array([colocation_of(query).estimated for query in queries], dtype=np.bool_)
        for metric in self.metrics:
            answer, modes = self.in_logarithms(rows, metric)
            values[metric] = np.exp(answer)
            below, above = self._ends(rows, metric, modes, coming)
            wide = above > WIDEST_RATIO * below
            cases = _cases(modes, coming)
            wide &= np.array([(metric, case) in self.errors for case in cases], dtype=np.bool_)
            low[metric] = np.where(wide, np.nan, values[metric] * below)
            high[metric] = np.where(wide, np.nan, values[metric] * above)
        unlike = self._unlike(rows, modes)
        limits = limits_of(queries, rows, modes, self.training_metrics, self.ranges, unlike)
        return Predictions(values, low, high, 0.9 if self.widths else None, limits)

    def _ends(
        self, rows: ColocationRows, metric: str, modes: Names, coming: NDArray[np.bool_]
    ) -> tuple[Column, Column]:
        """Lower and upper end of each interval over its value, shapes (n,)."""
        one = np.ones(len(rows))
        ends: list[tuple[Column, Column]] = []
        for mode in MODES:
            width = self.widths.get((metric, mode))
            unit = one if mode == "known" or width is None else self.interval_units(rows)
            width = width or LogQuantiles({POOLED: (-1.0, 1.0)})
            below, above = width.around(one, rows.programs.tolist())
            ends.append((below**unit, above**unit))
        cases = [modes == mode for mode in MODES]
        low, high = (np.select(cases, [pair[place] for pair in ends]) for place in (0, 1))
        if metric in self.ahead:
            _, spread, _ = self.levels[metric].rows(rows.programs, rows.yardsticks)
            below, above = (np.exp(spread * end) for end in self.ahead[metric])
            low = np.where(coming, np.minimum(low, below), low)
            high = np.where(coming, np.maximum(high, above), high)
        return low, high

    def slowed(
        self, queries: Sequence[Query], answers: Predictions
    ) -> dict[str, list[Slowed | None]]:
        """Metric -> n classes in place of intervals; None where there is an interval.

        Args:
            queries: n questions.
            answers: of `predict` to them, or the same scaled.
        """
        rows = ColocationRows.of(queries, self.idle)
        coming = np.array([colocation_of(query).estimated for query in queries], dtype=np.bool_)
        found: dict[str, list[Slowed | None]] = {}
        for metric in self.metrics:
            cases = _cases(self.program_levels(rows, metric)[2], coming)
            rates = [self.errors.get((metric, case)) for case in cases]
            found[metric] = classes(answers.values[metric], answers.low[metric], rates)
        return found

    def save(self, folder: Path) -> None:
        """Engines in files of their own, the rest as JSON."""
        write_content(folder, self.name, base_to_json(self))
        for metric, engine in self.engines.items():
            engine.save(folder, metric)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, or an earlier version of forerun wrote it.
        """
        content = read_content(folder, cls.name)
        known = base_from_json(content)
        engines = {metric: cls.load_engine(folder, metric) for metric in content["engines"]}
        return cls(**known, engines=engines)


def _cases(modes: Names, coming: NDArray[np.bool_]) -> list[str]:
    """Second key of `errors` for each row: its mode, or `ahead` for a known program to come."""
    ahead = coming & (modes == "known")
    return ["ahead" if one else str(mode) for one, mode in zip(ahead, modes, strict=True)]
