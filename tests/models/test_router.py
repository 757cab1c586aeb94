"""Predictors as one: routes, scopes, settings and repeated adaptation."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import ClassVar

import numpy as np
import pytest
from sklearn.base import clone

from forerun.data.device import DeviceCatalog
from forerun.data.errors import UnanswerableQuery
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.catalog import PREDICTORS, Scope, predictor_class
from forerun.models.contract import PredictorContract
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.limit import Limit
from forerun.models.networks.device_time import DeviceTime
from forerun.models.networks.latency import NetworkLatency
from forerun.models.predictor import SETTING, Estimator
from forerun.models.router import Router
from tests.devices import CATALOG
from tests.every import for_every
from tests.golden.in_python import query_of
from tests.golden.stored import kinds, questions_of
from tests.models.power.test_limit_response import Hot

# The composed predictor: first that answers wins, and energy follows from power and latency.


RELU = Operator("elementwise", "relu", ((8, 64),), ((8, 64),))
DEVICE = DeviceCatalog.load().get("a10")
KERNEL = Query(Kernel(RELU), DEVICE)
NETWORK = Query(Network(OperatorGraph((RELU, replace(RELU, inputs=(0,)))), 4), DEVICE)
TOO_HOT = Limit("too hot", "latency_ms")


@dataclass(frozen=True)
class KernelsOnly(Hot):
    """Answers kernels: 2 ms and 100 W with intervals, outside its range."""

    power_w: float = 100.0

    def predict(self, queries):
        return replace(super().predict(queries), limits=[(TOO_HOT,)] * len(queries))


class TestChosenContract(PredictorContract):
    def make(self):
        return Router((Constant({"latency_ms": 4.0}), Roofline()))

    def queries(self):
        return [KERNEL, NETWORK, KERNEL]


def test_the_first_part_that_answers_is_asked():
    answers = Router((KernelsOnly(), Constant({"latency_ms": 7.0}))).predict([KERNEL, NETWORK])
    np.testing.assert_array_equal(answers.values["latency_ms"], [2.0, 7.0])


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


# Parts that a question does not need are left out, and the answer is the same in every bit.


LINEAR = Operator("linear", "fc", ((8, 1024),), ((8, 4096),), 4096 * 1024)
WIDE_RELU = Operator("elementwise", "relu", ((8, 4096),), ((8, 4096),), inputs=(0,))
GRAPH = OperatorGraph((LINEAR, WIDE_RELU), batch_size=8)
WHOLE = bundled().predictor


def questions():
    """Questions that Python asks in the stored answers, and some about networks and operators."""
    for content in map(questions_of, kinds()):
        if content["through"] == "python":
            yield from map(query_of, list(content["questions"].values())[::12])
    limit = Operation(power_limit_w=150.0)
    for name in ("l4", "a100-pcie-80gb", "rtx-4090"):
        for workload in (Network(GRAPH, 8), Network(GRAPH, 64, "amp"), Kernel(LINEAR)):
            yield Query(workload, CATALOG.get(name))
        yield Query(Network(GRAPH, 8), CATALOG.get(name), operation=limit)
        yield Query(Network(GRAPH, 8, phase="training"), CATALOG.get(name))
    cpu = next(device for device in CATALOG if device.kind == "cpu")
    yield Query(Network(GRAPH, 8), cpu, Software(runtime="onnxruntime", threads=2))
    yield Query(Network(GRAPH, 8), cpu)


def scope_of(query):
    return Scope(frozenset({query.workload.kind}), frozenset({query.device.kind}))


def described(predictor, query):
    """All that is not NaN in a prediction, or that there is none."""
    if not predictor.answers(query):
        return None
    found = predictor.predict([query])
    columns = (found.values, found.low, found.high, found.row_coverage)
    numbers = [
        {name: column.tobytes() for name, column in part.items() if not np.isnan(column).all()}
        for part in columns
    ]
    return numbers, found.limits, found.breakdowns_ms, found.breakdowns_mib


@pytest.mark.slow
def test_every_question_has_the_same_answer_without_the_other_parts():
    seen, fewer = set(), False
    for query in questions():
        part = bundled(scope_of(query)).predictor
        fewer |= len(part.parts) < len(WHOLE.parts) / 2
        seen.add((query.workload.kind, query.device.kind))
        assert described(part, query) == described(WHOLE, query), query
    assert fewer
    assert len(seen) > 4, "the questions are of many kinds"


def test_a_predictor_answers_nothing_outside_of_what_the_catalogue_says():
    for query in questions():
        for part in WHOLE.parts:
            if not scope_of(query).concerns(part.name):
                assert not part.answers(query), (part.name, query)


def test_a_predictor_of_another_package_is_always_loaded(tmp_path):
    scope = Scope(frozenset({"network"}), frozenset({"gpu"}))
    assert "mine" not in PREDICTORS
    assert scope.concerns("mine")
    assert not scope.concerns("design_boost")
    other = next(part for part in WHOLE.parts if part.name == "design_boost")
    Router((Constant({"latency_ms": 1.0}), other)).save(tmp_path)
    names = [part.name for part in load_part(tmp_path, scope).parts]
    assert names == ["constant"]
    assert [part.name for part in load_part(tmp_path).parts] == ["constant", "design_boost"]


@pytest.mark.parametrize(
    ("workload", "device", "concerned"),
    [("network", "gpu", False), ("network", "cpu", True), ("architecture", "cpu", False)],
)
def test_both_the_workload_and_the_device_decide(workload, device, concerned):
    scope = Scope(frozenset({workload}), frozenset({device}))
    assert scope.concerns("cpu_latency") == concerned


# Conventions of scikit-learn: settings by name, clones without what was fitted.


@dataclass(frozen=True)
class Inner(Estimator):
    trees: int = field(default=3, metadata=SETTING)
    fitted: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Outer(Estimator):
    inner: Inner = field(default_factory=Inner, metadata=SETTING)
    parts: tuple[Inner, ...] = field(default=(), metadata=SETTING)
    seed: int = field(default=0, metadata=SETTING)
    level: float = 1.0


FITTED = Outer(Inner(5, {"a": 1.0}), (Inner(7, {"b": 2.0}),), 4, level=9.0)


def test_settings_are_read_by_name_also_those_of_estimators_inside():
    assert FITTED.get_params(deep=False) == {
        "inner": FITTED.inner,
        "parts": FITTED.parts,
        "seed": 4,
    }
    assert FITTED.get_params() == FITTED.get_params(deep=False) | {"inner__trees": 5}


def test_a_clone_forgets_what_was_fitted_at_every_depth():
    assert clone(FITTED) == Outer(Inner(5), (Inner(7),), 4)
    assert clone([FITTED.inner]) == [Inner(5)]


def test_changes_reach_the_estimators_inside_and_leave_the_rest_unfitted():
    assert FITTED.with_params(seed=1) == Outer(Inner(5), (Inner(7),), 1)
    assert FITTED.with_params(inner__trees=8).inner == Inner(8)
    given = Inner(2, {"c": 3.0})
    assert FITTED.with_params(inner=given).inner == given, "an estimator that is given stays fitted"
    assert FITTED.with_params(inner__trees=6, inner=given).inner == Inner(6)


@pytest.mark.parametrize("name", ["level", "nothing", "seed__trees", "inner__fitted"])
def test_what_is_no_setting_is_refused_and_the_settings_are_listed(name):
    with pytest.raises(ValueError, match=r"no setting .*; it has .*trees"):
        FITTED.with_params(**{name: 1})


def test_a_predictor_of_several_is_changed_inside():
    changed = NetworkLatency(DeviceTime(trees=7)).with_params(device__seed=3)
    assert (changed.device.trees, changed.device.seed) == (7, 3)
    router = clone(Router((Constant({"latency_ms": 2.0}), Roofline())))
    assert router == Router((Constant(), Roofline()))


@for_every("name", PREDICTORS)
def test_every_predictor_of_the_catalogue_declares_its_settings(name):
    cls = predictor_class(name)
    assert issubclass(cls, Estimator)
    own = {f.name for f in fields(cls) if f.metadata == SETTING}
    assert "seed" in own or "seed" not in {f.name for f in fields(cls)}
    assert {
        f.name for f in fields(cls) if f.name in ("bag", "trees", "epochs", "calibrated")
    } <= own


# Adapting to one more device predicts no rows of others again, and ends the same.


SIDES = (2048, 3072)
GRAPHS = [
    OperatorGraph(
        (
            Operator("linear", "a", ((1, side),), ((1, side),), side * side),
            Operator("elementwise", "b", ((1, side),), ((1, side),), inputs=(0,)),
        )
    )
    for side in SIDES
]


def unused() -> Router:
    """The bundled predictors without what they keep of earlier rows."""
    router = bundled().predictor
    assert isinstance(router, Router)
    latency = next(part for part in router.parts if part.name == "network_latency")
    fresh = replace(  # type: ignore[type-var]
        latency,
        device=replace(latency.device),  # type: ignore[attr-defined]
        operators=replace(latency.operators),  # type: ignore[attr-defined]
    )
    return replace(router, parts=(fresh,))


def measured(router: Router, name: str) -> Measurements:
    queries = [
        Query(Network(graph, 4096 * batch, "fp32"), CATALOG.get(name))
        for graph in GRAPHS
        for batch in (1, 2, 3)
    ]
    return Measurements(queries, {"latency_ms": 1.2 * router.predict(queries).values["latency_ms"]})


def test_rows_of_other_devices_are_not_predicted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (measured(unused(), name) for name in ("l4", "a40"))
    rows: list[int] = []
    predict = BoosterBag.predict

    def counted(self: BoosterBag, matrix: np.ndarray) -> np.ndarray:
        rows.append(len(matrix))
        return predict(self, matrix)

    monkeypatch.setattr(BoosterBag, "predict", counted)
    router = unused()
    router.adapt(first)
    alone = sum(rows)
    rows.clear()
    both = router.adapt(first + second)
    assert 0 < sum(rows) < 1.5 * alone
    queries = [*first.queries, *second.queries]
    expected = unused().adapt(first + second).predict(queries).values["latency_ms"]
    np.testing.assert_allclose(both.predict(queries).values["latency_ms"], expected, rtol=1e-9)
