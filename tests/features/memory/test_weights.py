"""Terms of the memory of a run: weights, workspaces, and options that add nothing."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.named.networks import network_named
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.features.caches import GraphKey
from forerun.features.memory.allocator import ACTIVATIONS, GRADIENTS, RequestLog, peaks
from forerun.features.memory.inert_options import (
    NO_ATTENTION,
    NO_DROPOUT,
    NO_LOGITS,
    NO_TEXT,
    without_inert,
)
from forerun.features.memory.liveness import EAGER, Execution, Walk, inference_requests
from forerun.features.memory.plan import cublas_workspace_mib, memory_plan
from forerun.features.memory.training_step import training_requests
from forerun.features.memory.traits import OVER_RESERVED, TRAITS, network_sizes
from forerun.features.memory.weights import (
    NothingToAdapt,
    casts_when_gathered,
    graph_weights,
    parameters,
    reserved_by_stream,
)
from forerun.features.operators.adapters import head_of
from tests.devices import CATALOG
from tests.features.configurations import LAYERS, VOCABULARY, WIDTH, traced

# Weights are counted once, constants are none, and adapters stand where they are asked for.


LORA = TrainingSetup("adamw", lora_rank=4)


def elements(graph, setup=None):
    rows = graph_weights(graph, "fp32", setup)
    return [w for row in rows for w in row if w.owner is None]


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_weights_are_those_of_the_module(family):
    graph = traced(family)
    known = sum(w.elements for w in elements(graph))
    # Frequencies of rotary embeddings are held, but no parameters.
    assert known == pytest.approx(graph.parameter_elements, rel=2e-3)


def test_a_head_that_shares_the_embedding_has_one_gradient_and_one_pair_of_slots():
    graph = traced("llama")
    head = head_of(graph)
    assert graph.operators[head].output_shapes[0][-1] == VOCABULARY
    (shared,) = graph_weights(graph, "fp32")[head]
    assert graph.operators[shared.owner[0]].kind == "embedding"
    plan = memory_plan(Network(graph, 1, "fp32", "training", TrainingSetup("adamw")))
    assert plan.parts["optimizer"] <= 3.01 * plan.parts["weights"]
    assert plan.parts["gradients"] <= 1.01 * plan.parts["weights"]


def test_encoders_have_no_vocabulary_to_predict():
    assert head_of(traced("bert")) is None


@pytest.mark.parametrize(
    ("family", "targets", "layers"),
    [
        ("llama", "all_linear", 7),
        ("llama", "attention", 4),
        ("llama", "query_value", 2),
        ("gpt2", "all_linear", 4),
        ("gpt2", "attention", 2),
        ("gpt2", "query_value", 1),
    ],
)
def test_adapters_stand_where_they_are_asked_for(family, targets, layers):
    known = elements(traced(family), replace(LORA, lora_targets=targets))
    assert sum(w.adapter for w in known) == 2 * layers * LAYERS
    assert all(w.trained == w.adapter for w in known)


def test_query_and_value_are_the_right_ones():
    graph = traced("llama")
    rows = graph_weights(graph, "fp32", replace(LORA, lora_targets="query_value"))
    widths = [graph.operators[i].output_shapes[0][-1] for i, row in enumerate(rows) if len(row) > 1]
    assert widths == [WIDTH, WIDTH // 2] * LAYERS


def test_frozen_weights_of_four_bits_leave_embeddings_norms_and_head_alone():
    graph = traced("llama")
    setup = replace(LORA, frozen_weights="nf4", adapter_precision="fp32")
    rows = graph_weights(graph, "bf16", setup)
    frozen = {
        graph.operators[i].kind: {w.item for w in row if not w.adapter}
        for i, row in enumerate(rows)
        if row and i != head_of(graph)
    }
    assert frozen["embedding"] == {2.0}
    # QLoRA: 0.127 bits an element for scales after double quantisation.
    (linear,) = frozen["linear"]
    assert 8 * linear == pytest.approx(4.127, abs=1e-3)
    assert {w.item for row in rows for w in row if w.adapter} == {4.0}


def test_a_network_without_linear_layers_takes_no_adapters():
    shape = ((1, 3, 8, 8),)
    graph = OperatorGraph((Operator("conv", "conv", shape, shape, 81),))
    with pytest.raises(NothingToAdapt, match="lora_rank 4"):
        memory_plan(Network(graph, 1, "fp32", "training", LORA))


# Classes of convolutions and their sizes.


IMAGE, RESULT = (1, 8, 6, 6), (1, 16, 6, 6)
BOTH = 8 * 36 + 16 * 36


def sizes(factor: float = 1.0, result=RESULT, **attributes) -> dict[str, float]:
    """Sizes of a network of one convolution, in elements, by the name of the trait."""
    op = Operator("conv", "aten.convolution", (IMAGE,), (result,), attributes=attributes)
    found = network_sizes(GraphKey(OperatorGraph((op,))), factor, 1.0)
    names = OVER_RESERVED[OVER_RESERVED.index("grouped_largest") :]
    known = dict(zip(names, found.over_reserved, strict=True))
    assert len(found.shares) == len(TRAITS) - len(OVER_RESERVED)
    return {name: size for name, size in known.items() if size and name.endswith("_all")}


def test_plain_3_by_3_convolutions_may_be_unfolded_or_run_in_tiles():
    assert sizes(kernel=(3, 3), stride=(1, 1), groups=1) == {
        "spatial_all": BOTH,
        "unfolded_all": 8 * 9 * 36,
        "winograd_all": pytest.approx(BOTH * 36 / 16),
        "full_spatial_all": BOTH,
    }


def test_strided_convolutions_with_large_kernels_have_their_own_classes():
    result = (1, 16, 3, 3)
    both = 8 * 36 + 16 * 9
    assert sizes(result=result, kernel=(7, 7), stride=(2, 2), groups=1) == {
        "spatial_all": both,
        "unfolded_all": 8 * 49 * 9,
        "large_kernel_all": both,
        "strided_all": both,
        "full_spatial_all": both,
    }


def test_groups_of_several_channels_differ_from_depthwise_convolutions():
    assert sizes(kernel=(3, 3), stride=(1, 1), groups=4) == {
        "grouped_all": BOTH,
        "channel_groups_all": BOTH,
        "full_spatial_all": BOTH,
    }
    assert sizes(kernel=(3, 3), stride=(1, 1), groups=8) == {"grouped_all": BOTH}


def test_pointwise_convolutions_are_in_no_spatial_class():
    assert sizes(kernel=(1, 1), groups=1) == {"pointwise_all": BOTH}


# Terms of the memory plan in bytes counted by hand: layouts, unread weights, losses, shards.


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


# Workspaces of cuBLAS: bytes of PyTorch's default, one handle a thread.


BYTES = 8_519_680
A100 = CATALOG.get("a100")


def network(kind, phase="inference"):
    shape = ((1, 8),)
    return Network(OperatorGraph((Operator(kind, "x", shape, shape),)), 1, "fp32", phase)


@pytest.mark.parametrize(("phase", "handles"), [("inference", 1), ("training", 2)])
def test_each_thread_that_multiplies_matrices_has_one(phase, handles):
    assert cublas_workspace_mib(network("linear", phase), A100) * 2**20 == handles * BYTES


@pytest.mark.parametrize(
    ("device", "mib"), [("h200", 32), ("b200", 32), ("mi300x", 128), ("mi210", 32)]
)
def test_some_architectures_have_a_larger_one(device, mib):
    assert cublas_workspace_mib(network("linear"), CATALOG.get(device)) == mib


@pytest.mark.parametrize("kind", ["elementwise", "conv", "pool"])
def test_without_matrix_products_there_is_none(kind):
    assert cublas_workspace_mib(network(kind), A100) == 0.0


# Options of parts that a network does not have are left out, and what it lacks is known.


SHAPE = ((1, 8, 16, 16),)
CNN = OperatorGraph(
    (
        Operator("conv", "conv", SHAPE, SHAPE, 576, attributes={"kernel": (3, 3)}),
        Operator("elementwise", "relu", SHAPE, SHAPE, inputs=(0,)),
    )
)


def test_a_convolutional_network_ignores_options_of_transformers_that_generate_text():
    given = TrainingSetup("sgd", attention="eager", dropout=0.1, loss_chunks=8)
    bare, lacks = without_inert(Network(CNN, 4, "fp32", "training", given))
    assert bare.training == TrainingSetup("sgd")
    assert lacks == {
        NO_ATTENTION: ("attention",),
        NO_DROPOUT: ("dropout",),
        NO_LOGITS: ("loss_chunks",),
    }
    given = InferenceSetup("eager", "all", 64, "fp16", joined_cache=True)
    bare, lacks = without_inert(Network(CNN, 4, inference=given))
    assert bare.inference == InferenceSetup()
    assert lacks[NO_TEXT] == ("logits", "cache_tokens", "cache_precision", "joined_cache")


def test_a_network_that_has_the_parts_keeps_every_option():
    training = TrainingSetup(attention="eager", dropout=0.1, loss_chunks=8)
    network = Network(traced("gpt2"), 4, "fp32", "training", training)
    assert without_inert(network) == (network, {})
    network = Network(traced("gpt2"), 4, inference=InferenceSetup("eager", "all", 64, "fp16", True))
    assert without_inert(network) == (network, {})


def test_a_network_that_attends_but_generates_no_text_keeps_attention_alone():
    given = InferenceSetup("eager", cache_tokens=64)
    bare, lacks = without_inert(Network(traced("bert"), 4, inference=given))
    assert bare.inference == InferenceSetup("eager")
    assert lacks == {NO_TEXT: ("cache_tokens",)}


@pytest.mark.parametrize(
    ("phase", "given"),
    [
        ("training", TrainingSetup("sgd", attention="eager", dropout=0.1, loss_chunks=8)),
        ("training", TrainingSetup("sgd", dropout=0.0)),
        ("inference", InferenceSetup("eager", "all", 64, "fp16", joined_cache=True)),
    ],
)
def test_what_is_left_out_changes_no_plan(phase, given):
    chosen = {"training": given} if phase == "training" else {"inference": given}
    network = Network(CNN, 4, "fp32", phase, **chosen)
    assert memory_plan(network) == memory_plan(without_inert(network)[0])


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("resnet50", 25_557_032),
        ("densenet121", 7_978_856),
        ("efficientnet-b0", 5_288_548),
        ("mobilenet-v2", 3_504_872),
        ("convnext-tiny", 28_589_128),
        ("vit-base", 86_567_656),
        ("bert-base", 109_482_240),
        ("gpt2", 124_439_808),
        ("llama-3-8b", 8_030_261_248),
    ],
)
def test_parameters_are_as_many_as_published(name, published):
    """By torchvision and transformers: without running statistics and tables of positions."""
    assert parameters(network_named(name)) == published
