"""DeviceTime fulfils the contract of predictors and recovers the times of synthetic kernels."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Kernel, Network, TrainingSetup
from forerun.features.kernels.rows import KernelRows
from forerun.models.contract import PredictorContract
from forerun.models.networks.device_time import BY_OPERATORS, DeviceTime


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


def operator(rows: int, columns: int, is_product: bool = True) -> Operator:
    """A layer of as many inputs as outputs, or an elementwise function."""
    shape = (rows, columns)
    if is_product:
        return Operator("linear", "aten.linear", (shape,), (shape,), columns * columns)
    return Operator("elementwise", "aten.relu", (shape,), (shape,), 0, {"function": "relu"})


def kernel(device: Device, rows: int, columns: int, is_product: bool = True) -> Query:
    """A single operator in fp16."""
    return Query(Kernel(operator(rows, columns, is_product), "fp16"), device, RUNTIMES[0])


def clean_ms(queries: Sequence[Query]) -> np.ndarray:
    """Kernels reach 60 % of their peak and 80 % of the bandwidth, and take 2 microseconds more."""
    rows = KernelRows.of(queries)
    each = np.hypot(rows.compute_s / 0.6, rows.memory_s / 0.8) + 2e-6
    return 1e3 * np.bincount(rows.owner, weights=each * rows.count, minlength=len(queries))


@cache
def training_measurements() -> Measurements:
    """Networks and operators on two GPUs, with 8 % of noise."""
    networks = [
        ask(device, w, d, batch, software)
        for device in TRAINING_GPUS
        for w, d in SIZES
        for batch in (8, 64, 256)
        for software in RUNTIMES
    ]
    sizes = [(rows, columns) for rows in (512, 4096, 65536) for columns in (64, 256, 1024)]
    operators = [
        kernel(device, *size, is_product)
        for device in TRAINING_GPUS
        for size in sizes
        for is_product in (True, False)
    ]
    queries = [*networks, *operators]
    noise = np.random.default_rng(3).normal(0.0, 0.08, len(queries))
    names = [f"{w}-{d}" for _ in TRAINING_GPUS for w, d in SIZES for _ in range(6)]
    shapes = [str(query.run) for query in operators]
    return Measurements(
        queries,
        {"latency_ms": clean_ms(queries) * np.exp(noise)},
        {
            "device": np.array([q.device.name for q in queries]),
            "family": np.array([*names, *(["operator"] * len(shapes))]),
            "model": np.array([*names, *shapes]),
        },
    )


def fitted(calibrated: bool = True) -> DeviceTime:
    return DeviceTime(epochs=10, trees=10, calibrated=calibrated).fit(training_measurements())


@cache
def once() -> DeviceTime:
    return fitted()


def ms(predictor: DeviceTime, queries: Sequence[Query]) -> np.ndarray:
    return predictor.predict(queries).values["latency_ms"]


class TestDeviceTime(PredictorContract):
    make = staticmethod(once)
    training_rows = staticmethod(training_measurements)

    def queries(self) -> list[Query]:
        return [
            ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0]),
            ask(TRAINING_GPUS[1], 64, 4, 100, RUNTIMES[1], "bf16"),
            ask(STRANGER, 128, 3, 64, RUNTIMES[1]),
            ask(STRANGER, 24, 1, 1, RUNTIMES[0], "fp16"),
            kernel(TRAINING_GPUS[0], 2048, 512),
        ]


def test_times_of_kernels_carry_over_to_another_device() -> None:
    queries = [ask(STRANGER, w, d, 128, RUNTIMES[0]) for w, d in ((32, 2), (80, 5), (128, 4))]
    np.testing.assert_allclose(ms(once(), queries), clean_ms(queries), rtol=0.1)


def test_it_answers_networks_on_kinds_of_devices_and_operators_on_devices_of_training() -> None:
    known = ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0])
    assert once().answers(known)
    assert once().answers(replace(known, device=STRANGER))
    assert once().answers(kernel(TRAINING_GPUS[0], 64, 64))
    assert not once().answers(kernel(STRANGER, 64, 64))
    cpu = TRAINING_GPUS[0].model_copy(update={"kind": "cpu"})
    assert not once().answers(replace(known, device=cpu))
    assert not DeviceTime().answers(known)


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
    assert lines(kernel(TRAINING_GPUS[0], 2048, 512)) == ""
    for workload, said in (
        (replace(inside.network, precision="fp32"), "inference in fp32"),
        (replace(inside.network, phase="training"), "training in amp"),
    ):
        assert f"{said} is not in the training set" in lines(replace(inside, workload=workload))
    assert "onnxruntime" in lines(replace(inside, software=Software(runtime="onnxruntime")))
    products = OperatorGraph(tuple(operator(512, 1024) for _ in range(9)), source="torch_export")
    far = replace(inside, workload=Network(products, 64, "amp"))
    assert "kernels differ from those of the training networks" in lines(far)
    assert "share of linear" in lines(far)
    blank = TRAINING_GPUS[0].model_copy(update={"l2_mib": None})
    assert "l2_mib" in lines(replace(inside, device=blank))
    mystery = Operator("unknown", "aten.mystery", ((1, 100),), ((1, 100),))
    graph = replace(network(64, 3), operators=(*network(64, 3).operators, mystery))
    odd = replace(inside, workload=Network(graph, 64, "amp"))
    assert "aten.mystery" in lines(odd)


@pytest.mark.parametrize("phase", ["inference", "training"])
def test_times_of_operators_are_those_that_the_sum_of_kernels_adds_up(phase: str) -> None:
    query = ask(TRAINING_GPUS[0], 48, 3, 64, RUNTIMES[0])
    setup = TrainingSetup(accumulation=2)
    run = replace(query.network, phase=phase, training=setup)  # type: ignore[arg-type]
    query = replace(query, workload=run)
    times = once().operator_times(query)
    whole = 1e3 * once().kernel_times.seconds([query])[0]
    assert sum(time.ms for time in times) == pytest.approx(whole, rel=1e-9)
    assert min(time.ms for time in times) > 0.0
    layer = "aten.conv2d kernel 3x3, 1x48x56x56 -> 1x48x56x56"
    counts = [time.count for time in times if time.label == layer and time.op_class == "conv"]
    assert counts == [3 if phase == "inference" else 6]
    labels = " ".join(time.label for time in times)
    assert ("gradient of the input of" in labels) == (phase == "training")


def test_adapting_halves_the_error_of_a_device_that_is_slow_as_a_whole() -> None:
    queries = [ask(STRANGER, w, d, 64, RUNTIMES[0]) for w, d in SIZES]
    slow = ms(once(), queries) * 1.5
    adapted = once().adapt(Measurements(queries, {"latency_ms": slow}))
    left = np.abs(np.log(ms(adapted, queries) / slow))
    assert left.max() < np.log(1.5) / 2


OPERATORS = [
    kernel(STRANGER, rows, columns, is_product)
    for rows in (64, 512, 4096, 32768, 65536)
    for columns in (64, 96, 256, 768, 1024, 2048)
    for is_product in (True, False)
]


def operator_ms(queries: Sequence[Query]) -> np.ndarray:
    """Times of operators on a GPU without training rows, which `DeviceTime` does not answer."""
    return once().kernel_times.seconds(queries) * 1e3


def with_operators(factor: float, launch_ms: float = 0.0) -> DeviceTime:
    times = factor * operator_ms(OPERATORS) + launch_ms
    return once().adapt(Measurements(OPERATORS, {"latency_ms": times}))


def on_stranger() -> list[Query]:
    return [ask(STRANGER, w, d, 64, software) for w, d in SIZES[3:9] for software in RUNTIMES]


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.2, 1.5])
def test_a_gpu_is_as_slow_in_networks_as_in_operators(factor: float) -> None:
    found = ms(with_operators(factor), on_stranger()) / ms(once(), on_stranger())
    np.testing.assert_allclose(np.median(found), factor, rtol=0.08)
    assert (np.abs(np.log(found / factor)) < 0.15).all()


def test_operators_alone_make_no_interval_narrow() -> None:
    found = with_operators(1.0).predict(on_stranger())
    reach = np.log(found.high["latency_ms"] / found.low["latency_ms"]) / 2
    assert (reach > BY_OPERATORS * 0.999).all()


def test_operators_of_one_gpu_move_no_answer_about_another() -> None:
    known = [ask(TRAINING_GPUS[0], 32, 2, 16, RUNTIMES[0]), kernel(TRAINING_GPUS[1], 2048, 512)]
    other = [ask(gpu("other", 2.0), 32, 2, 16, RUNTIMES[0])]
    adapted = with_operators(1.5)
    np.testing.assert_array_equal(ms(adapted, [*known, *other]), ms(once(), [*known, *other]))


def test_operators_of_a_gpu_of_training_give_it_no_layer_of_its_own() -> None:
    trained = [kernel(TRAINING_GPUS[0], 2048, columns) for columns in (64, 256, 1024)]
    adapted = once().adapt(Measurements(trained, {"latency_ms": 1.2 * ms(once(), trained)}))
    assert not adapted.kernel_times.own


def test_operators_that_were_timed_with_their_launch_do_not_lengthen_short_kernels() -> None:
    long = ms(with_operators(1.0, launch_ms=0.03), on_stranger())
    np.testing.assert_allclose(long, ms(once(), on_stranger()), rtol=0.15)


def test_operators_and_networks_of_a_new_gpu_are_used_together() -> None:
    networks = on_stranger()
    rows = Measurements(networks, {"latency_ms": 1.5 * ms(once(), networks)})
    operators = Measurements(OPERATORS, {"latency_ms": operator_ms(OPERATORS)})
    adapted = once().adapt(operators + rows)
    left = ms(adapted, networks) / rows.values["latency_ms"]
    np.testing.assert_allclose(left, 1.0, rtol=0.1)
    assert adapted.kernel_times.operators(STRANGER) == len(OPERATORS)


def test_what_was_learnt_of_operators_is_stored_and_can_be_forgotten(tmp_path: Path) -> None:
    adapted = with_operators(1.3)
    adapted.save(tmp_path)
    asked = on_stranger()
    np.testing.assert_array_equal(ms(DeviceTime.load(tmp_path), asked), ms(adapted, asked))
    np.testing.assert_array_equal(ms(adapted.unadapted(), asked), ms(once(), asked))


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
    unfitted = DeviceTime(epochs=2, trees=5, calibrated=False)
    query = [ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])]
    one, other = (ms(unfitted.fit(rows), query) for rows in (some, known.take(kept)))
    np.testing.assert_allclose(one, other)


def test_the_correction_learns_what_whole_networks_take_beyond_their_kernels() -> None:
    """Networks take twice as long as their kernels; too short a fit of these does not see it."""
    known = training_measurements()
    is_network = np.array([q.run.kind == "network" for q in known.queries])
    slow = replace(known, values={"latency_ms": 2.0 * known.values["latency_ms"]})
    found = DeviceTime(epochs=1, trees=60, calibrated=False).fit(slow.take(is_network))
    asked = known.take(is_network).queries
    assert np.median(ms(found, asked) / clean_ms(asked)) == pytest.approx(2.0, rel=0.05)
    assert np.median(1e3 * found.kernel_times.seconds(asked) / clean_ms(asked)) < 1.8


def test_operators_are_the_sums_of_their_kernels_without_a_correction() -> None:
    asked = [kernel(TRAINING_GPUS[0], 2048, 512), kernel(TRAINING_GPUS[1], 2048, 512, False)]
    np.testing.assert_allclose(ms(once(), asked), 1e3 * once().kernel_times.seconds(asked))


LSTM = Operator("recurrent", "aten.lstm", ((7, 2, 16),), ((7, 2, 32),), 4 * 32 * (16 + 32))


def with_lstm(query: Query) -> Query:
    """The network with a recurrent layer before its last operator."""
    *before, last = query.network.graph.operators
    layer = replace(LSTM, inputs=(len(before) - 1,))
    ops = (*before, layer, replace(last, inputs=(len(before),)))
    graph = replace(query.network.graph, operators=ops)
    return replace(query, workload=replace(query.network, graph=graph))


def test_recurrent_layers_add_the_time_of_their_law_to_that_of_the_rest() -> None:
    plain = ask(TRAINING_GPUS[0], 64, 3, 64, RUNTIMES[0])
    alone = replace(plain, workload=replace(plain.network, graph=OperatorGraph((LSTM,))))
    rest, whole, layer = once().predict([plain, with_lstm(plain), alone])
    assert set(layer.breakdown_ms) == {"recurrent"}
    own = layer.estimates["latency_ms"].value
    assert own > 0
    assert whole.estimates["latency_ms"].value == pytest.approx(
        rest.estimates["latency_ms"].value + own
    )
    assert whole.breakdown_ms["recurrent"] == pytest.approx(own)
    assert "recurrent" in " ".join(map(str, layer.limits))
