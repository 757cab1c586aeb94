"""Weights of single operators: how their elements are divided, counted by hand."""

import numpy as np
import pytest

from forerun.data.graph import Operator
from forerun.data.workload import TrainingSetup
from forerun.features.memory.allocator import (
    ACTIVATIONS,
    AFTER,
    BEFORE,
    GRADIENTS,
    OPTIMIZER,
    WEIGHTS,
    WITHIN,
    Requests,
)
from forerun.features.memory.weights import (
    Weight,
    device_shares,
    slot_bytes,
    step_copies,
    weights_of,
)


def weights(op: Operator, setup: TrainingSetup | None = None) -> list[tuple[int, int, bool]]:
    return [(w.elements, w.columns, w.adapter) for w in weights_of(op, setup, adapted=True)]


def linear(parameters: int) -> Operator:
    return Operator("linear", "aten.addmm", ((4, 10),), ((4, 6),), parameters)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (linear(60), [(60, 10, False)]),
        (linear(66), [(60, 10, False), (6, 0, False)]),
        (Operator("embedding", "aten.embedding", ((4,),), ((4, 8),), 800), [(800, 0, False)]),
        (Operator("linear", "aten.mm", ((4, 10),), (), 60), [(60, 0, False)]),
    ],
    ids=["matrix", "matrix and bias", "table", "without a known result"],
)
def test_a_matrix_its_bias_and_everything_else(op, expected):
    assert weights(op) == expected


def test_adapters_are_two_narrow_matrices():
    setup = TrainingSetup("adamw", lora_rank=4)
    assert weights(linear(60), setup) == [(60, 10, False), (40, 10, True), (24, 4, True)]


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Operator("batch_norm", "", ((2, 8, 4, 4),), ((2, 8, 4, 4),), 32), [8, 8, 16]),
        (Operator("layer_norm", "", ((2, 8),), ((2, 8),), 16), [8, 8]),
        (
            Operator("conv", "", ((2, 6, 4, 4),), ((2, 8, 4, 4),), 8 * 6 * 9 + 8,
                     {"kernel": (3, 3)}),
            [8 * 6 * 9, 8],
        ),
        (
            Operator("conv", "", ((2, 6, 4, 4),), ((2, 8, 4, 4),), 8 * 3 * 9 + 8,
                     {"kernel": (3, 3), "groups": 2}),
            [8 * 3 * 9, 8],
        ),
    ],
    ids=["norm with running statistics", "norm", "convolution", "convolution in groups"],
)  # fmt: skip
def test_weights_and_biases_of_other_layers(op, expected):
    assert [w.elements for w in weights_of(op)] == expected


def test_running_statistics_are_not_trained_and_nothing_else_is_under_adapters():
    norm = Operator("batch_norm", "", ((2, 8, 4, 4),), ((2, 8, 4, 4),), 32)
    assert [w.trained for w in weights_of(norm)] == [True, True, False]
    adapted = TrainingSetup("adamw", lora_rank=4)
    assert not any(w.trained for w in weights_of(norm, adapted))
    assert [w.trained for w in weights_of(linear(66), adapted)] == [False, False, True, True]
    assert len(list(weights_of(linear(66), adapted, adapted=False))) == 2


MATRIX = Weight(4096 * 4096, 4096)


@pytest.mark.parametrize(
    ("optimizer", "bytes_per_element"),
    [
        ("none", 0.0),
        ("sgd", 0.0),
        ("momentum", 4.0),
        ("adam", 8.0),
        ("adamw", 8.0),
        # bitsandbytes: two moments of a byte, four bytes for 256 of each.
        ("adam8bit", 2 * (1 + 4 / 256)),
        # torchao: two moments of half a byte, four bytes for 128 of each.
        ("adam4bit", 2 * (0.5 + 4 / 128)),
        # Shazeer and Stern 2018: a row and a column of sums.
        ("adafactor", 4 * 2 * 4096 / 4096**2),
    ],
)
def test_an_optimizer_keeps_as_many_bytes_as_published(optimizer, bytes_per_element):
    kept = sum(slot_bytes(MATRIX, optimizer))
    assert kept / MATRIX.elements == pytest.approx(bytes_per_element)


