"""Ranking: in order of the objective, limits on upper ends, every exclusion with its reason."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, NoReturn

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.list_prices import list_price
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network, NumberFormat, Phase
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.memory.calibrated import CalibratedMemory
from forerun.models.router import Router
from forerun.service.answers.ranking import Goal, Limits, ranked, ranking, swept
from forerun.service.schemas.answers import (
    DeviceOut,
    EstimateOut,
    ExcludedOut,
    FitsOut,
    PredictionOut,
    PredictorOut,
    RankedOut,
    power_facts,
)
from tests.devices import CATALOG

OPERATOR = Operator("elementwise", "relu", ((8, 64),), ((8, 64),))
DEVICES = [CATALOG.get(name) for name in ("l4", "t4", "a30", "a40", "rtx-4090")]


def estimate(value, spread=1.2, in_domain=True):
    if value is None:
        return None
    return EstimateOut(
        value=value,
        low=value / spread,
        high=value * spread,
        coverage=0.9,
        p95=None,
        unit="",
        in_domain=in_domain,
        grade="B" if in_domain else "C",
        grade_reason="",
    )


def answer(device, latency_ms=1.0, power_w=100.0, memory_mib=1000.0, fits=True, **more):
    metrics = {
        "latency_ms": estimate(latency_ms, **more),
        "power_w": estimate(power_w),
        "peak_memory_mib": estimate(memory_mib),
        "energy_j": estimate(power_w and latency_ms and power_w * latency_ms / 1e3),
    }
    needed, usable = 1200.0, 1100.0
    fit = FitsOut(
        fits=fits,
        fits_at_value=True,
        needed_mib=needed,
        usable_mib=usable,
        headroom_mib=usable - needed,
        risk="",
    )
    return PredictionOut(
        metrics=metrics,
        missing={name: "nobody knows" for name, found in metrics.items() if found is None},
        fits=fit if memory_mib else None,
        power=power_facts(Query(Kernel(OPERATOR), device), None),
        in_domain=True,
        limits=[],
        limit_details=[],
        breakdown_ms={},
        breakdown_mib={},
        roofline={},
        unknown_operators={},
        bound_dimensions=[],
        device=DeviceOut(name=device.name, origin=device.origin),
        graph="digest",
        predictor=PredictorOut(name="made up", version="0", adapted_rows=0),
    )


class Found(NamedTuple):
    ranked: list[RankedOut]
    excluded: list[ExcludedOut]


def rank(answers, objective="latency_ms", most=None, **limits):
    goal = Goal(objective, 8, dict.fromkeys(DEVICES[:-1], 2.0))
    ranked, excluded = ranking(DEVICES, answers, goal, Limits(most or {}, **limits))
    return Found(ranked, excluded)


def names(found):
    return [row.device.name for row in found.ranked]


VALUES = st.lists(st.floats(0.1, 100.0) | st.none(), min_size=5, max_size=5)


@given(values=VALUES, most=st.floats(0.1, 100.0))
def test_every_device_is_ranked_or_excluded_and_no_ranked_one_breaks_a_limit(values, most):
    answers = [answer(d, latency_ms=v) for d, v in zip(DEVICES, values, strict=True)]
    found = rank(answers, most={"latency_ms": most})
    assert len(found.ranked) + len(found.excluded) == 5
    aims = [row.objective.value for row in found.ranked]
    assert aims == sorted(aims)
    assert all(row.metrics["latency_ms"].high <= most for row in found.ranked)
    assert all(row.margins["latency_ms"] >= 0 for row in found.ranked)
    assert all(row.reasons for row in found.excluded)


def test_devices_less_than_a_percent_behind_the_first_of_a_rank_share_it():
    """Small differences do not add up: each is compared with the first of the rank."""
    times = (100.0, 100.6, 101.2, 101.8, 110.0)
    answers = [answer(d, latency_ms=v) for d, v in zip(DEVICES, times, strict=True)]
    assert [row.rank for row in rank(answers).ranked] == [1, 1, 3, 3, 5]


def test_equal_devices_share_a_rank_and_the_next_one_does_not():
    answers = [answer(d, latency_ms=v) for d, v in zip(DEVICES, (2, 1, 2, 3, 1), strict=True)]
    found = rank(answers)
    assert [row.rank for row in found.ranked] == [1, 1, 3, 3, 5]
    assert names(found)[:2] == ["rtx-4090", "t4"]
    assert [row.overlaps_best for row in found.ranked] == [True, True, False, False, False]


def test_limits_are_compared_with_the_upper_end_unless_the_risk_is_taken():
    answers = [answer(d, latency_ms=10.0) for d in DEVICES]
    safe = rank(answers, most={"latency_ms": 11.0})
    assert names(safe) == []
    assert safe.excluded[0].reasons == ["upper end of latency_ms is 12 ms, the limit 11 ms"]
    bold = rank(answers, most={"latency_ms": 11.0}, risk="value")
    assert len(names(bold)) == 5
    assert bold.ranked[0].margins["latency_ms"] == pytest.approx(1.0)


def test_average_power_is_held_to_what_the_device_itself_enforces():
    device = DEVICES[0]
    hot = [answer(device, power_w=0.95 * device.tdp_w)] + [answer(d) for d in DEVICES[1:]]
    assert hot[0].metrics["power_w"].high > device.tdp_w
    assert device.name in names(rank(hot, most={"power_w": device.tdp_w}))
    assert device.name not in names(rank(hot, most={"power_w": 0.9 * device.tdp_w}))


def test_what_may_not_fit_is_left_out_unless_the_risk_is_taken():
    answers = [answer(d, fits=False) for d in DEVICES]
    assert rank(answers).excluded[0].reasons == [
        "does not fit: up to 1,200 MiB needed, 1,100 MiB usable"
    ]
    assert len(names(rank(answers, risk="value"))) == 5
    assert len(names(rank(answers, must_fit=False))) == 5


def test_what_is_not_known_is_a_reason_not_a_number():
    unknown = answer(DEVICES[0], power_w=None, memory_mib=None)
    answers = [unknown, UnanswerableQuery("No one answers."), *map(answer, DEVICES[2:])]
    found = rank(answers, "energy_j", {"power_w": 500.0})
    first, second = (row.reasons for row in found.excluded)
    assert first == [
        "power_w is not known: nobody knows",
        "whether it fits is not known: nobody knows",
        "energy_j is not known: nobody knows",
    ]
    assert second == ["No one answers."]


def test_a_device_without_a_price_has_no_cost():
    found = rank([answer(d, latency_ms=3600.0) for d in DEVICES], "cost")
    assert found.ranked[0].objective.value == pytest.approx(2.0 * 3600 / 3.6e6)
    assert found.excluded[0].reasons == ["cost is not known: no price is given"]


def test_list_prices_stand_in_where_no_price_is_given_at_all():
    devices = [CATALOG.get(name) for name in ("l4", "h100-sxm-80gb", "m40")]
    answers = [answer(device, latency_ms=3.6e6) for device in devices]
    kept, excluded = ranking(devices, answers, Goal("cost"), Limits({}))
    dollars = {row.device.name: row.objective.value for row in kept}
    assert dollars == {name: list_price(name).usd_per_device_hour for name in dollars}
    assert set(dollars) == {"l4", "h100-sxm-80gb"}
    assert excluded[0].reasons == ["cost is not known: no list price is known; give one"]
    given = Goal("cost", prices_per_hour={devices[2]: 1.0})
    kept, _ = ranking(devices, answers, given, Limits({}))
    assert [row.device.name for row in kept] == ["tesla-m40"]


def test_most_samples_a_joule_come_first_and_its_ends_change_places():
    answers = [answer(d, power_w=w) for d, w in zip(DEVICES, (50, 40, 30, 20, 10), strict=True)]
    found = rank(answers, "throughput_per_w")
    assert names(found)[0] == "rtx-4090"
    best = found.ranked[0].objective
    assert best.value == pytest.approx(8 / 0.01)
    assert best.low < best.value < best.high


def test_only_what_was_measured_alike_where_that_is_asked():
    answers = [answer(d, in_domain=d.name == "l4") for d in DEVICES]
    found = rank(answers, in_domain_only=True)
    assert names(found) == ["l4"]
    assert found.excluded[0].reasons == ["latency_ms is outside what was measured"]


MIXED_DEVICES = [
    CATALOG.get(n) for n in ("l4", "a100-pcie-80gb", "rtx-3090", "mi250x", "epyc-7742")
]


def graph(width: int) -> OperatorGraph:
    """Two products of these widths with an activation between them."""
    return OperatorGraph(
        (
            Operator("linear", "a", ((1, width),), ((1, 2 * width),), 2 * width * width),
            Operator("elementwise", "b", ((1, 2 * width),), ((1, 2 * width),), inputs=(0,)),
            Operator("linear", "c", ((1, 2 * width),), ((1, 10),), 20 * width, inputs=(1,)),
        )
    )


def unused() -> InUse:
    """The bundled predictors without what they keep of earlier questions."""
    loaded = bundled()
    router = loaded.predictor
    assert isinstance(router, Router)
    parts = tuple(replace(part) for part in router.parts)  # type: ignore[type-var]
    return InUse(replace(loaded, predictor=replace(router, parts=parts)))


def devices_ranked(network: Network, devices: list[Device], in_use: InUse) -> dict[str, object]:
    queries = [Query(network, device, Software()) for device in devices]
    found = ranked(queries, Goal("latency_ms"), Limits({}, must_fit=False), in_use)
    rows = {
        row.device.name: row.model_dump(exclude={"rank", "overlaps_best"}) for row in found.ranked
    }
    return rows | {row.device.name: row.reasons for row in found.excluded}


@pytest.mark.parametrize(
    ("precision", "phase"), [("fp32", "inference"), ("amp", "inference"), ("fp16", "training")]
)
def test_a_device_has_the_answer_that_it_has_alone(precision: NumberFormat, phase: Phase) -> None:
    together = devices_ranked(Network(graph(640), 24, precision, phase), MIXED_DEVICES, unused())
    assert set(together) == {device.name for device in MIXED_DEVICES}
    for device in MIXED_DEVICES:
        alone = devices_ranked(Network(graph(640), 24, precision, phase), [device], unused())
        assert close(alone[device.name], together[device.name]), device.name


def test_sheets_of_one_name_have_their_own_answers() -> None:
    own = CATALOG.get("l4").model_copy(update={"memory_bandwidth_gbs": 900.0})
    in_use, network = InUse(bundled()), Network(graph(512), 48, "amp")
    first, second = (devices_ranked(network, [d], in_use)["l4"] for d in (CATALOG.get("l4"), own))
    assert not close(first, second)


def close(one: object, other: object) -> bool:
    """Whether two answers agree to 1e-9 in all numbers and are equal otherwise."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k]) for k in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(close, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-9)
    return one == other


def test_a_sweep_of_power_limits_asks_no_predictor_of_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory does not depend on the power limit, and its plan takes longer than all else."""

    def predict(self: CalibratedMemory, queries: Sequence[Query]) -> NoReturn:
        raise AssertionError(f"{len(queries)} queries about memory")

    monkeypatch.setattr(CalibratedMemory, "predict", predict)
    query = Query(Network(graph(256), 8, "amp"), CATALOG.get("l4"))
    found = swept(query, [50.0, 72.0], 0.1, InUse(bundled()))
    assert [run.limit_w for run in found.runs] == [50.0, 72.0]
