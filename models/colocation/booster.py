"""Relative speed of co-located programs from boosters on window statistics, and a baseline.

The boosters' target is standardised per program: (log relative speed - the program's median) / its
spread. Programs that are barely slowed thus weigh as much in training as those slowed most. For an
unmeasured program, median and spread are estimated from proxies of its sensitivity: its relative
speed next to one load, and the scatter of its isolated CPU times. A program that waits far
more than any in the training set is predicted as not slowed in CPU time, and rows without a window
get the median alone. If the isolated runs behind the relative speed were slower than usual for the
program, the prediction rises by that ratio.

Intervals, shrinkage and errors are calibrated on held-out groups. Intervals too wide to support a
decision are withheld; `slowed` then gives a class with its error rates.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, finite_log, groups_of, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.host_windows import (
    HOST_METRICS,
    NAMES,
    PINNED,
    RESOURCES,
    Resource,
    missing_metrics,
    natural,
)
from forerun.models.adaptation.shrunk_scalar import shrunk_medians
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.colocation.features import (
    FACTS,
    METRICS,
    SCATTER,
    SENSITIVITY_PROXIES,
    ColocationRows,
    ProgramEffects,
)
from forerun.models.colocation.host_forecast import (
    OWN,
    Mixing,
    forecast_queries,
    idle_window,
    mixing_of,
)
from forerun.models.colocation.slowed_class import WIDEST_RATIO, ClassErrors, Slowed, classes
from forerun.models.conformal import POOLED, LogQuantiles, out_of_fold
from forerun.models.domain.feature_range import FeatureRange
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

Mode = Literal["known", "profiled", "new"]
"""How a program is known: measured with neighbours, with one load only, or not at all."""
MODES: tuple[Mode, ...] = ("known", "profiled", "new")
HELD_OUT: Mapping[Mode, str] = {"known": "neighbour", "profiled": "family", "new": "family"}
"""Mode -> grouping key whose values are held out to calibrate its intervals."""
POOLED_PROGRAM: Mapping[Mode, str] = {"new": "", "profiled": "profiled "}
"""Mode -> key that replaces the names of its programs, which share one shrinkage factor."""
PROFILE_RUN = "profile run"
"""Value of the grouping key `profile` for runs from which a program's profile was computed."""
ISOLATED = "none"
"""Value of the grouping key `neighbour` for isolated runs."""
FOLDS = 10
"""Folds of groups that calibration holds out."""
FACTORS = (1.0, 0.75, 0.5, 0.25, 0.0)
"""Candidate shrinkage factors of measured programs."""
UNMEASURED_FACTORS = (1.5, 1.25, *FACTORS)
"""Candidates for unmeasured programs. Boosters of absolute errors stay near the median of their
training set, so factors above 1 can be better. The factor is chosen on families held out within the
training set."""
FEWEST_HELD_OUT = 15
"""Held-out runs below which a program keeps a shrinkage factor of 1."""


def fit_shrinkage(
    programs: Names,
    target: Column,
    middle: Column,
    deviation: Column,
    factors: Sequence[float] = FACTORS,
    fewest: int = FEWEST_HELD_OUT,
) -> dict[str, float]:
    """Factors that shrink an engine's deviation from a program's median.

    A program's factor minimises the mean absolute error of relative speed on held-out runs. It is
    near 0 for a program that nothing slows, whose deviations are noise.

    Args:
        programs: key of each run, shape (n,).
        target: measured log relative speeds, shape (n,).
        middle: median of each run's program, shape (n,).
        deviation: held-out predictions less these medians, shape (n,).
        factors: candidates.
        fewest: held-out runs below which a program gets no factor.

    Returns:
        Program -> factor.
    """
    shrinkage = {}
    for program in np.unique(programs):
        runs = (programs == program) & np.isfinite(target + middle + deviation)
        if runs.sum() >= fewest:
            speeds = (np.exp(middle[runs] + factor * deviation[runs]) for factor in factors)
            errors = [np.abs(speed - np.exp(target[runs])).mean() for speed in speeds]
            shrinkage[str(program)] = factors[int(np.argmin(errors))]
    return shrinkage