def test_small_and_shared_and_frozen_tensors_are_exceptions():
    """Of bitsandbytes: it keeps 32 bits below 4,096 elements; Adafactor does not factor vectors."""
    assert sum(slot_bytes(Weight(4095), "adam8bit")) == 8 * 4095
    assert sum(slot_bytes(Weight(4096), "adam8bit")) == 2 * (4096 + 16 * 4)
    assert sum(slot_bytes(Weight(4097), "adam8bit")) == 2 * (4097 + 17 * 4)
    assert slot_bytes(Weight(100), "adafactor") == (400.0,)
    assert sum(slot_bytes(Weight(100, 20), "adafactor")) == 4 * (5 + 20)
    assert slot_bytes(Weight(100, trained=False), "adamw") == ()
    assert slot_bytes(Weight(100, owner=(0, 0)), "adamw") == ()
    assert slot_bytes(Weight(100, item=2.0), "adamw") == (200.0, 200.0)


def test_a_step_copies_what_its_kernels_need_at_once():
    """One root of all second moments (foreach), two copies of the largest weight (Adafactor)."""
    known = [Weight(100), Weight(300), Weight(1000, trained=False), Weight(500, owner=(0, 0))]
    foreach = TrainingSetup("adamw", optimizer_kernel="foreach")
    assert list(step_copies(known, foreach)) == [400.0, 1200.0]
    assert list(step_copies(known, TrainingSetup("adamw", optimizer_kernel="fused"))) == []
    assert list(step_copies(known, TrainingSetup("adafactor"))) == [1200.0, 1200.0]
    assert list(step_copies(known[2:], TrainingSetup("adafactor"))) == []
    assert list(step_copies(known, TrainingSetup("sgd", optimizer_kernel="foreach"))) == []


CATEGORIES = (WEIGHTS, GRADIENTS, OPTIMIZER, ACTIVATIONS)


def shares(stage=0, place=WITHIN, divided=False, **setup):
    """The part of weights, gradients, optimizer slots and activations on one device."""
    n = len(CATEGORIES)
    asked = Requests(
        np.arange(n), np.ones(n), np.ones(n), np.array(CATEGORIES), np.full(n, divided),
        np.full(n, place),
    )  # fmt: skip
    return device_shares(asked, TrainingSetup("adamw", **setup), stage).tolist()


@pytest.mark.parametrize(
    ("level", "expected"),
    [(0, [1, 1, 1, 1]), (1, [1, 1, 0.25, 1]), (2, [1, 0.25, 0.25, 1]), (3, [0.25] * 3 + [1])],
)
def test_zero_divides_slots_then_gradients_then_weights(level, expected):
    assert shares(zero_stage=level, data_parallel=4) == expected


def test_tensor_parallelism_divides_what_it_can():
    assert shares(divided=True, tensor_parallel=2) == [0.5] * 4
    assert shares(divided=False, tensor_parallel=2) == [1.0] * 4


def test_a_pipeline_divides_blocks_and_keeps_as_many_micro_batches_as_stages_follow():
    """One forward and one backward in turn: the first of 4 stages keeps 4, the last one."""
    kept = [shares(stage, pipeline_parallel=4, accumulation=8) for stage in range(4)]
    assert [row[3] for row in kept] == [4 / 4, 3 / 4, 2 / 4, 1 / 4]
    assert all(row[:3] == [0.25] * 3 for row in kept)
    assert shares(0, pipeline_parallel=4, accumulation=2)[3] == 2 / 4


def test_what_stands_before_and_after_the_blocks_is_on_the_first_and_the_last_stage():
    first, last = (
        [shares(stage, place, pipeline_parallel=3, accumulation=1)[0] for stage in range(3)]
        for place in (BEFORE, AFTER)
    )
    assert first == [1.0, 0.0, 0.0]
    assert last == [0.0, 0.0, 1.0]
