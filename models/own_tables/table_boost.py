"""Metrics of one imported table: power laws, boosters and Gaussian processes of each metric over
its physical base.

Operators and networks are tests with plain settings. A metric over its base is nearly the same on
all devices, so that a few hundred rows suffice: time over the roofline bound, power over the design
power, memory over the bytes that are moved.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, Self

import numpy as np

from forerun.data.columns import Column, Mask, Names, finite_log
from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.spec_sheet import DeviceKind
from forerun.data.workload import Benchmark, OperatorWorkload, phase_of
from forerun.features.operators.query_table import query_table
from forerun.features.operators.roofline import ELEMENT_BYTES, roofline_ms
from forerun.features.tables.own_tables import OF_DEVICE, device_settings
from forerun.models.artifact.stored_predictor import StoredPredictor
from forerun.models.benchmark_suites.scores import GROUP, BenchmarkBoost
from forerun.models.conformal import LogQuantiles, held_out_folds
from forerun.models.domain.feature_range import KnownDevices
from forerun.models.known_suites import KnownSuite
from forerun.models.limit import PEAK_MEMORY, POWER, Limit
from forerun.models.prediction import Predictions
from forerun.models.predictor import SETTING

USUAL_TDP_W = 100.0
"""Base of power on a device whose sheet gives no design power, W."""


def as_test(query: Query, suite: str) -> Query:
    """The query as a test of a suite, whose settings describe its operators.

    Tests of a suite have the figures of their device's sheet among their settings.

    Args:
        query: an operator or network on a device with a spec sheet, or a test of the suite.
        suite: name of the suite.

    Raises:
        UnknownPrecision: the spec sheet has no peak for the query's precision.
    """
    if isinstance(query.workload, Benchmark):
        given = device_settings(query.device) | query.benchmark.by_name
        return replace(query, workload=Benchmark(suite, tuple(sorted(given.items()))))
    run = query.run
    bound_ms, moved_mib, flops, operators, weights_mib = _totals(query)
    numbers = {
        "bound_ms": bound_ms,
        "moved_mib": moved_mib,
        "weights_mib": weights_mib,
        "gflop": flops / 1e9,
        "operators": operators,
        "threads": query.software.threads,
    }
    texts = {
        "precision": run.precision,
        "phase": phase_of(run),
        "runtime": query.software.runtime,
        "framework": query.software.framework,
    }
    settings = {n: float(value) for n, value in numbers.items() if value} | texts
    return replace(query, workload=Benchmark(suite, tuple(sorted(settings.items()))))


def bases(queries: Sequence[Query], metric: str) -> Column:
    """What a metric of n queries is divided by, in its unit, shape (n,); 1 for tests of a suite."""
    return np.array([_base(query, metric) for query in queries], dtype=np.float64)


def _base(query: Query, metric: str) -> float:
    if isinstance(query.workload, Benchmark):
        return 1.0
    bound_ms, moved_mib, *_ = _totals(query)
    power_w = query.device.tdp_w or USUAL_TDP_W
    known = {
        "latency_ms": bound_ms,
        "power_w": power_w,
        "energy_j": power_w * bound_ms / 1e3,
        "samples_per_s": 1e3 / bound_ms,
    }
    return moved_mib if metric.endswith("_mib") else known.get(metric, 1.0)


def _totals(query: Query) -> tuple[float, float, float, float, float]:
    """Roofline bound in ms, MiB moved, FLOPs, number of operators and MiB of weights of one run."""
    table, run = query_table(query.run), query.run
    torch = query.software.framework == "torch"
    times = roofline_ms(table, query.device, run.precision, torch) * table.repeat
    each_mib = ELEMENT_BYTES[run.precision] / 2**20
    weights = float((table.parameter_elements * table.repeat).sum()) * each_mib
    elements = table.in_elements + table.out_elements + table.parameter_elements
    moved = float((elements * table.repeat).sum()) * each_mib
    flops, operators = float((table.flops * table.repeat).sum()), float(table.repeat.sum())
    return max(float(times.sum()), 1e-9), max(moved, 1e-9), flops, operators, weights


DEVICE_FOLDS = 4
FEWEST_DEVICES = 3
"""Devices of a table of settings from which on a fit without one sees what figures of devices do;
networks have physical bases, and need two."""
FEWEST_ROWS = 5
FEWEST_VALUES = 3
"""Values of a setting from which on a fit without its lowest or highest one sees a law of it."""
STEP = float(np.log(2.0))
"""Distance of a value from a range that it is not a multiple of, as a logarithm."""
MODEL: Final = "model"
"""Setting of a table of settings that names what was run; rows of networks have none."""
UNSEEN = "the device is not in the table {table}"


@dataclass(frozen=True)
class TableBoost(StoredPredictor):
    """Every metric that a table has, for the kinds of queries in it.

    Attributes:
        table: name of the table.
        own_devices: whether only queries on devices of the table are answered, so that other
            predictors answer the rest.
        seed: of boosters and folds.
        trees: boosting rounds.
        kinds: kinds of queries in the table, such as `network inference`.
        devices: devices of the table.
        ran_on: name of each device of the table -> its kind.
        with_sheet: names of those that have a spec sheet.
        boost: power laws and boosters.
        unseen: metric -> quantiles of log residuals on held-out devices; empty where the table has
            fewer than `FEWEST_DEVICES`.
        beyond: metric -> quantiles of log residuals of rows with the lowest or the highest value of
            a setting, by fits without them, over the distance of that value from the others; empty
            where no setting has `FEWEST_VALUES`.
        new_models: metric -> quantiles of log residuals of rows whose model, a setting of a table
            of settings, was held out.
    """

    name: ClassVar[str] = "table_boost"
    table: str = field(default="", metadata=SETTING)
    own_devices: bool = field(default=False, metadata=SETTING)
    seed: int = field(default=0, metadata=SETTING)
    trees: int = field(default=400, metadata=SETTING)
    kinds: tuple[str, ...] = ()
    devices: KnownDevices = field(default_factory=KnownDevices)
    ran_on: Mapping[str, DeviceKind] = field(default_factory=dict)
    with_sheet: frozenset[str] = frozenset()
    boost: BenchmarkBoost = field(default_factory=BenchmarkBoost)
    unseen: Mapping[str, LogQuantiles] = field(default_factory=dict)
    beyond: Mapping[str, LogQuantiles] = field(default_factory=dict)
    new_models: Mapping[str, LogQuantiles] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics of the table."""
        return self.boost.metrics

    def answers(self, query: Query) -> bool:
        """Whether the table has queries of this kind, and the device where `own_devices` is set."""
        if _kind(query) not in self.kinds:
            return False
        if isinstance(query.workload, Benchmark):
            return True
        return query.has_bound and (not self.own_devices or query.device in self.devices)

    def fit(self, measurements: Measurements) -> Self:
        """Fit on all rows, and calibrate intervals on held-out models and on held-out devices.

        Args:
            measurements: rows of the table; those with the same `model_group` are held out
                together, or those with the same `question` where there are fewer than two.

        Raises:
            InputError: there are fewer than `FEWEST_ROWS`.
        """
        if len(measurements) < FEWEST_ROWS:
            raise InputError(
                f"{len(measurements)} rows of {self.table} are too few to fit: {FEWEST_ROWS} are "
                "needed, and some more to hold rows out. `forerun adapt` takes fewer."
            )
        tests = self._tests(measurements)
        kinds = tuple(sorted({_kind(query) for query in measurements.queries}))
        fewest = FEWEST_DEVICES if kinds == (f"test of {self.table}",) else 2
        fitted = BenchmarkBoost(seed=self.seed, trees=self.trees, with_process=True).fit(tests)
        devices = tests.groups.get("device", np.zeros(0, dtype=np.str_))
        several = len(np.unique(devices)) >= fewest
        folds = held_out_folds(devices, DEVICE_FOLDS, self.seed) if several else ()
        models = np.array([query.benchmark.by_name.get(MODEL, "") for query in tests.queries], str)
        of_models = held_out_folds(models, DEVICE_FOLDS, self.seed)
        return replace(
            self,
            kinds=kinds,
            devices=KnownDevices.of([query.device for query in measurements.queries]),
            ran_on={query.device.name: query.device.kind for query in measurements.queries},
            with_sheet=frozenset(q.device.name for q in measurements.queries if q.device.has_sheet),
            boost=fitted,
            unseen=_held_out(tests, fitted, ((held, 1.0) for held in folds), devices),
            beyond=_held_out(tests, fitted, _ends(tests.queries)),
            new_models=_held_out(tests, fitted, ((held, 1.0) for held in of_models), models),
        )

    def known_suites(self) -> tuple[KnownSuite, ...]:
        """The table as a suite of tests, where its rows are described by settings."""
        if self.kinds != (f"test of {self.table}",) or not self.ran_on:
            return ()
        (suite,) = self.boost.known_suites()
        nameless = {name: kind for name, kind in self.ran_on.items() if name not in self.with_sheet}
        settings = tuple(own for own in suite.settings if not own.name.startswith(OF_DEVICE))
        kinds = tuple(sorted(set(self.ran_on.values())))
        # Figures of fewer devices do not say how a metric changes with them.
        alone = tuple(sorted(self.ran_on)) if len(self.with_sheet) < FEWEST_DEVICES else ()
        return (replace(suite, settings=settings, kinds=kinds, devices=nameless, alone=alone),)

    def usual_settings(self, query: Query) -> Mapping[str, float | str]:
        """Settings that are the same in all rows of the table."""
        usual = self.boost.usual_settings(query)
        return {name: value for name, value in usual.items() if not name.startswith(OF_DEVICE)}

    def adapt(self, measurements: Measurements) -> Self:
        """Correct each metric by its median log residual on these rows, shrunk towards zero."""
        return replace(self, boost=self.boost.adapt(self._tests(measurements)))

    def predict(self, queries: Sequence[Query]) -> Predictions:
        """Predictions with intervals, which are wider on devices outside the table, and the more so
        the further a setting lies outside its range.

        Raises:
            UnknownPrecision: a device's sheet has no peak for a query's precision.
        """
        ratios = self.boost.predict([as_test(query, self.table) for query in queries])
        foreign = np.array([self._is_foreign(query) for query in queries], dtype=np.bool_)
        distances = np.array([max(map(_outside, own), default=0.0) for own in ratios.limits])
        new = np.array([float(self._has_new_model(query)) for query in queries])
        values, low, high = {}, {}, {}
        for metric, ratio in ratios.values.items():
            base = bases(queries, metric)
            values[metric] = ratio * base
            ends = self._unseen_ends(metric, ratio)
            low[metric], high[metric] = (
                np.where(foreign, theirs, own.get(metric, np.full(len(queries), np.nan))) * base
                for own, theirs in zip((ratios.low, ratios.high), ends, strict=True)
            )
            for wider, scale in ((self.beyond, distances), (self.new_models, new)):
                if metric in wider:
                    least, most = wider[metric].around(values[metric], [""] * len(queries), scale)
                    low[metric] = _widened(values[metric], low[metric], least)
                    high[metric] = _widened(values[metric], high[metric], most)
        unseen = Limit(UNSEEN.format(table=self.table))
        limits = [
            self._of_every_metric((*own, unseen) if far else own)
            for own, far in zip(ratios.limits, foreign, strict=True)
        ]
        return Predictions(values, low, high, ratios.coverage, limits)

    def _of_every_metric(self, limits: Sequence[Limit]) -> tuple[Limit, ...]:
        """The limits, which concern times, and again for memory and power where the table has any.

        All metrics of a row were measured together.
        """
        topics = {PEAK_MEMORY if name.endswith("_mib") else name for name in self.metrics}
        others = [topic for topic in (PEAK_MEMORY, POWER) if topic in topics]
        return (*limits, *(replace(own, metric=topic) for topic in others for own in limits))

    def _is_foreign(self, query: Query) -> bool:
        return query.device.has_sheet and query.device not in self.devices

    def _has_new_model(self, query: Query) -> bool:
        known = self.boost.settings[self.table].choices.get(MODEL)
        if known is None or not isinstance(query.workload, Benchmark):
            return False
        return query.benchmark.by_name.get(MODEL) not in known

    def _unseen_ends(self, metric: str, values: Column) -> tuple[Column, Column]:
        """Ends of the intervals on devices outside the table, (n,) each; NaN where not known."""
        if metric not in self.unseen:
            return np.full(len(values), np.nan), np.full(len(values), np.nan)
        return self.unseen[metric].around(values, [""] * len(values))

    def _tests(self, rows: Measurements) -> Measurements:
        """The rows as tests of the suite `table`, with metrics over their bases."""
        values = {name: column / bases(rows.queries, name) for name, column in rows.values.items()}
        groups = dict(rows.groups)
        queries = [as_test(query, self.table) for query in rows.queries]
        names = ["model_group", "question"]
        if any(MODEL in query.benchmark.by_name for query in queries):
            del names[0]
        several = [n for n in names if n in groups and len(np.unique(groups[n])) > 1]
        if several:
            groups[GROUP] = groups[several[0]]
        return Measurements(queries, values, groups, rows.weights)


