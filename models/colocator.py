"""What predictors of co-location share: levels of known programs, intervals, limits, what is saved.

An engine answers log P. For a program that was measured before, it answers how many of its own
spreads a run lies off its own level, so that programs which nothing slows teach as much as those
which everything does; the same for one that was measured beside one load alone, whose level and
spread follow from that; for any other, log P itself. Rows without a window get the level alone.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.windows import NAMES, natural
from forerun.models.artifact import read_content, write_content
from forerun.models.calibration import POOLED, LogQuantiles, held_out_folds
from forerun.models.colocation_forecast import Mixing, asked_ahead, mixing_of
from forerun.models.colocation_held_out import (
    ANYONE,
    ENGINES,
    HELD_OUT,
    MADE_OF_IT,
    MODES,
    Mode,
    groups_of,
    log_p,
    strata_of,
    trust_of,
)
from forerun.models.colocation_limits import limits_of
from forerun.models.colocation_rows import (
    METRICS,
    ColocationRows,
    Column,
    Levels,
    Names,
    colocation_of,
    idle_window,
)
from forerun.models.domain import FeatureRange
from forerun.models.prediction import Predictions

LEAST_LOG, MOST_LOG = np.log(0.02), np.log(50.0)
FARTHEST = 8.0
"""Spreads off its level that a known program's answer may be."""
PRIOR_ROWS = 3.0
FEWEST_PAIRS = 20
"""Runs beside programs with profiles from which on intervals of what is to come are measured."""


class Engine(Protocol):
    """Answers one target of one mode."""

    def predict(self, rows: ColocationRows) -> Column:
        """N answers."""
        ...

    def save(self, folder: Path, name: str) -> None:
        """Write it under that name."""
        ...


