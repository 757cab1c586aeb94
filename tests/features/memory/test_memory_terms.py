"""Terms of the memory plan in bytes counted by hand: layouts, unread weights, losses, shards."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.allocator import ACTIVATIONS, GRADIENTS, RequestLog, peaks
from forerun.features.memory.liveness import EAGER, Execution, Walk, inference_requests
from forerun.features.memory.plan import memory_plan
from forerun.features.memory.training_step import training_requests
from forerun.features.memory.weights import casts_when_gathered, reserved_by_stream
from tests.features.configurations import VOCABULARY, traced

SIDE, HALF = 32, 2
MIB = 2**20


def convolution(groups=1, kernel=(3, 3)):
    image = (1, 8, SIDE, SIDE)
    facts = {"kernel": kernel, "groups": groups}
    return OperatorGraph((Operator("conv", "c", (image,), (image,), 8 * 8 * 9, facts),))


def live_bytes(graph, precision, execution=EAGER):
    asked = inference_requests(graph, precision, execution=execution)
    return asked.live(asked.sizes(1.0)).max()


@pytest.mark.parametrize(
    ("graph", "precision", "execution", "copies"),
    [
        (convolution(), "fp16", EAGER, 1),
        (convolution(), "fp16", Execution(channels_last=True), 0),
        (convolution(), "fp32", EAGER, 0),
        (convolution(groups=8), "fp16", EAGER, 0),
        (convolution(kernel=(1, 1)), "fp16", EAGER, 0),
    ],
)
def test_sixteen_bit_convolutions_turn_their_input_and_result(graph, precision, execution, copies):
    item = 4 if precision == "fp32" else HALF
    image, weights = 8 * SIDE * SIDE * item, 8 * 8 * 9 * item
    assert live_bytes(graph, precision, execution) == weights + 2 * image * (1 + copies)


def test_weights_that_no_operator_reads_are_stored():
    graph = replace(convolution(), parameter_elements=8 * 8 * 9)
    more = replace(graph, parameter_elements=8 * 8 * 9 + 1000)
    for precision, item in (("fp32", 4), ("fp16", 2), ("amp", 4)):
        assert live_bytes(more, precision) - live_bytes(graph, precision) == 1000 * item
    plans = [memory_plan(Network(g, 1, "fp32", "training")) for g in (graph, more)]
    assert plans[0].parts["gradients"] == plans[1].parts["gradients"]


def loss_copies(setup, batch=512):
    """Most copies of the logits in 32 bits that one step holds at once, beyond all else."""
    graph = traced("gpt2")
    tokens = graph.operators[-1].output_shapes[0][1]
    asked = training_requests(graph, "bf16", setup)
    sizes = asked.sizes(float(batch))
    logits = batch * tokens * VOCABULARY * 4
    alive, held = asked.live(sizes), np.zeros(len(asked.events))
    freed = asked.events < 0
    tensors = np.where(freed, ~asked.events, asked.events)
    held = np.cumsum(np.where(sizes[tensors] == logits, np.where(freed, -1, 1), 0))
    assert len(alive) == len(held)
    return int(held.max())


def test_a_loss_holds_three_copies_of_its_logits_and_four_divided_by_vocabulary():
    """Logarithms, what is picked of them, their gradient; PyTorch's divided loss sums once more."""
    alone = TrainingSetup("none", dropout=0.0)
    assert loss_copies(alone) == 3
    assert loss_copies(replace(alone, tensor_parallel=2, sequence_parallel=True)) == 4


def test_gathered_weights_are_cast_and_so_is_all_that_follows():
    sharded = TrainingSetup("adamw", zero_stage=3, data_parallel=8)
    assert casts_when_gathered("amp_bf16", sharded)
    assert not casts_when_gathered("bf16", sharded)
    assert not casts_when_gathered("amp_bf16", replace(sharded, zero_stage=2))
    assert not casts_when_gathered("amp_bf16", None)
    graph = traced("gpt2")
    walk = Walk(graph, "amp_bf16", sharded)
    where: dict[int, int] = {}
    walk.forward(range(len(walk.graph)), where, {}, [])
    norms = [i for i, op in enumerate(walk.graph.operators) if op.kind == "layer_norm"]
    assert norms
    assert {walk.tape.items[where[i]] for i in norms} == {2.0}
    assert {w.item for w in walk.all_weights()} == {4.0}


def test_gradients_scattered_on_a_stream_of_their_own_are_reserved_apart():
    tape, size = RequestLog(), 20 * MIB
    tape.release(tape.new(size, 1.0, ACTIVATIONS, False))
    tape.new(size, 1.0, GRADIENTS, False)
    asked = tape.requests()
    sizes = asked.sizes(1.0)
    whole = sizes.astype(np.int64).tolist()
    # On one stream the gradient lies where the activation lay.
    assert peaks(asked.events.tolist(), whole).reserved == size
    assert reserved_by_stream(asked, sizes) == 2 * size


def test_sums_with_weights_in_32_bits_are_in_32_bits_under_autocast():
    row = (1, 4, 16)
    layer = Operator("linear", "l", (row,), (row,), 256)
    facts = {"function": "add"}
    table = Operator("elementwise", "add", (row,), (row,), 64, facts, (0,))
    walk = Walk(OperatorGraph((layer, table)), "amp", TrainingSetup("none"))
    where: dict[int, int] = {}
    walk.forward(range(2), where, {}, [])
    assert [walk.tape.items[where[i]] for i in (0, 1)] == [2.0, 4.0]