def _held_out(
    tests: Measurements,
    fitted: BenchmarkBoost,
    parts: Iterable[tuple[Mask, float]],
    groups: Names | None = None,
) -> dict[str, LogQuantiles]:
    """Quantiles of log residuals of each metric, by fits without the rows of each part, over its
    distance.
    """
    plain, rows = replace(fitted, folds=0), np.arange(len(tests))
    found: dict[str, list[Column]] = {metric: [] for metric in fitted.metrics}
    left_out = []
    for held, distance in parts:
        if (~held).sum() < FEWEST_ROWS:
            continue
        own = tests.take(held)
        predicted = plain.fit(tests.take(~held)).predict(own.queries).values
        left_out.append(rows[held])
        for metric, residuals in found.items():
            values = predicted.get(metric, np.full(len(own), np.nan))
            residuals.append((finite_log(own.column(metric)) - finite_log(values)) / distance)
    columns = {metric: np.concatenate(own) for metric, own in found.items() if own}
    labels = None if groups is None or not left_out else groups[np.concatenate(left_out)]
    return {
        metric: LogQuantiles.of(own, groups=labels)
        for metric, own in columns.items()
        if np.isfinite(own).any()
    }


def _ends(queries: Sequence[Query]) -> Iterator[tuple[Mask, float]]:
    """The rows with the lowest, or the highest, value of a setting, and the distance of that value
    from the others.
    """
    settings = [query.benchmark.by_name for query in queries]
    for name in sorted({own for given in settings for own in given}):
        given = [each.get(name) for each in settings]
        values = np.array([v if isinstance(v, float) else np.nan for v in given])
        known = np.unique(values[np.isfinite(values)]).tolist()
        if name.startswith(OF_DEVICE) or len(known) < FEWEST_VALUES:
            continue
        for end, following in ((known[0], known[1]), (known[-1], known[-2])):
            yield values == end, _distance(end, following)


def _widened(values: Column, ends: Column, further: Column) -> Column:
    """Ends of intervals with a second, independent error: their log distances from the values add
    up as squares, shape (n,).
    """
    reach = np.hypot(np.log(ends / values), np.log(further / values))
    side = np.where(further < values, -1.0, 1.0)
    return np.where(further == values, ends, values * np.exp(side * reach))


def _outside(limit: Limit) -> float:
    """How far a feature lies outside its range; 0 for other limits."""
    if limit.value is None or limit.low is None or limit.high is None:
        return 0.0
    return _distance(limit.value, limit.low if limit.value < limit.low else limit.high)


def _distance(value: float, other: float) -> float:
    """Logarithm of the ratio of two values that differ; `STEP` where one is not positive."""
    return abs(float(np.log(value / other))) if min(value, other) > 0.0 else STEP


def _kind(query: Query) -> str:
    """Kind of a query: its phase and whether it is an operator or a network, or its suite."""
    workload = query.workload
    if isinstance(workload, Benchmark):
        return f"test of {workload.suite}"
    if isinstance(workload, OperatorWorkload):
        return f"{workload.kind} {phase_of(workload)}"
    return str(workload.kind)