def uninformative_runs(rows: ColocationRows, measured: Measurements, mode: Mode) -> Mask:
    """Runs excluded from the calibration of a mode, because its inputs were computed from them.

    Isolated runs give `cpu_spread`, and runs next to one load give `log_p_with_load`; both are
    inputs for programs not measured with neighbours.

    Returns:
        A mask of shape (n,).
    """
    if mode == "known":
        return np.zeros(len(rows), dtype=np.bool_)
    runs: Mask = measured.group("neighbour") == ISOLATED
    if mode == "profiled":
        runs |= (measured.group("profile") == PROFILE_RUN) | np.isnan(rows.log_p_with_load)
    return runs


FEWEST_PAIRS = 20
"""Runs next to profiled programs below which forecasts get no intervals of their own."""


def calibrated(
    fitted: "ColocationBoost", rows: ColocationRows, measured: Measurements
) -> tuple[
    dict[tuple[str, Mode], LogQuantiles],
    dict[tuple[str, str], float],
    dict[tuple[str, str], ClassErrors],
]:
    """Interval widths, shrinkage factors, and error rates of the class `slowed`.

    All are measured by holding out neighbours and families in turn.

    Args:
        fitted: predictor whose engines are fitted.
        rows: n training rows.
        measured: the same rows with their values and groups.

    Returns:
        `widths`, `shrinkage` and `errors` of `ColocationBase`.
    """
    widths: dict[tuple[str, Mode], LogQuantiles] = {}
    shrinkage: dict[tuple[str, str], float] = {}
    errors: dict[tuple[str, str], ClassErrors] = {}
    colocated = measured.group("neighbour") != ISOLATED
    busy: dict[Mode, tuple[Column, Column]] = {}
    profiled = bool(np.isfinite(rows.log_p_with_load).any())
    waiting_known = np.isfinite(rows.waiting).mean() > 0.5
    for metric in fitted.metrics:
        target = finite_log(measured.column(metric))
        for mode in MODES:
            if mode == "profiled" and not profiled:
                continue
            if metric == "p_wall" and mode in busy and waiting_known:
                predicted, unit = busy[mode][0] + rows.waiting, busy[mode][1]
            else:
                predicted, middle, unit = held_out_predictions(fitted, rows, measured, metric, mode)
                predicted[uninformative_runs(rows, measured, mode)] = np.nan
                keys = rows.programs
                if mode != "known":
                    keys = np.full(len(rows), POOLED_PROGRAM[mode])
                candidates = FACTORS if mode == "known" else UNMEASURED_FACTORS
                factors = fit_shrinkage(keys, target, middle, predicted - middle, candidates)
                shrinkage |= {(metric, program): factor for program, factor in factors.items()}
                factor = np.array([factors.get(str(key), 1.0) for key in keys])
                predicted = middle + factor * (predicted - middle)
                busy |= {mode: (predicted, unit)} if metric == "p_cpu" else {}
            known = mode == "known"
            unit = np.ones(len(rows)) if known else unit
            residuals = (target - predicted) / unit
            if known or np.isfinite(residuals).any():
                width = LogQuantiles.of(residuals, rows.programs if known else None)
                widths[metric, mode] = width
                below, above = width.around(np.ones(len(rows)), rows.programs, unit)
                speeds = np.exp(np.where(colocated, [target, predicted], np.nan))
                rates = ClassErrors.where_wide(speeds[0], speeds[1], above / below)
                errors |= {(metric, mode): rates} if rates else {}
    return widths, shrinkage, errors


