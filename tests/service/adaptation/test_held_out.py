"""Few-shot adaptation is scored on held-out rows, and says which to measure next."""

from dataclasses import dataclass, field

import numpy as np
import pytest

from forerun.data.collectors.workloads.operators import reference_operators
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.features.operators.kinds import KINDS
from forerun.models.baselines.roofline import Roofline
from forerun.models.prediction import Predictions
from forerun.service.adaptation.held_out import held_out, key_of
from forerun.service.adaptation.suggestion import suggested
from tests.devices import L4


@dataclass(frozen=True)
class Rote:
    """Memorises its support rows, and answers 1 to every other query."""

    observed: dict = field(default_factory=dict)
    log: list = field(default_factory=list)

    def adapt(self, measurements):
        keys = [key_of(q) for q in measurements.queries]
        self.log.append(set(keys))
        observed = dict(zip(keys, measurements.values["latency_ms"], strict=True))
        return Rote(observed, self.log)

    def predict(self, queries):
        values = np.array([self.observed.get(key_of(q), 1.0) for q in queries])
        return Predictions(
            {"latency_ms": values}, {"latency_ms": values / 2}, {"latency_ms": values * 2}
        )


@dataclass(frozen=True)
class Level:
    """Predicts one value for all queries: the geometric mean of its support rows."""

    level: float = 1.0

    def adapt(self, measurements):
        return Level(float(np.exp(np.mean(np.log(measurements.values["latency_ms"])))))

    def predict(self, queries):
        return Predictions({"latency_ms": np.full(len(queries), self.level)})


def rows(values, sizes=None) -> Measurements:
    sizes = range(1, len(values) + 1) if sizes is None else sizes
    operators = [Operator("linear", "fc", ((n, 8),), ((n, 8),), 64) for n in sizes]
    queries = [Query(Kernel(op), L4) for op in operators]
    return Measurements(queries, {"latency_ms": np.array(values, dtype=float)})


def errors_of(base, measured, **more):
    return held_out(base, measured, base.predict(measured.queries), **more)


def test_learning_by_heart_gains_nothing():
    base = Rote()
    found = errors_of(base, rows([3.0, 4.0, 5.0]))
    error = found.metrics["latency_ms"]
    assert error.mape_after == error.mape_before
    assert (found.folds, found.one_by_one) == (3, True)
    assert error.width_before == error.width_after == 4.0
    assert error.held_before == error.held_after == 0.0


def test_runs_of_one_workload_do_not_give_each_other_away():
    base = Rote()
    measured = rows([3.0, 3.1, 5.0, 5.1], sizes=[1, 1, 2, 2])
    earlier = rows([3.05, 7.0], sizes=[1, 9])
    found = errors_of(base, measured, earlier=earlier)
    assert found.metrics["latency_ms"].mape_after == found.metrics["latency_ms"].mape_before
    every = {key_of(query) for query in (measured + earlier).queries}
    keys = [key_of(query) for query in measured.queries]
    assert base.log == [every - {keys[0]}, every - {keys[2]}]


def test_errors_are_given_by_group_too():
    found = errors_of(Level(), rows([2.0, 4.0, 2.0, 2.0], sizes=[1, 2, 3, 4])).metrics["latency_ms"]
    assert list(found.by_group) == [f"linear {n}x8" for n in (1, 2, 3, 4)]
    assert found.by_group["linear 2x8"] == pytest.approx(50.0)


def test_one_row_alone_has_no_error_after():
    error = errors_of(Level(), rows([3.0])).metrics["latency_ms"]
    assert error.mape_after is None
    assert error.gain is None
    assert not error.enough


def test_one_level_is_learnt_from_the_others():
    error = errors_of(Level(), rows([2.0, 2.0, 2.0])).metrics["latency_ms"]
    assert error.mape_before == 50.0
    assert error.mape_after == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("spread", "count", "enough"), [(0.1, 5, True), (0.5, 5, False), (0.5, 60, True)]
)
def test_it_is_enough_when_the_level_is_known_well(spread, count, enough):
    values = 2.0 * np.exp(spread * np.random.default_rng(0).standard_normal(count))
    found = errors_of(Level(), rows(values))
    assert found.enough == enough
    assert (found.metrics["latency_ms"].gain < 0.01) == enough


def test_fewer_than_five_rows_are_never_enough():
    assert not errors_of(Level(), rows([2.0, 2.0, 2.0, 2.0])).enough


def test_many_rows_and_little_time_are_held_out_in_parts():
    many = errors_of(Level(), rows(np.linspace(1, 2, 60)))
    assert (many.folds, many.one_by_one) == (10, False)
    hurried = errors_of(Level(), rows(np.linspace(1, 2, 20)), budget_s=1.0, adapt_s=0.6)
    assert (hurried.folds, hurried.one_by_one) == (2, False)
    assert hurried.metrics["latency_ms"].rows == 20


CANDIDATES = [Query(Kernel(op), L4) for op in reference_operators()]
CLASS_OF = {kind.name: kind.op_class for kind in KINDS}


class Knowing(Roofline):
    """Wants the last ones."""

    def suggest(self, queries, count, seed=0):
        return list(range(len(queries)))[::-1][:count]


def test_a_predictor_that_knows_is_asked():
    assert suggested(Knowing(), CANDIDATES[:5], [], 2) == [4, 3]


def test_otherwise_they_are_distinct_and_of_all_classes():
    places = suggested(Roofline(), CANDIDATES, [], 8)
    assert len(set(places)) == 8
    chosen = {CLASS_OF[CANDIDATES[place].run.operator.kind] for place in places}
    assert len(chosen) == 6


def test_what_was_measured_is_kept_away_from():
    first = suggested(Roofline(), CANDIDATES, [], 4)
    measured = [CANDIDATES[place] for place in first]
    rest = [query for query in CANDIDATES if query not in measured]
    longer = [CANDIDATES[place] for place in suggested(Roofline(), CANDIDATES, [], 7)]
    after = [rest[place] for place in suggested(Roofline(), rest, measured, 3)]
    assert after == longer[4:]


def test_there_are_never_more_than_candidates():
    assert sorted(suggested(Roofline(), CANDIDATES[:3], [], 10)) == [0, 1, 2]
    assert suggested(Roofline(), [], CANDIDATES, 10) == []
    assert suggested(Roofline(), CANDIDATES[:2] * 2, [], 4) != []
