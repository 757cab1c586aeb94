"""NetworkLatency: the contract of predictors, and adaptation by small and by large batches."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import NO_HOST, Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.features.chips import chip_of
from forerun.features.lowering import lowered, lowering_mode
from forerun.models.contract import PredictorContract
from forerun.models.networks.batch_interpolation import law_seconds
from forerun.models.networks.device_time import DeviceTimes
from forerun.models.networks.host_time import HostTime
from forerun.models.networks.latency import OVERLAP, NetworkLatency, _at_least_one, _joined
from forerun.models.operators.booster import OperatorBoost
from tests.models.networks.test_booster import RUNTIMES, STRANGER, TRAINING_GPUS, ask, fitted, gpu

EAGER, COMPILED = RUNTIMES
RECORDED = Software(version="2.4.0", runtime="reduce-overhead")


def kernel(rows: int, columns: int) -> Operator:
    return Operator(
        "linear", "aten.linear", ((rows, columns),), ((rows, columns),), columns * columns
    )


@cache
def operators() -> OperatorBoost:
    """Products and elementwise operators that take 1.5 times their roofline, and 5 microseconds."""
    from forerun.models.baselines.roofline import Roofline

    random = np.random.default_rng(1)
    queries = []
    for device in TRAINING_GPUS:
        for _ in range(300):
            rows, columns = (int(2 ** random.uniform(6, 11)) for _ in range(2))
            shape = (64, rows, columns)
            relu = Operator("elementwise", "aten.relu", (shape,), (shape,), 0, {"function": "relu"})
            one = kernel(64 * rows, columns) if random.random() < 0.5 else relu
            queries.append(Query(Kernel(one), device))
    bound = Roofline().predict(queries).values["latency_ms"]
    values = {"latency_ms": 1.5 * bound + 0.005}
    groups = {"device": np.array([q.device.name for q in queries])}
    return OperatorBoost(bag=1, trees=10).fit(Measurements(queries, values, groups))


@cache
def latency() -> NetworkLatency:
    return NetworkLatency(networks=fitted(), operators=operators())


def networks(batches: Sequence[int] = (1, 64, 256)) -> list[Query]:
    return [
        ask(device, 48, 3, batch, software, precision)
        for device in (TRAINING_GPUS[0], STRANGER)
        for batch in batches
        for software in RUNTIMES
        for precision in ("amp", "fp32")
    ]


class TestNetworkLatency(PredictorContract):
    def make(self) -> NetworkLatency:
        return latency()

    def queries(self) -> Sequence[Query]:
        return [*networks(), Query(Kernel(kernel(4096, 512)), TRAINING_GPUS[0])]


class Times(NamedTuple):
    device: DeviceTimes
    host: np.ndarray
    host_deviation: np.ndarray


def times_of(predictor: NetworkLatency, queries: Sequence[Query]) -> Times:
    return Times(predictor.device_time.predict(queries), *predictor.host.seconds(queries))


def ms(predictor: NetworkLatency, queries: Sequence[Query]) -> np.ndarray:
    return predictor.predict(queries).values["latency_ms"]


def test_the_norm_is_between_the_longer_part_and_the_sum() -> None:
    queries = networks()
    times = times_of(latency(), queries)
    value = ms(latency(), queries) / 1e3
    assert (value >= np.maximum(times.device.seconds, times.host) * (1 - 1e-12)).all()
    assert (value <= (times.device.seconds + times.host) * (1 + 1e-12)).all()


def test_equal_parts_take_a_fifth_longer_than_either() -> None:
    times = times_of(latency(), networks()[:1])
    equal = times._replace(
        device=times.device._replace(seconds=np.array([1.0])), host=np.array([1.0])
    )
    assert _joined(*equal)[0][0] == pytest.approx(2 ** (1 / OVERLAP))
    assert 1.15 < 2 ** (1 / OVERLAP) < 1.25


def test_intervals_widen_by_the_factor_of_the_part_that_is_longer() -> None:
    times = times_of(latency(), networks()[:1])
    for place, (device, host) in enumerate(((1.0, 0.01), (0.01, 1.0))):
        one = times._replace(
            device=times.device._replace(seconds=np.array([device])), host=np.array([host])
        )
        _, low, high = _joined(*one)
        widths = tuple(2.0 if i == place else 9.0 for i in range(2))
        value, wide_low, wide_high = _joined(*one, widths)  # type: ignore[arg-type]
        np.testing.assert_allclose(np.log(wide_high / value), 2 * np.log(high / value))
        np.testing.assert_allclose(np.log(wide_low / value), 2 * np.log(low / value))


def test_the_breakdown_adds_up_to_the_latency() -> None:
    for prediction, value in zip(
        latency().predict(networks()), ms(latency(), networks()), strict=True
    ):
        assert sum(prediction.breakdown_ms.values()) == pytest.approx(value)
        assert prediction.breakdown_ms["host"] >= 0


@pytest.mark.parametrize("software", RUNTIMES, ids=lambda s: s.runtime)
def test_no_time_of_a_sum_is_that_of_unknown_operators(software: Software) -> None:
    shape = (1, 64, 56, 56)
    add = Operator("elementwise", "aten.add", (shape, shape), (shape,), 0, {"function": "add"})
    query = Query(Network(OperatorGraph((add,)), 64, "amp"), TRAINING_GPUS[0], software)
    breakdown = latency().predict([query])[0].breakdown_ms
    assert set(breakdown) == {"elementwise", "host"}


@pytest.mark.parametrize("batch", [1, 256])
@pytest.mark.parametrize("precision", ["amp", "fp32"])
def test_times_of_operators_are_those_that_the_device_time_adds_up(
    batch: int, precision: str
) -> None:
    query = ask(TRAINING_GPUS[0], 48, 3, batch, EAGER, precision)
    times = latency().operator_times(query)
    if precision == "fp32":
        whole = float(operators().timed_networks([query]).device_ms[0])
    else:
        chip, mode = chip_of(query.device, "amp"), lowering_mode(query.network.graph, "amp", EAGER)
        kernels = lowered(query.network.graph, mode)
        batches = np.array([batch], dtype=np.float64)
        whole = 1e3 * float(
            law_seconds(fitted().kernel_times, kernels, [chip], batches, "eager")[0, 0]
        )
    assert sum(time.ms for time in times) == pytest.approx(whole, rel=1e-9)
    assert min(time.ms for time in times) >= 0.0
    (convolutions,) = (
        time for time in times if time.op_class == "conv" and "1x48x56x56 ->" in time.label
    )
    assert convolutions.count == 3.0


def test_a_single_kernel_is_the_operators_own_answer_and_has_no_host() -> None:
    query = Query(Kernel(kernel(4096, 512)), TRAINING_GPUS[0])
    np.testing.assert_array_equal(
        ms(latency(), [query]), operators().predict([query]).values["latency_ms"]
    )


def test_large_batches_are_the_device_and_batch_one_is_the_host() -> None:
    large, small = (
        ask(TRAINING_GPUS[0], 128, 6, 4096, EAGER),
        ask(TRAINING_GPUS[0], 16, 1, 1, EAGER),
    )
    times = times_of(latency(), [large, small])
    assert times.device.seconds[0] > 10 * times.host[0]
    assert times.host[1] > 3 * times.device.seconds[1]
    assert ms(latency(), [large])[0] == pytest.approx(
        fitted_ms(large), rel=1e-3
    )  # the predictor of networks alone answers for amp


def fitted_ms(query: Query) -> float:
    return float(latency().networks.predict([query]).values["latency_ms"][0])


@pytest.mark.parametrize("tf32", [None, 100.0])
def test_full_precision_is_a_sum_of_kernels_unless_convolutions_run_on_tf32_units(
    tf32: float | None,
) -> None:
    known = TRAINING_GPUS[0]
    peaks = {name: peak for name, peak in known.peak_tflops.items() if name != "tf32"}
    peaks |= {} if tf32 is None else {"tf32": tf32}
    device = Device.model_validate({**known.model_dump(), "peak_tflops": peaks})
    query = ask(device, 128, 6, 4096, EAGER, "fp32")
    parts = latency().device_time.parts
    own = parts["operators" if tf32 is None else "networks"].predict([query])
    assert ms(latency(), [query])[0] == pytest.approx(own.values["latency_ms"][0], rel=1e-3)


def test_recorded_gpus_share_their_errors_and_keep_their_order() -> None:
    """Rows of one GPU alone that are slow would make it slower than its lesser sibling."""
    better = gpu("better", 3.3)
    queries = [[replace(q, device=device) for q in large()] for device in (STRANGER, better)]
    plain = [ms(latency(), own) for own in queries]
    rows = Measurements(
        [*queries[0], *queries[1]],
        {"latency_ms": np.concatenate([plain[0], 1.5 * plain[1]])},
        {"host": np.full(2 * len(large()), NO_HOST), "device": np.full(2 * len(large()), "")},
    )
    other, on_better = (ask(device, 80, 5, 4096, EAGER) for device in (STRANGER, better))
    fitted = latency().fit(rows)
    lesser_ms, better_ms = ms(fitted, [other, on_better])
    assert better_ms < 1.05 * lesser_ms
    assert lesser_ms > 1.05 * ms(latency(), [other])[0]


@pytest.mark.parametrize("precision", ["amp", "fp32"])
@pytest.mark.parametrize("software", RUNTIMES, ids=lambda s: s.runtime)
def test_latency_never_falls_with_a_batch_that_does_not_fill_the_device(
    software: Software, precision: str
) -> None:
    for device in (TRAINING_GPUS[0], STRANGER):
        queries = [ask(device, 24, 3, batch, software, precision) for batch in (1, 2, 3, 4, 6, 8)]
        assert (np.diff(ms(latency(), queries)) >= -1e-9).all()


def test_between_powers_of_two_the_answer_is_between_theirs() -> None:
    filled = [ask(TRAINING_GPUS[0], 128, 6, batch, EAGER) for batch in (512, 768, 1024)]
    low, between, high = ms(latency(), filled)
    assert low < between < high


def test_a_runtime_is_never_ignored() -> None:
    for precision in ("amp", "fp32"):
        for batch in (1, 64):
            eager, compiled, recorded = ms(
                latency(),
                [ask(STRANGER, 48, 3, batch, s, precision) for s in (EAGER, COMPILED, RECORDED)],
            )
            assert eager != compiled
            assert recorded < compiled


def measured(queries: list[Query], factor: float) -> Measurements:
    n = len(queries)
    groups = {"device": np.full(n, "x"), "family": np.array([str(i % 5) for i in range(n)])}
    return Measurements(queries, {"latency_ms": factor * ms(latency(), queries)}, groups)


def small(device: object = STRANGER) -> list[Query]:
    return [ask(device, w, d, 1, EAGER) for w in (16, 24) for d in (1, 3, 6)]  # type: ignore[arg-type]


def large(device: object = STRANGER) -> list[Query]:
    return [ask(device, w, d, 2048, EAGER) for w in (48, 64, 100) for d in (1, 3, 6)]  # type: ignore[arg-type]


def test_rows_at_small_batches_move_the_host_and_not_the_device() -> None:
    adapted = latency().adapt(measured(small(), 1.3))
    before, after = (times_of(p, [*small(), *large()]) for p in (latency(), adapted))
    np.testing.assert_allclose(after.device.seconds, before.device.seconds, rtol=1e-12)
    assert (after.host > 1.15 * before.host).all()
    assert adapted.host.effects
    np.testing.assert_allclose(
        ms(adapted, small(TRAINING_GPUS[0])), ms(latency(), small(TRAINING_GPUS[0])), rtol=1e-12
    )


def test_rows_at_large_batches_move_the_device_and_not_the_host() -> None:
    adapted = latency().adapt(measured(large(), 1.4))
    before, after = (times_of(p, [*small(), *large()]) for p in (latency(), adapted))
    np.testing.assert_array_equal(after.host, before.host)
    assert not adapted.host.effects
    np.testing.assert_allclose(ms(adapted, large()), 1.4 * ms(latency(), large()), rtol=0.1)


def test_times_that_no_host_takes_move_neither_host_nor_law() -> None:
    """A hundred times a plausible host time is a device time or a mistake."""
    rows = measured(small(), 100.0)
    assert latency()._host_bound(rows)[0].sum() == 0
    np.testing.assert_array_equal(latency().fit(rows).host.mean, HostTime().mean)


def test_fitting_finds_the_host_and_its_intervals_hold_their_rows() -> None:
    rows = measured([*small(), *large()], 1.25)
    found = latency().fit(rows)
    assert (found.host.seconds(small())[0] > HostTime().seconds(small())[0]).all()
    answer = found.predict(rows.queries)
    inside = (answer.low["latency_ms"] <= rows.values["latency_ms"]) & (
        rows.values["latency_ms"] <= answer.high["latency_ms"]
    )
    assert inside.mean() >= 0.8
    assert all(width > 0 for width in found.widths)


def test_the_group_of_hosts_says_which_rows_share_one() -> None:
    rows = measured([*small(), *small(TRAINING_GPUS[0])], 1.2)
    rows = replace(rows, groups={**rows.groups, "host": np.array(["a"] * 6 + ["b"] * 6)})
    one = replace(rows, groups={**rows.groups, "host": np.full(12, "a")})
    two, alone = (latency().fit(own).host.covariance[0, 0] for own in (rows, one))
    assert two < alone


def test_rows_without_a_time_say_nothing() -> None:
    rows = measured(small(), 1.3)
    values = rows.values["latency_ms"].copy()
    values[:3] = (np.nan, 0.0, -1.0)
    adapted = latency().adapt(replace(rows, values={"latency_ms": values}))
    alone = latency().adapt(rows.take(range(3, 6)))
    np.testing.assert_array_equal(ms(adapted, small()), ms(alone, small()))


def test_kernels_and_networks_on_processors_adapt_and_answer_without_a_host() -> None:
    kernels = [Query(Kernel(kernel(1024 * i, 512)), STRANGER) for i in range(1, 6)]
    before = ms(latency(), kernels)
    rows = Measurements(kernels, {"latency_ms": 2.0 * before})
    adapted = latency().adapt(rows)
    assert (np.abs(np.log(ms(adapted, kernels) / before / 2.0)) < 0.2).all()
    assert not adapted.host.effects


def test_what_published_tables_say_can_be_forgotten() -> None:
    found = latency().adapt(measured([*small(), *large()], 1.5))
    plain = replace(found, widths=(3.0, 2.0)).without_published()
    np.testing.assert_array_equal(ms(plain, networks()), ms(latency(), networks()))
    assert plain.widths == (1.0, 1.0)


def test_suggestions_reach_every_query_whichever_part_answers_it() -> None:
    queries = [*networks()[:4], Query(Network(networks()[0].workload.graph, 8, "int8"), STRANGER)]  # type: ignore[union-attr]
    assert sorted(latency().suggest(queries, len(queries))) == list(range(len(queries)))


def test_groups_weigh_alike_whatever_their_rows() -> None:
    """One row of a family has the weight of ninety-nine rows of another."""
    scores = np.concatenate([np.full(99, 1.5), [2.0]])
    groups = np.array(["a"] * 99 + ["b"])
    assert _at_least_one(scores, groups) == 2.0
    assert _at_least_one(scores, np.array([str(i) for i in range(100)])) == 1.5
    assert _at_least_one(0.1 * scores, groups) == 1.0
    assert _at_least_one(np.zeros(0), np.zeros(0, dtype=np.str_)) == 1.0


def test_a_smaller_batch_is_less_certain_than_one_that_fills_the_device() -> None:
    times = times_of(latency(), [ask(STRANGER, 48, 3, batch, EAGER) for batch in (1, 8, 64)])
    assert (np.diff(times.device.high) < 0).all()