def held_out_predictions(
    fitted: "ColocationBoost",
    rows: ColocationRows,
    measured: Measurements,
    metric: str,
    mode: Mode,
    query_rows: ColocationRows | None = None,
    shrinkage: Mapping[tuple[str, str], float] | None = None,
) -> tuple[Column, Column, Column]:
    """Predict every row with a fit that excludes the row's group.

    Args:
        fitted: predictor that supplies the settings.
        rows: n training rows.
        measured: the same rows with their values and groups.
        metric: metric to predict; for `p_wall` the engine of CPU time is fitted as well.
        mode: mode of the programs, which determines the groups to hold out.
        query_rows: the same rows with other windows, if these are to be predicted.
        shrinkage: factors to apply; none by default.

    Returns:
        Log relative speed, median of the program in it, and `interval_units`, shapes (n,); NaN
        where no group could be held out.
    """
    groups = measured.group(HELD_OUT[mode])
    target = finite_log(measured.column(metric))
    lighter = replace(fitted, bags=1)
    if mode == "new":
        rows = rows.unprofiled()
    query_rows = rows if query_rows is None else query_rows
    metrics = METRICS if metric == "p_wall" else [metric]

    def predict(held: Mask) -> tuple[Column, Column, Column] | float:
        if not np.isfinite(target[~held]).any():
            return np.nan
        part = lighter.without_intervals(rows.take(~held), measured.take(~held), metrics)
        part = replace(part, shrinkage=dict(shrinkage or {}))
        held_rows = query_rows.take(held)
        middle = part.program_levels(held_rows, metric)[0] + held_rows.reference
        predicted = part.predict_log(held_rows, [metric])[metric]
        return predicted, middle, part.interval_units(held_rows)

    predicted, middle, unit = out_of_fold(groups, predict, folds=FOLDS, seed=fitted.seed, columns=3)
    return predicted, middle, unit


def calibrated_forecasts(
    fitted: "ColocationBoost", rows: ColocationRows, measured: Measurements
) -> tuple[dict[str, tuple[float, float]], dict[tuple[str, str], ClassErrors]]:
    """Calibration for forecasts, where host metrics are combined from profiles, not measured.

    Pairs of profiled programs are predicted as if before they ran together, with engines and mixing
    weights fitted without the neighbour.

    Returns:
        `ahead` and the entries of `errors` for forecasts, of `ColocationBase`; empty with fewer
        than FEWEST_PAIRS pairs.
    """
    if "neighbour" not in measured.groups:
        return {}, {}
    cpus = measured.groups.get("cpus_shared", np.full(len(measured), "inf")).astype(np.float64)
    neighbours = measured.groups["neighbour"]
    pairs, queries = forecast_queries(measured.queries, neighbours, cpus, fitted.idle)
    if len(pairs) < FEWEST_PAIRS:
        return {}, {}
    forecast = ColocationRows.from_queries(queries, fitted.idle)
    ends: dict[str, tuple[float, float]] = {}
    errors: dict[tuple[str, str], ClassErrors] = {}
    for metric in fitted.metrics:
        predicted, _, _ = held_out_predictions(
            fitted, rows, measured, metric, "known", forecast, fitted.shrinkage
        )
        _, spread, _ = fitted.levels[metric].estimate(rows.programs, rows.sensitivity_proxies)
        target = finite_log(measured.column(metric))
        residuals = ((target - predicted) / spread)[pairs]
        ends[metric] = LogQuantiles.of(residuals).bounds[POOLED]
        rates = ClassErrors.of(np.exp(target[pairs]), np.exp(predicted[pairs]))
        errors |= {(metric, "ahead"): rates} if rates else {}
    return ends, errors


NEW = (
    "this program was not measured with co-runners: the answer is estimated from all other programs"
)
SCATTERED = (
    "this program was not measured with co-runners: the answer is estimated from others, by "
    "the spread of its CPU times alone (`cpu_spread`), which says little on an undisturbed "
    "host"
)
PROFILED = (
    "this program was measured with only one co-running load: the answer scales with the "
    "effect of that load, and with the spread of its CPU times alone where known"
)
UNLIKE_ALL = (
    "this program, run alone, waits for much more of its time than any in the training set: "
    "no slowdown of its CPU time is assumed"
)
NO_WINDOW = "no host metrics: the answer is the level over all neighbours"


