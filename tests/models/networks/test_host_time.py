"""The mixed model of host time recovers synthetic hosts; adaptation changes one host only."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.models.networks.host_time import (
    FARTHEST,
    HOST_DEVIATION,
    NOISE_DEVIATION,
    TERMS,
    HostTime,
)
from tests.models.networks.test_device_time import gpu

SHAPE = (1, 64, 28, 28)


DEVICES = tuple(gpu(f"gpu-{i}", 1.0 + 0.2 * i) for i in range(8))


@cache
def chain(length, first="conv"):
    """A chain of alternating convolutions, or linear layers, and ReLUs."""
    conv = {"kernel": (1, 1), "stride": (1, 1), "groups": 1}
    ops = []
    for i in range(length):
        inputs = (i - 1,) if i else ()
        if i % 2:
            relu = {"function": "relu"}
            ops.append(Operator("elementwise", "aten.relu", (SHAPE,), (SHAPE,), 0, relu, inputs))
        else:
            name, attributes = ("aten.conv2d", conv) if first == "conv" else ("aten.linear", {})
            ops.append(Operator(first, name, (SHAPE,), (SHAPE,), 4096, attributes, inputs))
    return OperatorGraph(tuple(ops), source="torch_export")


MODES = (
    {},
    {"precision": "amp"},
    {"runtime": "compiled"},
    {"runtime": "reduce-overhead"},
    {"runtime": "tensorrt"},
    {"runtime": "torchscript"},
    {"phase": "training"},
    {"phase": "training", "first": "linear"},
    {"phase": "training", "optimizer": "none"},
    {"version": "1.13.0"},
)


def ask(
    device,
    length=20,
    precision="fp32",
    phase="inference",
    runtime="eager",
    version="2.4.0",
    batch=1,
    first="conv",
    optimizer="adamw",
):
    training = TrainingSetup(optimizer) if phase == "training" else None
    network = Network(chain(length, first), batch, precision, phase, training)
    software = Software(version=version, runtime=runtime)
    return Query(network, device, software)


TRUTH = np.log([45e-6, 28e-6, 0.1, 0.2, 0.8, 1.35, 3.0, 2.0, 0.6, 1.25])
"""Fixed effects of the synthetic model, in the order of `TERMS`."""


def synthetic(effects, seed=0):
    """Runs of every mode and length on one host for each effect, with noise between networks."""
    truth = HostTime(mean=TRUTH)
    queries, hosts, level = [], [], []
    for device, effect in zip(DEVICES, effects, strict=False):
        for length in (6, 20, 60, 150):
            for mode in MODES:
                queries.append(ask(device, length, **mode))
                hosts.append(device.name)
                level.append(effect)
    noise = np.random.default_rng(seed).normal(0.0, 0.05, len(queries))
    seconds = truth.seconds(queries)[0] * np.exp(np.array(level) + noise)
    return queries, seconds, hosts


EFFECTS = (-0.3, -0.2, -0.1, 0.0, 0.05, 0.15, 0.3, 0.1)


@cache
def fitted():
    return HostTime().fit(*synthetic(EFFECTS))


def test_the_coefficients_of_a_synthetic_law_are_recovered():
    # The mean of the random effects and the mean over modes are not identifiable separately.
    np.testing.assert_allclose(fitted().mean, TRUTH, atol=0.13)
    contrasts = fitted().mean[:2] - TRUTH[:2]
    assert contrasts[0] == pytest.approx(contrasts[1], abs=0.04)


def test_the_machine_of_a_table_leaves_no_effect_on_its_gpu():
    times = fitted().seconds([ask(device) for device in DEVICES])[0]
    np.testing.assert_array_equal(times, times[0])


def test_time_is_a_time_for_each_operator_in_eager_mode_whatever_the_batch():
    one, ten, large = fitted().seconds(
        [ask(DEVICES[0], 10), ask(DEVICES[0], 100), ask(DEVICES[0], 10, batch=512)]
    )[0]
    assert ten == pytest.approx(10 * one)
    assert large == one


def test_the_prior_orders_the_modes():
    """By the prior, engines and recorded launches take less host time than compiled networks."""
    for order in (["tensorrt", "reduce-overhead", "compiled"], ["torchscript", "eager"]):
        times = HostTime().seconds([ask(DEVICES[0], 60, runtime=r) for r in order])[0]
        assert (np.diff(times) > 0).all()
    eager, amp, training, frozen, old = HostTime().seconds(
        [ask(DEVICES[0], **MODES[at]) for at in (0, 1, 6, 8, 9)]
    )[0]
    assert amp / eager == pytest.approx(1.2)
    assert training / eager == pytest.approx(3.6)
    assert frozen / training == pytest.approx(0.7), "no weight is updated"
    assert old / eager == pytest.approx(1.4)


def test_products_cost_the_host_more_in_training_and_nothing_more_in_inference():
    modes = [("training", "linear"), ("training", "conv"), ("inference", "linear")]
    queries = [ask(DEVICES[0], phase=phase, first=first) for phase, first in modes]
    linear, conv, inference = HostTime().seconds(queries)[0]
    assert linear / conv == pytest.approx(np.exp(0.65 / 2))
    assert conv / inference == pytest.approx(3.6)


def test_what_runs_again_is_dispatched_again():
    """Micro-batches repeat the step, recomputation the forward pass, and adapters add operators."""
    plain = ask(DEVICES[0], phase="training", first="linear")

    def seconds(**setup):
        network = replace(plain.network, training=TrainingSetup(**setup))
        return float(HostTime().seconds([replace(plain, workload=network)])[0][0])

    assert seconds(accumulation=4) == pytest.approx(4 * seconds())
    assert seconds(checkpoint_blocks=True) == pytest.approx(seconds() * (1 + 1 / 3.6))
    own = (20 + 2.6 * 19) / 3.6  # the first layer, with an adapter, has no backward pass
    assert seconds(lora_rank=4) == pytest.approx(seconds() * (own + 2 * 10) / 20)
    assert seconds(lora_rank=64) == seconds(lora_rank=4)


def test_adapting_moves_that_host_alone():
    queries = [ask(DEVICES[0], length) for length in (6, 20, 60, 150)]
    others = [ask(DEVICES[1]), ask(DEVICES[0], version="1.13.0"), ask(gpu("other", 5.0))]
    expected = fitted().seconds(queries)[0]
    adapted = fitted().adapt(queries, 1.5 * expected)
    assert (adapted.seconds(queries)[0] > 1.15 * expected).all()
    np.testing.assert_allclose(adapted.seconds(others), fitted().seconds(others))
    np.testing.assert_array_equal(adapted.mean, fitted().mean)


def test_the_more_is_measured_the_nearer_the_host_comes_and_the_surer_it_is():
    law = fitted()
    target = ask(DEVICES[0], 40)
    errors, deviations = [], []
    for count in (1, 4, 16):
        queries = [ask(DEVICES[0], 10 + i) for i in range(count)]
        adapted = law.adapt(queries, 1.6 * law.seconds(queries)[0])
        value, deviation = adapted.seconds([target])
        errors.append(abs(np.log(value[0] / (1.6 * law.seconds([target])[0][0]))))
        deviations.append(deviation[0])
    assert errors == sorted(errors, reverse=True)
    assert deviations == sorted(deviations, reverse=True)
    assert errors[-1] < 0.02
    share = HOST_DEVIATION**2 / (HOST_DEVIATION**2 + NOISE_DEVIATION**2)
    assert errors[0] == pytest.approx((1 - share) * np.log(1.6))


def test_boards_of_one_sheet_are_one_host_in_any_order():
    """Rows of two devices with one sheet are pooled, in any order."""
    twin = DEVICES[0].model_copy(update={"name": "twin"})
    queries = [ask(DEVICES[0], 10), ask(twin, 10), ask(twin, 20)]
    seconds = np.array([1.2, 1.4, 1.4]) * fitted().seconds(queries)[0]
    one = fitted().adapt(queries, seconds)
    other = fitted().adapt(queries[::-1], seconds[::-1])
    alike = fitted().adapt([ask(DEVICES[0], n) for n in (10, 10, 20)], seconds)
    for found in (one, other):
        np.testing.assert_allclose(found.seconds(queries), alike.seconds(queries))


def test_a_host_reaches_as_far_as_its_own_spread_and_no_farther():
    law = HostTime(mean=TRUTH, covariance=np.zeros((len(TERMS),) * 2))
    reach = FARTHEST * np.hypot(HOST_DEVIATION, NOISE_DEVIATION)
    factors = np.exp(np.array([0.0, 0.99, -0.99, 1.01, -1.01]) * reach)
    queries = [ask(DEVICES[0])] * len(factors)
    times = law._without_effects(queries)[0]
    found = law.plausible(queries, np.exp(times) * factors)
    assert found.tolist() == [True, True, True, False, False]
    assert not law.plausible(queries[:1], np.zeros(1)).any()


def test_attention_in_steps_dispatches_its_products_apart():
    """Networks of transformers have 5 to 7 more operators for each attention in steps."""
    operands = ((1, 4, 8, 16),) * 3
    operator = Operator("attention", "aten.scaled_dot_product_attention", operands, operands[:1])
    graph = OperatorGraph((operator,), source="torch_export")
    asked = [
        Query(Network(graph, inference=InferenceSetup(attention=how)), DEVICES[0])
        for how in ("sdpa", "eager")
    ]
    fused, steps = HostTime().seconds(asked)[0]
    assert 6.0 <= steps / fused <= 8.0
