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
from typing import Any, ClassVar, Literal, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.windows import NAMES
from forerun.models.artifact import read_content, write_content
from forerun.models.calibration import LogQuantiles, held_out_folds
from forerun.models.colocation_forecast import Mixing, mixing_of
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

Mode = Literal["known", "profiled", "new"]
MODES: tuple[Mode, ...] = ("known", "profiled", "new")
HELD_OUT: Mapping[Mode, str] = {"known": "neighbour", "profiled": "family", "new": "family"}
"""Grouping key whose values are held out where intervals are measured."""
ENGINES: Mapping[Mode, Mode] = {"known": "known", "profiled": "known", "new": "new"}
"""Which engine answers."""
LEAST_LOG, MOST_LOG = np.log(0.02), np.log(50.0)
FARTHEST = 8.0
"""Spreads off its level that a known program's answer may be."""
PRIOR_ROWS = 3.0
ANYONE: Mapping[Mode, str] = {"new": "", "profiled": "profiled "}
"""In place of a program's name: all that were not measured, or beside one load alone."""
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
FEWEST_TRUSTED = 15
"""Runs held out from which on a program's share is chosen."""
SEVERITIES = (-0.3, -0.1)

NEW = "this program was not measured beside neighbours: the answer is from others like it"
PROFILED = "this program was measured beside one load alone: the answer scales with what that did"
NO_WINDOW = "no metrics of the host: the answer is the level over all neighbours"
ESTIMATED = "the host's metrics were put together from profiles, not measured"


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
    """

    name: ClassVar[str]
    folds: ClassVar[int] = 10
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
                    who = rows.programs
                    if mode != "known":
                        who = np.full(len(rows), ANYONE[mode])
                    mine = trust_of(who, target, answer, middle)
                    trust |= {(metric, program): share for program, share in mine.items()}
                    kept = np.array([mine.get(str(p), 1.0) for p in who])
                    answer = middle + kept * (answer - middle)
                    busy |= {mode: answer} if metric == "p_cpu" else {}
                strata = _strata(rows, answer, mode)
                widths[metric, mode] = LogQuantiles.of(target - answer, strata)
        median = rows.found[:, 0]
        some = np.isfinite(median).sum(axis=0) > 0
        names = tuple(name for name, there in zip(NAMES, some, strict=True) if there)
        found = FeatureRange.of(names, median[:, some]) if names else None
        neighbours = measurements.groups.get("neighbour", np.full(len(rows), ""))
        mixing = mixing_of([colocation_of(q) for q in measurements.queries], neighbours, idle)
        fitted = replace(fitted, widths=widths, trust=trust, taught=names, ranges=found)
        return replace(fitted, idle=idle, mixing=mixing)

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
        self, rows: ColocationRows, measured: Measurements, metric: str, mode: Mode
    ) -> tuple[Column, Column]:
        """Log P and the level of each program, by engines that did not see a row's group."""
        groups = _groups(measured, HELD_OUT[mode])
        target = log_p(measured, metric)
        answer, middle = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
        lighter = self.lighter()
        if mode == "new":
            rows = rows.unprofiled()
        for held in held_out_folds(groups, self.folds, self.seed):
            if held.all() or not np.isfinite(target[~held]).any():
                continue
            part = measured.take(~held)
            without = lighter._fitted(rows.take(~held), part, only=(metric, mode))
            mine = rows.take(held)
            answer[held], _ = without.in_logarithms(mine, metric)
            middle[held], _, _ = without.levels[metric].rows(mine.programs, mine.beside)
        return answer, middle

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
        for metric in self.metrics:
            answer, modes = self.in_logarithms(rows, metric)
            values[metric] = np.exp(answer)
            ends = {}
            for mode in MODES:
                width = self.widths.get((metric, mode), LogQuantiles({"all": (-1.0, 1.0)}))
                ends[mode] = width.around(values[metric], _strata(rows, answer, mode).tolist())
            cases = [modes == mode for mode in MODES]
            for place, kept in enumerate((low, high)):
                kept[metric] = np.select(cases, [ends[mode][place] for mode in MODES])
        limits = [self._limits(q, rows, i, str(modes[i])) for i, q in enumerate(queries)]
        return Predictions(values, low, high, 0.9 if self.widths else None, limits)

    def _limits(self, query: Query, rows: ColocationRows, row: int, mode: str) -> tuple[str, ...]:
        lines = {"new": [NEW], "profiled": [PROFILED]}.get(mode, [])
        if not rows.seen[row]:
            return (*lines, NO_WINDOW)
        if colocation_of(query).estimated:
            lines.append(ESTIMATED)
        median = rows.found[row, 0]
        lost = [n for n in self.taught if np.isnan(median[NAMES.index(n)])]
        if lost:
            lines.append(f"{len(lost)} metrics of the host are missing: {', '.join(lost)}")
        if self.ranges is not None:
            given = median[[NAMES.index(n) for n in self.ranges.names]]
            lines += self.ranges.outside(given)
        return tuple(lines)

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
            mixing=Mixing(content["mixing"]["weights"], content["mixing"]["pairs"]),
            ranges=None if content["ranges"] is None else FeatureRange.from_json(content["ranges"]),
        )


def log_p(measured: Measurements, metric: str) -> Column:
    """Logarithm of a metric, shape (n,); NaN where it was not measured."""
    values = measured.values.get(metric, np.full(len(measured), np.nan))
    with np.errstate(invalid="ignore", divide="ignore"):
        logs = np.log(values)
    return np.where(np.isfinite(logs), logs, np.nan)


def trust_of(
    programs: NDArray[np.str_], target: Column, answer: Column, middle: Column
) -> dict[str, float]:
    """Share of each program's answer away from its level that P was nearest with, held out.

    What nothing slows is all noise: there an engine that answers its level is better.
    """
    found = {}
    for program in np.unique(programs):
        mine = (programs == program) & np.isfinite(target + answer + middle)
        if mine.sum() < FEWEST_TRUSTED:
            continue
        truth, away = np.exp(target[mine]), (answer - middle)[mine]
        missed = [np.abs(np.exp(middle[mine] + s * away) - truth).mean() for s in SHARES]
        found[str(program)] = SHARES[int(np.argmin(missed))]
    return found


def _first(window: HostWindow) -> dict[str, float]:
    return dict(zip(window.metrics, window.seconds[0], strict=True)) if window.seconds else {}


def _groups(measured: Measurements, key: str) -> NDArray[np.str_]:
    return measured.groups.get(key, np.arange(len(measured)).astype(np.str_))


def _strata(rows: ColocationRows, answer: Column, mode: Mode) -> NDArray[np.str_]:
    """A known program is a stratum of its own; others by how much they are slowed."""
    if mode == "known":
        return rows.programs
    return np.searchsorted(SEVERITIES, answer).astype(np.str_)