def limits_of(
    rows: ColocationRows,
    modes: Names,
    training_metrics: Sequence[str],
    ranges: FeatureRange | None,
    unlike: Mask,
) -> list[tuple[Limit, ...]]:
    """The limits of each prediction; empty for one without limits.

    Args:
        rows: features of n queries.
        modes: modes of the programs, shape (n,).
        training_metrics: host metrics in the training set.
        ranges: of the windows' medians in the training set.
        unlike: unmeasured programs that wait far more than any in the training set, shape (n,).
    """
    scatters = np.isfinite(rows.sensitivity_proxies[:, SENSITIVITY_PROXIES.index(SCATTER)])
    programs = zip(modes.tolist(), scatters.tolist(), unlike.tolist(), strict=True)
    windows = list(zip(rows.window_of.tolist(), rows.estimated.tolist(), strict=True))
    median = rows.window_statistics[:, 0]
    of_window = {
        window: _of_window(median[same[0]], window[1], training_metrics, ranges)
        for window, same in groups_of(windows).items()
    }
    pairs = list(zip(programs, windows, strict=True))
    of_pair = {(p, w): (*_of_program(*p), *of_window[w]) for p, w in dict.fromkeys(pairs)}
    return [of_pair[pair] for pair in pairs]


def _of_program(mode: str, scatters: bool, unlike: bool) -> tuple[Limit, ...]:
    """Limits for a program not measured with neighbours."""
    new = SCATTERED if scatters else NEW
    lines = {"new": (new,), "profiled": (PROFILED,)}.get(mode, ())
    transfers = (Limit(line, severity="transfer") for line in lines)
    return (*transfers, *((Limit(UNLIKE_ALL),) if unlike else ()))


def _of_window(
    median: Column, estimated: bool, training_metrics: Sequence[str], ranges: FeatureRange | None
) -> tuple[Limit, ...]:
    """Limits for host metrics that are missing or outside the training range.

    Args:
        median: of each metric over time, shape (len(NAMES),).
        estimated: whether the window is a forecast, which lacks metrics of single programs.
        training_metrics: host metrics in the training set.
        ranges: of the windows' medians in the training set.
    """
    if np.isnan(median).all():
        return (Limit(NO_WINDOW),)
    # Metrics of a pinned program cannot be measured for one that is not pinned to a CPU.
    never = OWN if estimated else PINNED
    missing = missing_metrics(median, [n for n in training_metrics if not n.startswith(never)])
    line = f"host metrics of the training set are missing: {len(missing)}"
    lacking = (Limit(line),) if missing else ()
    if ranges is None:
        return lacking
    given = natural(median)[[NAMES.index(name) for name in ranges.names]]
    return (*lacking, *ranges.outside(given))


LEAST_LOG, MOST_LOG = np.log(0.02), np.log(50.0)
"""Range to which predicted log relative speeds are clipped."""
FARTHEST = 8.0
"""Largest distance of a prediction from the median, in spreads of its program."""
UNLIKE = 0.5
"""An unmeasured program is unlike the training set if its `cpu_share` is below this fraction of the
smallest one there. The scatter of its times is then unrelated to how much neighbours slow it, and
predicting no slowdown is more accurate. Chosen with the family `io` held out, the only one with
such a program."""
UNIT_POWER = 0.75
"""Intervals of unmeasured programs widen with this power of the program's spread. Chosen on
held-out families, by the least predictable one: with 1 the interval ends of its programs are a
factor of a hundred apart, with 0.5 the coverage of its runs is too low."""
VIEWS: Mapping[str, tuple[tuple[Resource, ...], ...]] = {
    "p_cpu": (
        ("cache", "disk"),
        ("cache", "memory_bandwidth"),
        ("cache", "cpu", "network"),
        RESOURCES,
    ),
    "p_wall": (("cpu",), ("cpu", "cache", "memory_bandwidth"), RESOURCES),
}
"""Metric -> resources whose metrics are the features of each ensemble member. On held-out
neighbours the median over the members is more accurate than any of them, because they overfit
different features. Wall time depends on who has the CPU, CPU time on the caches."""
COLUMNS: Mapping[str, Sequence[Sequence[int]]] = {
    metric: [
        [column for column, name in enumerate(NAMES) if HOST_METRICS[name].resource in view]
        for view in views
    ]
    for metric, views in VIEWS.items()
}
"""Metric -> positions in NAMES of the metrics of each view."""
TREES = 200
PARAMETERS: dict[str, Any] = {
    "objective": "l1",
    "learning_rate": 0.05,
    "num_leaves": 7,
    "min_data_in_leaf": 5,
    "feature_fraction": 0.6,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "lambda_l2": 1.0,
}


