"""NetworkBoost fulfils the contract of predictors and recovers an additive world."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network
from forerun.models.contract import PredictorContract
from forerun.models.gradient_boosting import BoosterBag
from forerun.models.networks.additive_model import COLUMNS, AdditiveLatencyModel
from forerun.models.networks.booster import NetworkBoost
from forerun.models.networks.features import NetworkRows, TrainingRows


def gpu(name: str, speed: float) -> Device:
    return Device(
        name=name,
        vendor="nobody",
        kind="gpu",
        memory_bandwidth_gbs=900.0 * speed,
        peak_tflops={"fp32": 30.0 * speed, "fp16": 60.0 * speed},
        compute_units=int(80 * speed),
        l2_mib=32.0,
        boost_clock_mhz=1700.0,
        tdp_w=400.0,
        process_nm=5.0,
    )


TRAINING_GPUS = (gpu("small", 1.0), gpu("large", 1.8))
STRANGER = gpu("stranger", 3.0)
RUNTIMES = (Software(version="2.4.0"), Software(version="2.4.0", runtime="compiled"))


@cache
def network(width: int, depth: int) -> OperatorGraph:
    """A small convolutional network with a head."""
    image, shape = (1, 3, 56, 56), (1, width, 56, 56)
    attributes = {"kernel": (3, 3), "stride": (1, 1), "groups": 1}
    ops = [Operator("conv", "aten.conv2d", (image,), (shape,), width * 27, attributes)]
    for _ in range(depth):
        at = len(ops) - 1
        ops += [
            Operator("batch_norm", "aten.batch_norm", (shape,), (shape,), 4 * width, {}, (at,)),
            Operator(
                "elementwise", "aten.relu", (shape,), (shape,), 0, {"function": "relu"}, (at + 1,)
            ),
            Operator(
                "conv", "aten.conv2d", (shape,), (shape,), width * width * 9, attributes, (at + 2,)
            ),
        ]
    last = len(ops) - 1
    ops.append(Operator("reduce", "aten.mean", (shape,), ((1, width),), 0, {}, (last,)))
    ops.append(
        Operator("linear", "aten.linear", ((1, width),), ((1, 100),), width * 100, {}, (last + 1,))
    )
    return OperatorGraph(tuple(ops), source="torch_export")


def ask(
    device: Device, width: int, depth: int, batch: int, software: Software, precision: str = "amp"
) -> Query:
    workload = Network(network(width, depth), batch, precision)  # type: ignore[arg-type]
    return Query(workload, device, software)


SIZES = [(w, d) for w in (16, 24, 48, 64, 100, 128) for d in (1, 3, 6)]


def truth_ms(queries: Sequence[Query]) -> np.ndarray:
    """Synthetic latencies: additive kernel times with 8 % noise."""
    rows = NetworkRows.of(queries)
    seconds = rows.design_matrix @ np.full(len(COLUMNS), 0.8)
    noise = np.random.default_rng(3).normal(0.0, 0.08, len(queries))
    return np.asarray(seconds * np.exp(noise) * 1e3)


@cache
def training_measurements() -> Measurements:
    queries = [
        ask(device, w, d, batch, software)
        for device in TRAINING_GPUS
        for w, d in SIZES
        for batch in (8, 64, 256)
        for software in RUNTIMES
    ]
    families = [f"{w}-{d}" for _ in TRAINING_GPUS for w, d in SIZES for _ in range(6)]
    return Measurements(
        queries,
        {"latency_ms": truth_ms(queries)},
        {
            "device": np.array([q.device.name for q in queries]),
            "family": np.array(families),
            "part": np.array([q.software.runtime for q in queries]),
        },
    )


def fitted(calibrated: bool = True) -> NetworkBoost:
    return NetworkBoost(trees=10, calibrated=calibrated).fit(training_measurements())


@cache
def once() -> NetworkBoost:
    return fitted()


class TestNetworkBoost(PredictorContract):
    def make(self) -> NetworkBoost:
        return once()

    def training_rows(self) -> Measurements:
        return training_measurements()

    def queries(self) -> list[Query]:
        return [
            ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0]),
            ask(TRAINING_GPUS[1], 64, 4, 100, RUNTIMES[1], "bf16"),
            ask(STRANGER, 128, 3, 64, RUNTIMES[1]),
            ask(STRANGER, 24, 1, 1, RUNTIMES[0], "fp16"),
        ]


def test_it_learns_an_additive_world_and_carries_it_to_another_device() -> None:
    queries = [ask(STRANGER, w, d, 128, RUNTIMES[0]) for w, d in ((32, 2), (80, 5), (128, 4))]
    clean = NetworkRows.of(queries).design_matrix @ np.full(len(COLUMNS), 0.8) * 1e3
    found = once().predict(queries).values["latency_ms"]
    np.testing.assert_allclose(found, clean, rtol=0.2)


def test_it_refuses_what_was_never_measured() -> None:
    boost, known = once(), ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0])
    assert boost.answers(known)
    assert boost.answers(ask(STRANGER, 32, 2, 16, RUNTIMES[0], "fp16"))
    assert not boost.answers(ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0], "fp32"))
    assert not boost.answers(ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0], "int8"))
    assert not boost.answers(Query(replace(known.workload, phase="training"), TRAINING_GPUS[0]))
    backward = replace(network(32, 2), training=True)
    assert not boost.answers(Query(replace(known.workload, graph=backward), TRAINING_GPUS[0]))
    cpu = TRAINING_GPUS[0].model_copy(update={"kind": "cpu"})
    assert not boost.answers(replace(known, device=cpu))
    assert not boost.answers(Query(Kernel(network(32, 2).operators[0], "amp"), TRAINING_GPUS[0]))
    assert not NetworkBoost().answers(known)


def test_an_unseen_device_gets_a_wider_interval() -> None:
    twin = TRAINING_GPUS[0].model_copy(update={"memory_bandwidth_gbs": 1000.0})
    seen, unseen = (
        once().predict([ask(device, 64, 3, 64, RUNTIMES[0])])[0].estimates["latency_ms"]
        for device in (TRAINING_GPUS[0], twin)
    )
    assert seen.low and seen.high and unseen.low and unseen.high
    assert unseen.high / unseen.low > seen.high / seen.low
    assert seen.coverage == 0.9


def test_limits_name_what_left_the_training_range() -> None:
    def lines(query: Query) -> str:
        return "\n".join(map(str, once().predict([query])[0].limits))

    inside = ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])
    assert lines(inside) == ""
    assert lines(ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0], "fp16")) == ""
    assert "inference in fp32 is not in the training set" in lines(
        ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0], "fp32")
    )
    assert "onnxruntime" in lines(replace(inside, software=Software(runtime="onnxruntime")))
    far = lines(ask(TRAINING_GPUS[0], 64, 3, 60000, RUNTIMES[0]))
    assert "kernels are unlike those of the training networks" in far
    blank = TRAINING_GPUS[0].model_copy(update={"l2_mib": None})
    assert "l2_mib" in lines(replace(inside, device=blank))
    mystery = Operator("unknown", "aten.mystery", ((1, 100),), ((1, 100),))
    graph = replace(network(64, 3), operators=(*network(64, 3).operators, mystery))
    odd = replace(inside, workload=Network(graph, 64, "amp"))
    assert "aten.mystery" in lines(odd)


def test_the_breakdown_adds_up_to_the_answer() -> None:
    answer = once().predict([ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])])[0]
    assert sum(answer.breakdown_ms.values()) == pytest.approx(answer.estimates["latency_ms"].value)
    assert max(answer.breakdown_ms, key=lambda name: answer.breakdown_ms[name]) == "conv"


def test_adapting_halves_the_error_of_a_device_that_is_slow_as_a_whole() -> None:
    queries = [ask(STRANGER, w, d, 64, RUNTIMES[0]) for w, d in SIZES]
    slow = once().predict(queries).values["latency_ms"] * 1.5
    adapted = once().adapt(Measurements(queries, {"latency_ms": slow}))
    left = np.abs(np.log(adapted.predict(queries).values["latency_ms"] / slow))
    assert left.max() < np.log(1.5) / 2


def test_rows_without_a_latency_or_a_weight_are_left_out() -> None:
    known = training_measurements()
    spoilt = known.values["latency_ms"].copy()
    spoilt[::7] *= 100.0
    spoilt[::5] = np.nan
    weights = np.ones(len(known))
    weights[::7] = 0.0
    kept = np.ones(len(known), dtype=bool)
    kept[::7] = kept[::5] = False
    some = replace(known, values={"latency_ms": spoilt}, weights=weights)
    boost = NetworkBoost(trees=5, calibrated=False)
    query = [ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])]
    one, other = (boost.fit(m).predict(query).values for m in (some, known.take(kept)))
    np.testing.assert_allclose(one["latency_ms"], other["latency_ms"])


def test_additive_times_are_found_again_where_each_kind_stands_alone() -> None:
    """With one kind of kernel in each row, the fitted coefficients are near the true ones."""
    rng = np.random.default_rng(0)
    design_matrix = np.zeros((400, len(COLUMNS)))
    columns = [COLUMNS.index("compute:conv/2/2/0"), COLUMNS.index("memory:relu")]
    for row in range(400):
        design_matrix[row, columns[row % 2]] = rng.uniform(1e-4, 1e-2)
    truth = np.where(np.arange(400) % 2 == 0, 1.6, 1.2)
    times = AdditiveLatencyModel.fit(
        design_matrix, np.log(design_matrix.sum(axis=1) * truth), ["eager"] * 400
    )
    found = np.exp(times.logs["eager"][columns])
    np.testing.assert_allclose(found, (1.6, 1.2), rtol=0.02)


def test_modes_without_rows_take_the_coefficients_of_their_parent() -> None:
    design_matrix = np.abs(np.random.default_rng(0).normal(size=(60, len(COLUMNS)))) * 1e-4
    times = AdditiveLatencyModel.fit(
        design_matrix, np.log(design_matrix.sum(axis=1) * 2), ["eager"] * 60
    )
    np.testing.assert_array_equal(times.logs["cpu"], times.logs["eager"])


def test_answers_are_neither_too_long_nor_too_short_on_the_median() -> None:
    """Networks between those of the training set, on its devices, against noise-free times."""
    queries = [
        ask(device, width, depth, batch, software)
        for device in TRAINING_GPUS
        for width in (20, 32, 80, 112)
        for depth in (2, 4, 5)
        for batch in (16, 100)
        for software in RUNTIMES
    ]
    clean = NetworkRows.of(queries).design_matrix @ np.full(len(COLUMNS), 0.8) * 1e3
    found = once().predict(queries).values["latency_ms"]
    assert np.median(found / clean) == pytest.approx(1.0, abs=0.02)


def test_rows_of_modes_that_few_people_run_count_less(monkeypatch) -> None:
    """Full weight is for mixed precision in eager and compiled runs, which protocols evaluate."""
    seen: dict[str, np.ndarray] = {}
    fit = BoosterBag.fit

    def noted(features, target, **how):  # type: ignore[no-untyped-def]
        seen["weights"] = how["weights"]
        return fit(features, target, **how)

    monkeypatch.setattr(BoosterBag, "fit", noted)
    known = training_measurements()
    odd = np.arange(len(known)) % 3 == 0
    queries = [
        replace(q, workload=replace(q.workload, precision="fp16")) if strange else q
        for q, strange in zip(known.queries, odd, strict=True)
    ]
    NetworkBoost(trees=2, calibrated=False).fit(replace(known, queries=queries))
    equal = TrainingRows.of(replace(known, queries=queries)).weights
    share = seen["weights"] / equal
    assert share[odd].max() < 0.75 * share[~odd].min()
    assert share[odd].min() > 0.0
