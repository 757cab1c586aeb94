"""NetworkLatency: the contract of predictors, and adaptation by small and by large batches."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network, TrainingSetup
from forerun.models.contract import PredictorContract
from forerun.models.kernel_experts.operators import OperatorBoost
from forerun.models.networks.host_time import HostTime
from forerun.models.networks.latency import OVERLAP, NetworkLatency, _at_least_one, _joined
from forerun.models.prediction import Predictions
from tests.models.judged import inside
from tests.models.networks.test_device_time import (
    RUNTIMES,
    STRANGER,
    TRAINING_GPUS,
    ask,
    kernel,
    once,
    operator,
)

EAGER, COMPILED = RUNTIMES
RECORDED = Software(version="2.4.0", runtime="reduce-overhead")


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
            one = operator(64 * rows, columns) if random.random() < 0.5 else relu
            queries.append(Query(Kernel(one), device))
    bound = Roofline().predict(queries).values["latency_ms"]
    values = {"latency_ms": 1.5 * bound + 0.005}
    groups = {"device": np.array([q.device.name for q in queries])}
    return OperatorBoost(trees=10).fit(Measurements(queries, values, groups))


@cache
def latency() -> NetworkLatency:
    return NetworkLatency(device=once(), operators=operators())


def networks(batches: Sequence[int] = (1, 64, 256)) -> list[Query]:
    return [
        ask(device, 48, 3, batch, software, precision)
        for device in (TRAINING_GPUS[0], STRANGER)
        for batch in batches
        for software in RUNTIMES
        for precision in ("amp", "fp32")
    ]


class TestNetworkLatency(PredictorContract):
    make = staticmethod(latency)

    def queries(self) -> Sequence[Query]:
        one = Kernel(operator(4096, 512))
        return [*networks(), kernel(TRAINING_GPUS[0], 4096, 512), Query(one, STRANGER)]


class Times(NamedTuple):
    device: Predictions
    host: np.ndarray
    host_deviation: np.ndarray

    @property
    def device_s(self) -> np.ndarray:
        return self.device.values["latency_ms"] / 1e3


def times_of(predictor: NetworkLatency, queries: Sequence[Query]) -> Times:
    return Times(predictor._device_times(queries), *predictor.host.seconds(queries))


def of_one(device_s: float, host_s: float) -> Times:
    """A network whose device time is known to 20 %."""
    ends = (np.array([800.0 * device_s]), np.array([1250.0 * device_s]))
    device = Predictions.of_metric("latency_ms", np.array([1e3 * device_s]), ends, coverage=0.9)
    return Times(device, np.array([host_s]), np.array([0.1]))


def ms(predictor: NetworkLatency, queries: Sequence[Query]) -> np.ndarray:
    return predictor.predict(queries).values["latency_ms"]


def test_the_norm_is_between_the_longer_part_and_the_sum() -> None:
    queries = networks()
    times = times_of(latency(), queries)
    value = ms(latency(), queries) / 1e3
    assert (value >= np.maximum(times.device_s, times.host) * (1 - 1e-12)).all()
    assert (value <= (times.device_s + times.host) * (1 + 1e-12)).all()


def test_equal_parts_take_a_fifth_longer_than_either() -> None:
    assert _joined(*of_one(1.0, 1.0))[0][0] == pytest.approx(2 ** (1 / OVERLAP))
    assert 1.15 < 2 ** (1 / OVERLAP) < 1.25


def test_intervals_are_those_of_the_part_that_is_longer() -> None:
    value, low, high = _joined(*of_one(1.0, 1e-3))
    np.testing.assert_allclose([low / value, high / value], [[0.8], [1.25]], rtol=1e-3)
    value, low, high = _joined(*of_one(1e-3, 1.0))
    np.testing.assert_allclose(np.log(high / low) / 2, 1.645 * 0.1, rtol=1e-2)


def test_intervals_widen_by_the_factor_of_the_part_that_is_longer() -> None:
    for place, one in enumerate((of_one(1.0, 0.01), of_one(0.01, 1.0))):
        _, low, high = _joined(*one)
        widths = tuple(2.0 if i == place else 9.0 for i in range(2))
        value, wide_low, wide_high = _joined(*one, widths)  # type: ignore[arg-type]
        np.testing.assert_allclose(np.log(wide_high / value), 2 * np.log(high / value))
        np.testing.assert_allclose(np.log(wide_low / value), 2 * np.log(low / value))


def test_operators_come_from_the_device_time_where_they_trained_it() -> None:
    on_known, on_other = (
        replace(kernel(device, 4096, 512), workload=Kernel(operator(4096, 512), "fp16"))
        for device in (TRAINING_GPUS[0], STRANGER)
    )
    for query, part in ((on_known, once()), (on_other, operators())):
        np.testing.assert_array_equal(
            ms(latency(), [query]), part.predict([query]).values["latency_ms"]
        )
        (time,) = latency().operator_times(query)
        assert time.ms == part.operator_times(query)[0].ms


def test_large_batches_are_the_device_and_batch_one_is_the_host() -> None:
    large, small = (
        ask(TRAINING_GPUS[0], 128, 6, 4096, EAGER),
        ask(TRAINING_GPUS[0], 16, 1, 1, EAGER),
    )
    times = times_of(latency(), [large, small])
    assert times.device_s[0] > 10 * times.host[0]
    assert times.host[1] > 3 * times.device_s[1]
    own = once().predict([large]).values["latency_ms"]
    assert ms(latency(), [large]) == pytest.approx(own, rel=1e-3)


@pytest.mark.parametrize("tf32", [None, 100.0])
def test_full_precision_is_a_sum_of_operators_unless_convolutions_run_on_tf32_units(
    tf32: float | None,
) -> None:
    peaks = STRANGER.peak_tflops | ({} if tf32 is None else {"tf32": tf32})
    device = Device.model_validate({**STRANGER.model_dump(), "peak_tflops": peaks})
    query = ask(device, 128, 6, 4096, EAGER, "fp32")
    part = operators() if tf32 is None else once()
    own = part.predict([query]).values["latency_ms"]
    assert ms(latency(), [query]) == pytest.approx(own, rel=1e-3)
    assert latency().operator_times(query) == part.operator_times(query)


def test_full_precision_on_a_gpu_of_training_is_that_of_its_networks() -> None:
    query = ask(TRAINING_GPUS[0], 128, 6, 4096, EAGER, "fp32")
    own = once().predict([query]).values["latency_ms"]
    assert ms(latency(), [query]) == pytest.approx(own, rel=1e-3)


def test_a_runtime_is_never_ignored() -> None:
    for precision in ("amp", "fp32"):
        for batch in (1, 64):
            eager, compiled, recorded = ms(
                latency(),
                [ask(STRANGER, 48, 3, batch, s, precision) for s in (EAGER, COMPILED, RECORDED)],
            )
            assert eager != compiled
            assert recorded < compiled


@pytest.mark.parametrize("batch", [1, 64, 4096])
def test_a_fused_run_takes_no_longer_than_the_eager_one(batch: int) -> None:
    """Nor do the ends of the interval of its device time."""
    queries = [
        ask(STRANGER, 48, 3, batch, software, "fp32") for software in (EAGER, COMPILED, RECORDED)
    ]
    device, own = latency()._device_times(queries), once().predict(queries[1:])
    assert batch == 1 or (own.values["latency_ms"] > device.values["latency_ms"][0]).all()
    for side in (device.values, device.low, device.high):
        assert (side["latency_ms"][1:] <= side["latency_ms"][0]).all()
    found = ms(latency(), queries)
    assert (found[1:] <= found[0]).all()


def test_measured_fused_runs_are_not_bounded_by_eager_ones_of_other_gpus() -> None:
    queries = [ask(STRANGER, 48, 3, batch, COMPILED, "fp32") for batch in (256, 1024, 4096)]
    measured = 2.0 * ms(latency(), queries)
    adapted = latency().adapt(Measurements(queries, {"latency_ms": measured}, {}))
    np.testing.assert_allclose(ms(adapted, queries), measured, rtol=0.15)


def test_messages_of_data_parallel_devices_are_in_the_time() -> None:
    """More devices never shorten a step of the same batch on each, sharding all weights takes
    longer than reducing gradients, and the messages are a part of the breakdown.
    """
    one = replace(networks()[0].network, phase="training", training=TrainingSetup())
    ways = [TrainingSetup(data_parallel=count) for count in (1, 2, 8, 64)]
    ways.append(TrainingSetup(data_parallel=64, zero_stage=3))
    runs = [Query(replace(one, training=way), TRAINING_GPUS[0]) for way in ways]
    found = latency().predict(runs)
    times = found.values["latency_ms"]
    assert (np.diff(times) > 0.0).all()
    parts = [answer.breakdown_ms for answer in found]
    assert "messages" not in parts[0]
    assert parts[2]["messages"] == pytest.approx(times[2] - times[0])
    assert sum(parts[2].values()) == pytest.approx(times[2], rel=1e-6)


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
    np.testing.assert_allclose(after.device_s, before.device_s, rtol=1e-12)
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


def test_times_that_no_host_takes_do_not_move_the_host() -> None:
    """A hundred times a plausible host time is a device time or a mistake."""
    rows = measured(small(), 100.0)
    assert latency()._host_bound(rows)[0].sum() == 0
    np.testing.assert_array_equal(latency().fit(rows).host.mean, HostTime().mean)


def test_fitting_finds_the_host_and_its_intervals_hold_their_rows() -> None:
    rows = measured([*small(), *large()], 1.25)
    found = latency().fit(rows)
    assert (found.host.seconds(small())[0] > HostTime().seconds(small())[0]).all()
    assert inside(found.predict(rows.queries), rows).mean() >= 0.8
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


def test_operators_adapt_without_a_host() -> None:
    kernels = [Query(Kernel(operator(1024 * i, 512)), STRANGER) for i in range(1, 6)]
    before = ms(latency(), kernels)
    rows = Measurements(kernels, {"latency_ms": 2.0 * before})
    adapted = latency().adapt(rows)
    assert (np.abs(np.log(ms(adapted, kernels) / before / 2.0)) < 0.2).all()
    assert not adapted.host.effects


def test_networks_of_a_new_gpu_follow_its_operators() -> None:
    shapes = [(512 * i, 256 * j) for i in (1, 4, 16, 64) for j in (1, 2, 4)]
    kernels = [kernel(STRANGER, *one, product) for one in shapes for product in (True, False)]
    times = 1.5 * latency().device.kernel_times.seconds(kernels) * 1e3
    adapted = latency().adapt(Measurements(kernels, {"latency_ms": times}))
    networks = [ask(STRANGER, 48, 3, 256, software) for software in RUNTIMES]
    assert (ms(adapted, networks) > 1.2 * ms(latency(), networks)).all()
    known = [ask(TRAINING_GPUS[0], 48, 3, 256, software) for software in RUNTIMES]
    np.testing.assert_array_equal(ms(adapted, known), ms(latency(), known))


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
