"""The composed predictor: first that answers wins, and energy follows from power and latency."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import UnanswerableQuery
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.contract import PredictorContract
from forerun.models.limit import Limit
from forerun.models.prediction import Predictions
from forerun.models.router import Router

RELU = Operator("elementwise", "relu", ((8, 64),), ((8, 64),))
DEVICE = DeviceCatalog.load().get("a10")
KERNEL = Query(Kernel(RELU), DEVICE)
NETWORK = Query(Network(OperatorGraph((RELU, replace(RELU, inputs=(0,)))), 4), DEVICE)
TOO_HOT = Limit("too hot", "latency_ms")


@dataclass(frozen=True)
class KernelsOnly:
    """Answers kernels: 2 ms with an interval, 100 W, outside its range."""

    name: ClassVar[str] = "kernels_only"
    metrics: ClassVar[tuple[str, ...]] = ("latency_ms", "power_w")

    def answers(self, query):
        return query.workload.kind == "kernel"

    def fit(self, measurements):
        return self

    def adapt(self, measurements):
        return self

    def predict(self, queries):
        n = len(queries)
        values = {"latency_ms": np.full(n, 2.0), "power_w": np.full(n, 100.0)}
        return Predictions(
            values,
            {k: v * 0.5 for k, v in values.items()},
            {k: v * 2.0 for k, v in values.items()},
            0.9,
            [(TOO_HOT,)] * n,
        )

    def save(self, folder: Path):
        raise AssertionError

    load = None


class TestChosenContract(PredictorContract):
    def make(self):
        return Router((Constant({"latency_ms": 4.0}), Roofline()))

    def queries(self):
        return [KERNEL, NETWORK, KERNEL]


def test_the_first_part_that_answers_is_asked():
    answers = Router((KernelsOnly(), Constant({"latency_ms": 7.0}))).predict([KERNEL, NETWORK])
    np.testing.assert_array_equal(answers.values["latency_ms"], [2.0, 7.0])


def test_energy_follows_from_power_and_latency():
    chosen = Router((KernelsOnly(), Constant({"latency_ms": 7.0})))
    assert "energy_j" in chosen.metrics
    answer = chosen.predict([KERNEL])[0]
    assert answer.estimates["energy_j"].value == pytest.approx(0.2)
    assert answer.estimates["energy_j"].low == pytest.approx(0.05)


def test_a_metric_that_nobody_answers_is_absent_not_zero():
    answer = Router((KernelsOnly(), Constant({"latency_ms": 7.0}))).predict([NETWORK])[0]
    assert set(answer.estimates) == {"latency_ms"}
    assert answer.estimates["latency_ms"].low is None


def test_a_part_without_rows_of_its_own_is_not_adapted():
    rows = Measurements([NETWORK], {"latency_ms": np.array([3.0])})
    adapted = Router((KernelsOnly(), Constant({"latency_ms": 7.0}))).adapt(rows)
    assert adapted.parts[0] == KernelsOnly()
    assert adapted.parts[1].means == pytest.approx({"latency_ms": 3.0})


def test_a_part_learns_from_rows_that_an_earlier_one_answers_if_it_says_so():
    class Learns(Constant):
        def learns(self, query):
            return query == KERNEL

    rows = Measurements([KERNEL, NETWORK], {"latency_ms": np.array([3.0, 5.0])})
    for part, mean in (
        (Learns({"latency_ms": 7.0}), 15**0.5),
        (Constant({"latency_ms": 7.0}), 5.0),
    ):
        adapted = Router((KernelsOnly(), part)).adapt(rows)
        assert adapted.parts[1].means == pytest.approx({"latency_ms": mean})


def test_limits_are_kept_and_belong_to_their_row():
    answers = Router((KernelsOnly(), Constant({"latency_ms": 7.0}))).predict([NETWORK, KERNEL])
    assert answers[0].in_domain
    assert answers[1].limits == (TOO_HOT,)


def test_a_query_that_no_part_answers_is_refused_with_its_kind_and_device():
    with pytest.raises(UnanswerableQuery, match="network workload on a10"):
        Router((KernelsOnly(),)).predict([NETWORK])


@pytest.mark.parametrize("metric", ["latency_ms", "latency_cycles", "power_w"])
def test_parts_that_time_suggest_in_turns_and_others_are_not_asked(metric):
    @dataclass(frozen=True)
    class Telling(KernelsOnly):
        metrics: ClassVar[tuple[str, ...]] = (metric,)

        def suggest(self, queries, count, seed=0):
            return list(range(len(queries)))[::-1][:count]

    kernels = [KERNEL, KERNEL, KERNEL]
    chosen = Router((Telling(), Roofline())).suggest([NETWORK, *kernels], 3)
    # The roofline cannot tell, so its queries come in their order; power is not timed.
    assert chosen == ([0, 1, 2] if metric == "power_w" else [3, 0, 2])