@dataclass(frozen=True)
class Colocator(ABC):
    """P for CPU and wall time of a program beside neighbours.

    Attributes:
        seed: of engines and folds.
        levels: metric -> levels of programs.
        engines: (metric, mode) -> what answers.
        widths: (metric, mode) -> quantiles of what is missed on groups held out.
        trust: (metric, program) -> share of the engine's answer, away from the level, that counts.
        offsets: (metric, program) -> correction in log space after `adapt`.
        taught: metrics of the host that training had.
        idle: what an otherwise idle host shows.
        ranges: of the windows' medians in training.
        mixing: how profiles add up to what a host shows.
        ahead: metric -> quantiles of what is missed where the host is put together from profiles,
            in spreads of a program.
    """

    name: ClassVar[str]
    folds: ClassVar[int] = 10
    looks_ahead: ClassVar[bool] = True
    """Whether intervals of hosts put together are measured, which takes another round of fits."""
    seed: int = 0
    levels: Mapping[str, Levels] = field(default_factory=dict)
    engines: Mapping[tuple[str, Mode], Engine] = field(default_factory=dict)
    widths: Mapping[tuple[str, Mode], LogQuantiles] = field(default_factory=dict)
    trust: Mapping[tuple[str, str], float] = field(default_factory=dict)
    offsets: Mapping[tuple[str, str], float] = field(default_factory=dict)
    taught: tuple[str, ...] = ()
    idle: HostWindow = field(default_factory=HostWindow)
    ranges: FeatureRange | None = None
    mixing: Mixing = field(default_factory=Mixing)
    ahead: Mapping[str, tuple[float, float]] = field(default_factory=dict)

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
        fitted = self._fitted(rows, measurements)
        profiled = bool(np.isfinite(rows.beside).any())
        widths: dict[tuple[str, Mode], LogQuantiles] = {}
        trust: dict[tuple[str, str], float] = {}
        busy: dict[Mode, Column] = {}
        waits = np.isfinite(rows.waiting)
        for metric in fitted.metrics:
            target = log_p(measurements, metric)
            for mode in MODES:
                if mode == "profiled" and not profiled:
                    continue
                if metric == "p_wall" and mode in busy and waits.mean() > 0.5:
                    answer = busy[mode] + rows.waiting
                else:
                    answer, middle = self._held_out(rows, measurements, metric, mode)
                    if mode == "profiled":
                        answer[groups_of(measurements, "profile") == MADE_OF_IT] = np.nan
                    who = rows.programs
                    if mode != "known":
                        who = np.full(len(rows), ANYONE[mode])
                    mine = trust_of(who, target, answer, middle)
                    trust |= {(metric, program): share for program, share in mine.items()}
                    kept = np.array([mine.get(str(p), 1.0) for p in who])
                    answer = middle + kept * (answer - middle)
                    busy |= {mode: answer} if metric == "p_cpu" else {}
                strata = strata_of(rows, answer, mode)
                widths[metric, mode] = LogQuantiles.of(target - answer, strata)
        median = rows.found[:, 0]
        some = np.isfinite(median).sum(axis=0) > 0
        names = tuple(name for name, there in zip(NAMES, some, strict=True) if there)
        found = FeatureRange.of(names, natural(median)[:, some]) if names else None
        neighbours = measurements.groups.get("neighbour", np.full(len(rows), ""))
        mixing = mixing_of([colocation_of(q) for q in measurements.queries], neighbours, idle)
        fitted = replace(fitted, widths=widths, trust=trust, taught=names, ranges=found)
        fitted = replace(fitted, idle=idle, mixing=mixing)
        return replace(fitted, ahead=fitted._missed_ahead(rows, measurements))

    def _fitted(
        self, rows: ColocationRows, measured: Measurements, only: tuple[str, Mode] | None = None
    ) -> Self:
        """Levels and engines; `only` names the one metric and mode that is wanted."""
        levels: dict[str, Levels] = {}
        engines: dict[tuple[str, Mode], Engine] = {}
        for metric in METRICS if only is None else only[:1]:
            target = log_p(measured, metric)
            known = np.isfinite(target)
            if not known.any():
                continue
            levels[metric] = Levels.of(rows.programs[known], target[known], rows.beside[known])
            teaches = known & rows.seen
            if not teaches.any():
                continue
            mine, values = rows.take(teaches), target[teaches]
            middle, spread, modes = levels[metric].rows(mine.programs, mine.beside)
            for mode in dict.fromkeys(
                ENGINES[each] for each in (MODES if only is None else only[1:])
            ):
                wanted = (values - middle) / spread if mode == "known" else values
                part = modes == "known" if mode == "known" else np.ones(len(values), dtype=np.bool_)
                if part.any():
                    engines[metric, mode] = self.engine(metric, mine.take(part), wanted[part])
        return replace(self, levels=levels, engines=engines, offsets={}, trust={})

    def _held_out(
        self,
        rows: ColocationRows,
        measured: Measurements,
        metric: str,
        mode: Mode,
        asked: ColocationRows | None = None,
    ) -> tuple[Column, Column]:
        """Log P and the level of each program, by engines that did not see a row's group.

        `asked` are the same rows with other windows, where these are to be answered.
        """
        groups = groups_of(measured, HELD_OUT[mode])
        target = log_p(measured, metric)
        answer, middle = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        lighter = self.lighter()
        if mode == "new":
            rows = rows.unprofiled()
        asked = rows if asked is None else asked
        for held in held_out_folds(groups, self.folds, self.seed):
            if held.all() or not np.isfinite(target[~held]).any():
                continue
            part = measured.take(~held)
            without = lighter._fitted(rows.take(~held), part, only=(metric, mode))
            mine = asked.take(held)
            answer[held], _ = without.in_logarithms(mine, metric)
            middle[held], _, _ = without.levels[metric].rows(mine.programs, mine.beside)
        return answer, middle

    def _missed_ahead(
        self, rows: ColocationRows, measured: Measurements
    ) -> dict[str, tuple[float, float]]:
        """What is missed on runs beside programs with profiles, when asked before they meet.

        By engines, and by weights of what adds up, that did not see the neighbour.
        """
        if not self.looks_ahead or "neighbour" not in measured.groups:
            return {}
        cpus = measured.groups.get("cpus_shared", np.full(len(measured), "inf")).astype(np.float64)
        neighbours = measured.groups["neighbour"]
        pairs, coming = asked_ahead(measured.queries, neighbours, cpus, self.idle)
        if len(pairs) < FEWEST_PAIRS:
            return {}
        forecast = ColocationRows.of(coming, self.idle)
        found = {}
        for metric in self.metrics:
            answer, middle = self._held_out(rows, measured, metric, "known", forecast)
            kept = np.array([self.trust.get((metric, str(p)), 1.0) for p in rows.programs])
            answer = middle + kept * (answer - middle)
            _, spread, _ = self.levels[metric].rows(rows.programs, rows.beside)
            missed = ((log_p(measured, metric) - answer) / spread)[pairs]
            everyone = np.full(len(missed), POOLED)
            found[metric] = LogQuantiles.of(missed, everyone).bounds[POOLED]
        return found

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
        return np.clip(answer, LEAST_LOG, MOST_LOG), modes

    def _plain(self, rows: ColocationRows, metric: str) -> tuple[Column, Names]:
        """The same before `adapt`; wall time is CPU time and waiting where that was seen."""
        middle, spread, modes = self.levels[metric].rows(rows.programs, rows.beside)
        answer = middle.copy()
        for mode in MODES:
            part = (modes == mode) & rows.seen
            engine = self.engines.get((metric, ENGINES[mode]))
            if engine is None or not part.any():
                continue
            found = engine.predict(rows.take(part))
            if ENGINES[mode] == "known":
                found = spread[part] * np.clip(found, -FARTHEST, FARTHEST)
            else:
                found = rows.touchy[part] * (found - middle[part])
            who = [ANYONE.get(mode, str(program)) for program in rows.programs[part]]
            answer[part] = middle[part] + [self.trust.get((metric, w), 1.0) for w in who] * found
        if metric == "p_wall" and "p_cpu" in self.levels:
            busy, _ = self._plain(rows, "p_cpu")
            answer = np.where(np.isnan(rows.waiting), answer, busy + rows.waiting)
        return answer, modes

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """P with intervals."""
        rows = ColocationRows.of(queries, self.idle)
        values: dict[str, Column] = {}
        low: dict[str, Column] = {}
        high: dict[str, Column] = {}
        modes = np.full(len(rows), "new")
        coming = np.array([colocation_of(query).estimated for query in queries], dtype=np.bool_)
        for metric in self.metrics:
            answer, modes = self.in_logarithms(rows, metric)
            values[metric] = np.exp(answer)
            ends = {}
            for mode in MODES:
                width = self.widths.get((metric, mode), LogQuantiles({POOLED: (-1.0, 1.0)}))
                ends[mode] = width.around(values[metric], strata_of(rows, answer, mode).tolist())
            cases = [modes == mode for mode in MODES]
            for place, (kept, hull) in enumerate(((low, np.minimum), (high, np.maximum))):
                kept[metric] = np.select(cases, [ends[mode][place] for mode in MODES])
                if metric in self.ahead:
                    _, spread, _ = self.levels[metric].rows(rows.programs, rows.beside)
                    end = values[metric] * np.exp(spread * self.ahead[metric][place])
                    kept[metric] = np.where(coming, hull(end, kept[metric]), kept[metric])
        limits = limits_of(queries, rows, modes, self.taught, self.ranges)
        return Predictions(values, low, high, 0.9 if self.widths else None, limits)

    def save(self, folder: Path) -> None:
        """Engines in files of their own, the rest as JSON."""
        write_content(folder, self.name, self._parameters())
        for metric, mode in self.engines:
            self.engines[metric, mode].save(folder, f"{metric}-{mode}")

    def _parameters(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "levels": {metric: levels.to_json() for metric, levels in self.levels.items()},
            "engines": sorted(self.engines),
            "widths": [[*key, width.to_json()] for key, width in sorted(self.widths.items())],
            "trust": [[*key, value] for key, value in sorted(self.trust.items())],
            "offsets": [[*key, value] for key, value in sorted(self.offsets.items())],
            "taught": self.taught,
            "idle": {n: v for n, v in _first(self.idle).items() if np.isfinite(v)},
            "ahead": {metric: list(ends) for metric, ends in self.ahead.items()},
            "mixing": {"weights": dict(self.mixing.weights), "pairs": self.mixing.pairs},
            "ranges": None if self.ranges is None else self.ranges.to_json(),
        }

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged.
        """
        content = read_content(folder, cls.name)
        idle = content["idle"]
        return cls(
            seed=content["seed"],
            levels={m: Levels.from_json(one) for m, one in content["levels"].items()},
            engines={
                (metric, mode): cls.load_engine(folder, f"{metric}-{mode}")
                for metric, mode in content["engines"]
            },
            widths={(m, mode): LogQuantiles.from_json(w) for m, mode, w in content["widths"]},
            trust={(m, program): value for m, program, value in content["trust"]},
            offsets={(m, program): value for m, program, value in content["offsets"]},
            taught=tuple(content["taught"]),
            idle=HostWindow(tuple(idle), (tuple(idle.values()),) if idle else ()),
            ahead={m: (one[0], one[1]) for m, one in content.get("ahead", {}).items()},
            mixing=Mixing(content["mixing"]["weights"], content["mixing"]["pairs"]),
            ranges=None if content["ranges"] is None else FeatureRange.from_json(content["ranges"]),
        )


def _first(window: HostWindow) -> dict[str, float]:
    return dict(zip(window.metrics, window.seconds[0], strict=True)) if window.seconds else {}
