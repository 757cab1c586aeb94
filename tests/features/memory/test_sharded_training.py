"""ZeRO's formulas, buffers of gathered blocks, stages of pipelines."""

from dataclasses import replace

import pytest

from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.plan import memory_plan
from tests.features.configurations import TOKENS, traced

DEVICES = 8
PLAIN = TrainingSetup("adam", optimizer_kernel="fused", dropout=0.0)


def plan(setup, batch=1, family="gpt2", tokens=TOKENS):
    return memory_plan(Network(traced(family, tokens=tokens), batch, "fp32", "training", setup))


@pytest.mark.parametrize(("stage", "divided"), [(0, ()), (1, (12,)), (2, (12, 4)), (3, (12, 4, 4))])
def test_states_follow_zero(stage, divided):
    """Weights, gradients and slots, each whole or a device's part (ZeRO, section 5).

    4, 4 and 8 bytes, and 4 of what a step makes of the slots, at which moment most is held.
    """
    step = replace(PLAIN, optimizer_kernel="foreach")
    parted = replace(step, data_parallel=DEVICES, zero_stage=stage)
    whole, found = (plan(one, family="bert", tokens=4) for one in (step, parted))
    elements = whole.parts["weights"] / 4
    states = sum(found.parts[name] for name in ("weights", "gradients", "optimizer"))
    expected = elements * (20 - sum(divided) * (1 - 1 / DEVICES))
    assert states == pytest.approx(expected, rel=0.02)


def test_stage_three_gathers_two_blocks_whole():
    third = plan(replace(PLAIN, data_parallel=DEVICES, zero_stage=3))
    assert "gathered" not in plan(replace(PLAIN, data_parallel=DEVICES, zero_stage=1)).parts
    graph = traced("gpt2")
    table = max(op.parameter_elements for op in graph.operators if op.kind == "embedding")
    layer = 12 * 64 * 64 + 13 * 64
    largest = max(table, layer) * 4 / 2**20
    assert third.parts["gathered"] == pytest.approx(3 * largest, rel=0.01)
    more_devices = plan(replace(PLAIN, data_parallel=64, zero_stage=3))
    assert more_devices.live > third.parts["gathered"]
    assert more_devices.parts["gathered"] == third.parts["gathered"]


def test_the_first_stage_holds_embeddings_and_as_many_micro_batches_as_there_are_stages():
    one = replace(PLAIN, optimizer="none")
    whole = plan(one, batch=256)
    piped = plan(replace(one, pipeline_parallel=3, accumulation=3), batch=3 * 256)
    graph = traced("gpt2")
    tables = sum(op.parameter_elements for op in graph.operators if op.kind == "embedding")
    assert piped.parts["weights"] > (whole.parts["weights"] - tables * 4 / 2**20) / 3
    # Three micro-batches of a third of the layers: nearly the activations of one whole pass.
    assert piped.parts["activations"] > 0.5 * whole.parts["activations"]