@dataclass(frozen=True)
class BoostEngine:
    """An ensemble of bags of boosters, one per view, whose median is the prediction.

    Attributes:
        metric: predicted metric.
        views: one bag per view in `VIEWS[metric]`.
    """

    metric: str
    views: tuple[BoosterBag, ...]

    @classmethod
    def fit(cls, metric: str, rows: ColocationRows, target: Column, seeds: Sequence[int]) -> Self:
        """Fit one bag per view to n targets; a bag holds one booster per seed."""
        bags = [
            BoosterBag.fit(
                rows.matrix(columns), target, parameters=PARAMETERS, trees=TREES, seeds=seeds
            )
            for columns in COLUMNS[metric]
        ]
        return cls(metric, tuple(bags))

    def predict(self, rows: ColocationRows) -> Column:
        """Median over the views, shape (n,)."""
        predictions = [
            bag.predict(rows.matrix(columns))
            for columns, bag in zip(COLUMNS[self.metric], self.views, strict=True)
        ]
        median: Column = np.median(predictions, axis=0)
        return median


@dataclass(frozen=True)
class ColocationBoost(StoredPredictor):
    """Relative speed in CPU time and in wall time of a program co-located with neighbours.

    Attributes:
        seed: of boosters and folds.
        bags: boosters per view, with different seeds.
        levels: metric -> median and spread of each program.
        engines: metric -> fitted boosters.
        widths: (metric, mode) -> quantiles of log residuals on held-out groups; for unmeasured
            programs, of residuals over `interval_units`.
        shrinkage: (metric, program) -> factor on the boosters' deviation from the median.
        offsets: (metric, program) -> correction of the log relative speed after `adapt`.
        training_metrics: host metrics in the training set.
        idle: metrics of an idle host.
        ranges: of the windows' medians in the training set.
        mixing: how profiles of several programs combine into metrics of their host.
        ahead: metric -> interval ends for host metrics forecast from profiles, as log residuals in
            spreads of the program.
        errors: (metric, mode) -> error rates of the class `slowed` on held-out groups; the mode is
            `ahead` for forecast host metrics.
        least_cpu_share: smallest CPU time over wall time of an isolated program in the training
            set.
        unit_power: as UNIT_POWER.
    """

    name: ClassVar[str] = "colocation_boost"
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {"host metrics": NAMES, "facts": FACTS}
    seed: int = field(default=0, metadata=SETTING)
    bags: int = field(default=2, metadata=SETTING)
    levels: Mapping[str, ProgramEffects] = field(default_factory=dict)
    engines: Mapping[str, BoostEngine] = field(default_factory=dict)
    widths: Mapping[tuple[str, Mode], LogQuantiles] = field(default_factory=dict)
    shrinkage: Mapping[tuple[str, str], float] = field(default_factory=dict)
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
        """Metrics in the training set; both of METRICS before `fit`."""
        return tuple(m for m in METRICS if m in self.levels or not self.levels)

    def answers(self, query: Query) -> bool:
        """Whether the query is about a co-located program; false before `fit`."""
        return isinstance(query.workload, Colocation) and bool(self.levels)

    def fit(self, measurements: Measurements) -> Self:
        """Fit program effects and engines, and calibrate on held-out neighbours and families.

        Args:
            measurements: runs with `p_cpu`, `p_wall` or both; calibration uses the grouping keys
                `neighbour`, `family`, `profile` and `cpus_shared` where they are given.
        """
        idle = idle_window(measurements.queries)
        rows = ColocationRows.from_queries(measurements.queries, idle)
        fitted = self.without_intervals(rows, measurements)
        widths, shrinkage, errors = calibrated(fitted, rows, measurements)
        median = rows.window_statistics[:, 0]
        measured = np.isfinite(median).sum(axis=0) > 0
        names = tuple(name for name, known in zip(NAMES, measured, strict=True) if known)
        ranges = FeatureRange.of(names, natural(median)[:, measured]) if names else None
        neighbours = measurements.groups.get("neighbour", np.full(len(rows), ""))
        mixing = mixing_of([q.colocation for q in measurements.queries], neighbours, idle)
        fitted = replace(fitted, widths=widths, shrinkage=shrinkage, errors=errors)
        fitted = replace(fitted, training_metrics=names, ranges=ranges, idle=idle, mixing=mixing)
        ahead, errors_ahead = calibrated_forecasts(fitted, rows, measurements)
        return replace(fitted, ahead=ahead, errors={**errors, **errors_ahead})

    def interval_units(self, rows: ColocationRows) -> Column:
        """Units of the residuals of unmeasured programs, shape (n,), for both metrics.

        A unit grows with the program's spread plus that of all programs, because an estimate from
        sensitivity proxies may be wrong.
        """
        levels = self.levels.get("p_cpu", next(iter(self.levels.values())))
        _, spread, _ = levels.estimate(rows.programs, rows.sensitivity_proxies)
        units: Column = (spread + levels.common[1]) ** self.unit_power
        return units

    def without_intervals(
        self, rows: ColocationRows, measured: Measurements, metrics: Sequence[str] = METRICS
    ) -> Self:
        """Fit program effects and engines of some metrics, without calibration."""
        levels: dict[str, ProgramEffects] = {}
        engines: dict[str, BoostEngine] = {}
        for metric in metrics:
            target = finite_log(measured.column(metric))
            known = np.isfinite(target)
            if not known.any():
                continue
            train, values = rows.take(known), target[known]
            levels[metric] = ProgramEffects.fit(train.programs, values, train.sensitivity_proxies)
            middle, spread, modes = levels[metric].estimate(
                train.programs, train.sensitivity_proxies
            )
            usable = train.has_window & (modes == "known")
            if usable.any():
                scaled = (values - middle) / spread
                seeds = range(self.seed, self.seed + self.bags)
                engines[metric] = BoostEngine.fit(metric, train.take(usable), scaled[usable], seeds)
        shares = rows.cpu_share[np.isfinite(rows.cpu_share)]
        least = float(shares.min()) if len(shares) else 0.0
        fitted = replace(self, levels=levels, engines=engines, offsets={}, shrinkage={})
        return replace(fitted, least_cpu_share=least)

    def adapt(self, measurements: Measurements) -> Self:
        """Correct each measured program by its median log residual, shrunk towards zero."""
        plain = replace(self, offsets={})
        offsets = dict(self.offsets)
        rows = ColocationRows.from_queries(measurements.queries, self.idle)
        for metric, predicted in plain.predict_log(rows, self.metrics).items():
            residuals = finite_log(measurements.column(metric)) - predicted
            shrunk = shrunk_medians(residuals, rows.programs)
            offsets |= {(metric, program): offset for program, offset in shrunk.items()}
        return replace(self, offsets=offsets)

    def predict_log(self, rows: ColocationRows, metrics: Sequence[str]) -> dict[str, Column]:
        """Metric -> predicted log relative speeds of n rows, shape (n,)."""
        found: dict[str, Column] = {}
        if "p_cpu" in self.levels:
            found["p_cpu"] = self._by_engine(rows, "p_cpu")
        if "p_wall" in metrics:
            found["p_wall"] = self._wall_time(rows, found.get("p_cpu"))
        names = rows.programs.tolist()
        for metric in metrics:
            offsets = [self.offsets.get((metric, name), 0.0) for name in names]
            predicted = found[metric] + offsets + rows.reference
            found[metric] = np.clip(predicted, LEAST_LOG, MOST_LOG)
        return {metric: found[metric] for metric in metrics}

    def _wall_time(self, rows: ColocationRows, cpu_time: Column | None) -> Column:
        """Predictions of `p_wall` before `adapt`, shape (n,).

        They follow from CPU time and waiting where both are known.
        """
        waiting = rows.waiting
        unknown = np.isnan(waiting) | (cpu_time is None)
        predicted: Column = waiting if cpu_time is None else cpu_time + waiting
        if unknown.any():
            predicted[unknown] = self._by_engine(rows.take(unknown), "p_wall")
        return predicted

    def _by_engine(self, rows: ColocationRows, metric: str) -> Column:
        """Predictions before `adapt`, relative to isolated runs of usual speed, shape (n,)."""
        middle, spread, modes = self.program_levels(rows, metric)
        part, engine = rows.has_window, self.engines.get(metric)
        if engine is not None and part.any():
            scaled = np.clip(engine.predict(rows.take(part)), -FARTHEST, FARTHEST)
            pairs = zip(modes[part].tolist(), rows.programs[part].tolist(), strict=True)
            keys = [POOLED_PROGRAM.get(mode, program) for mode, program in pairs]
            factors = [self.shrinkage.get((metric, key), 1.0) for key in keys]
            middle[part] += factors * (spread[part] * scaled)
        return middle

    def program_levels(self, rows: ColocationRows, metric: str) -> tuple[Column, Column, Names]:
        """Median, spread and mode of each program, shapes (n,).

        In CPU time, median and spread are 0 for a program unlike the whole training set.
        """
        middle, spread, modes = self.levels[metric].estimate(
            rows.programs, rows.sensitivity_proxies
        )
        unlike = (metric == "p_cpu") & self._unlike(rows, modes)
        return np.where(unlike, 0.0, middle), np.where(unlike, 0.0, spread), modes

    def _modes(self, rows: ColocationRows, metric: str) -> Names:
        """How each program is known, shape (n,), as `ProgramEffects.estimate` says."""
        return self.levels[metric].estimate(rows.programs, rows.sensitivity_proxies)[2]

    def _unlike(self, rows: ColocationRows, modes: Names) -> Mask:
        """Unmeasured programs that wait far more than any in the training set, shape (n,)."""
        unlike: Mask = rows.cpu_share < UNLIKE * self.least_cpu_share
        unlike &= modes != "known"
        return unlike

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Relative speeds with intervals; ends too far apart to support a decision are NaN."""
        return self.predict_rows(ColocationRows.from_queries(queries, self.idle), self.metrics)

    def speeds(self, queries: Sequence[Query]) -> dict[str, Column]:
        """Metric -> relative speeds of n queries, without intervals, shape (n,)."""
        rows = ColocationRows.from_queries(queries, self.idle)
        return {m: np.exp(values) for m, values in self.predict_log(rows, self.metrics).items()}

    def predict_rows(self, rows: ColocationRows, metrics: Sequence[str]) -> Predictions:
        """Predictions of some of `metrics` for n rows, as returned by `predict`."""
        values: dict[str, Column] = {}
        low: dict[str, Column] = {}
        high: dict[str, Column] = {}
        for metric, predicted in self.predict_log(rows, metrics).items():
            values[metric] = np.exp(predicted)
            modes = self._modes(rows, metric)
            below, above = self._ends(rows, metric, modes)
            wide = above > WIDEST_RATIO * below
            rates = self._errors_of(rows, metric, modes)
            wide &= np.array([known is not None for known in rates], dtype=np.bool_)
            low[metric] = np.where(wide, np.nan, values[metric] * below)
            high[metric] = np.where(wide, np.nan, values[metric] * above)
        modes = self._modes(rows, self.metrics[-1])
        unlike = self._unlike(rows, modes)
        limits = limits_of(rows, modes, self.training_metrics, self.ranges, unlike)
        return Predictions(values, low, high, 0.9 if self.widths else None, limits)

    def _ends(self, rows: ColocationRows, metric: str, modes: Names) -> tuple[Column, Column]:
        """Lower and upper end of each interval over the predicted value, shapes (n,)."""
        low, high = np.zeros((2, len(rows)))
        names = rows.programs.tolist()
        for mode in set(modes.tolist()):
            width = self.widths.get((metric, mode))
            unit = 1.0 if mode == "known" or width is None else self.interval_units(rows)
            ends = (width or LogQuantiles()).around(np.ones(len(rows)), names, unit)
            low, high = np.where(modes == mode, ends, (low, high))
        if metric in self.ahead:
            _, spread, _ = self.levels[metric].estimate(rows.programs, rows.sensitivity_proxies)
            below, above = (np.exp(spread * end) for end in self.ahead[metric])
            low = np.where(rows.estimated, np.minimum(low, below), low)
            high = np.where(rows.estimated, np.maximum(high, above), high)
        return low, high

    def slowed(self, rows: ColocationRows, answers: Predictions) -> dict[str, list[Slowed | None]]:
        """The class `slowed` as a substitute for withheld intervals.

        Args:
            rows: n rows.
            answers: result of `predict_rows` for them, possibly scaled.

        Returns:
            Metric -> n classes, each None where there is an interval.
        """
        slowed: dict[str, list[Slowed | None]] = {}
        for metric, values in answers.values.items():
            rates = self._errors_of(rows, metric, self._modes(rows, metric))
            slowed[metric] = classes(values, answers.low[metric], rates)
        return slowed

    def _errors_of(
        self, rows: ColocationRows, metric: str, modes: Names
    ) -> list[ClassErrors | None]:
        """The entry of `errors` for each row: that of its mode, or `ahead` for known programs."""
        ahead = rows.estimated & (modes == "known")
        cases = np.where(ahead, "ahead", modes).tolist()
        return [self.errors.get((metric, case)) for case in cases]


@dataclass(frozen=True)
class ProgramMean(StoredPredictor):
    """Baseline: a program's mean relative speed over all neighbours, or the mean over programs.

    Attributes:
        means: (metric, program) -> mean over the program's runs.
        common: metric -> mean over programs, for unmeasured programs.
    """

    name: ClassVar[str] = "program_mean"
    means: dict[tuple[str, str], float] = field(default_factory=dict)
    common: dict[str, float] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics in the training set; both of METRICS before `fit`."""
        return tuple(m for m in METRICS if m in self.common or not self.common)

    def answers(self, query: Query) -> bool:
        """Whether the query is about a co-located program; false before `fit`."""
        return isinstance(query.workload, Colocation) and bool(self.common)

    def fit(self, measurements: Measurements) -> Self:
        """Compute the means of each metric."""
        rows_of = rows_by(query.colocation.profile.program for query in measurements.queries)
        means: dict[tuple[str, str], float] = {}
        common: dict[str, float] = {}
        for metric in METRICS:
            values = measurements.column(metric)
            chosen = {
                name: float(np.nanmean(values[rows]))
                for name, rows in rows_of.items()
                if np.isfinite(values[rows]).any()
            }
            if chosen:
                common[metric] = float(np.mean(list(chosen.values())))
                means |= {(metric, name): mean for name, mean in chosen.items()}
        return replace(self, means=means, common=common)

    def adapt(self, measurements: Measurements) -> Self:
        """Add the means of programs outside the training set."""
        other = type(self)().fit(measurements)
        return replace(self, means={**other.means, **self.means})

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Mean relative speeds, without intervals."""
        names = [query.colocation.profile.program for query in queries]
        values = {
            m: np.array([self.means.get((m, name), self.common[m]) for name in names])
            for m in self.metrics
        }
        return Predictions(values)
