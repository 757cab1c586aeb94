"""Memory of transformers in training and with a cache, and plans of it."""

from dataclasses import replace
from math import inf
from pathlib import Path

import numpy as np
import onnx
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.named.networks import network_named
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.features.memory.allocator import ACTIVATIONS, WEIGHTS, peaks
from forerun.features.memory.attention import first_pass_elements, is_causal
from forerun.features.memory.liveness import Walk, inference_requests
from forerun.features.memory.plan import MIB, memory_plan, most_mib
from forerun.features.memory.training_step import training_requests
from forerun.features.memory.traits import TRAITS
from forerun.features.memory.weights import device_shares
from forerun.features.readers import read_graph
from tests.features.configurations import HEADS, LAYERS, TOKENS, VOCABULARY, WIDTH, module, traced
from tests.features.memory.test_training_step import tracker

# What a step of a transformer holds equals what torch holds, and follows published formulas.


BATCH = 4
STEP = TrainingSetup("none")


def held_by_torch(model):
    import torch

    torch.set_num_threads(1)
    ids = torch.zeros(BATCH, TOKENS, dtype=torch.long)
    labels = ids if model.config.model_type != "bert" else torch.zeros(BATCH, dtype=torch.long)
    weights = {t.untyped_storage()._cdata for t in (*model.parameters(), *model.buffers())}
    with tracker(weights) as track:
        track.keep(ids)
        # As the Trainer of transformers does, which returns the loss alone: logits are let go.
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
    return track.peak


def held_by_plan(graph, precision, setup):
    asked = training_requests(graph, precision, setup)
    sizes = asked.sizes(float(BATCH))
    return asked.live(sizes).max() - sizes[asked.category == WEIGHTS].sum()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize(("precision", "dtype"), [("fp32", "float32"), ("bf16", "bfloat16")])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_step_holds_what_torch_holds(family, attention, precision, dtype, checkpoint):
    model = module(family, attention, dtype)
    if checkpoint:
        model.gradient_checkpointing_enable()
    setup = replace(STEP, attention=attention, dropout=0.0, checkpoint_blocks=checkpoint)
    planned = held_by_plan(traced(family), precision, setup)
    # Repeated keys of grouped queries are copied in the graph, which fused kernels need not do.
    assert planned == pytest.approx(held_by_torch(model), rel=0.04)


def trained(graph, batch, precision="bf16", **options):
    """The plan of a step without an optimizer."""
    return memory_plan(Network(graph, batch, precision, "training", replace(STEP, **options)))


def kept_by_a_layer(setup, precision="fp16"):
    """Bytes of activations that one layer of BERT keeps for backward, one sample."""

    def kept(layers):
        graph = traced("bert", layers)
        walk = Walk(graph, precision, setup)
        walk.forward(range(len(graph)), {}, {})
        asked = walk.tape.requests()
        shares = device_shares(asked, setup, 0)
        sizes = np.where(asked.category == ACTIVATIONS, asked.sizes(1.0, shares), 0.0)
        return asked.live(sizes)[-1]

    return kept(3) - kept(2)


STATISTICS = 2 * 2 * 4 * TOKENS
"""Means and deviations of a layer's two norms, which the formula leaves out."""


@pytest.mark.parametrize("devices", [1, 2, 4])
def test_a_layer_keeps_what_korthikanti_et_al_say(devices):
    """Sbh (10 + 24 / t + 5 a s / (h t)) bytes in 16 bits (arXiv 2205.05198, equation 2)."""
    setup = replace(STEP, attention="eager", dropout=0.1, tensor_parallel=devices)
    scores = 5 * HEADS * TOKENS / (WIDTH * devices)
    expected = TOKENS * WIDTH * (10 + 24 / devices + scores)
    assert kept_by_a_layer(setup) - STATISTICS == pytest.approx(expected)


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_with_sequence_parallelism_a_layer_keeps_an_equal_part_of_everything(devices):
    """Sbh / t (34 + 5 a s / h) bytes in 16 bits (arXiv 2205.05198, equation 4)."""
    setup = replace(
        STEP, attention="eager", dropout=0.1, tensor_parallel=devices, sequence_parallel=True
    )
    expected = TOKENS * WIDTH / devices * (34 + 5 * HEADS * TOKENS / WIDTH)
    assert kept_by_a_layer(setup) - STATISTICS / devices == pytest.approx(expected)


@pytest.mark.slow
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_sequence_parallelism_divides_the_inputs_that_checkpointing_keeps(devices):
    """Logits are divided by vocabulary without it, too."""

    def step(layers, **options):
        setup = replace(STEP, checkpoint_blocks=True, tensor_parallel=devices, **options)
        asked = training_requests(traced("llama", layers), "fp16", setup)
        sizes = asked.sizes(256.0, device_shares(asked, setup, 0))
        return asked.live(np.where(asked.category == ACTIVATIONS, sizes, 0.0)).max()

    inputs = 3 * 256 * 2 * TOKENS * WIDTH
    assert step(6) - step(3) == pytest.approx(inputs)
    parts = step(6, sequence_parallel=True) - step(3, sequence_parallel=True)
    assert parts == pytest.approx(inputs / devices)
    logits = 256 * TOKENS * VOCABULARY / devices
    assert step(3) < (2 + 4 * 4) * logits + 6 * inputs


def test_fused_attention_keeps_no_scores_and_dropout_its_masks():
    """Dao et al. 2022; without dropout the masks of two residuals go, a byte an element."""
    eager = kept_by_a_layer(replace(STEP, attention="eager", dropout=0.1))
    fused = kept_by_a_layer(replace(STEP, attention="sdpa", dropout=0.1))
    scores = HEADS * TOKENS * TOKENS
    rows, result = HEADS * TOKENS * 4, TOKENS * WIDTH * 2
    assert eager - fused == pytest.approx(5 * scores - rows - result, abs=result)
    plain = kept_by_a_layer(replace(STEP, attention="sdpa", dropout=0.0))
    assert fused - plain == pytest.approx(2 * TOKENS * WIDTH)


def test_adapters_free_what_frozen_layers_would_keep():
    setups = [{"lora_rank": 4, "lora_targets": t} for t in ("query_value", "attention")]
    setups += [{"lora_rank": 4, "lora_targets": "all_linear"}, {}]
    plans = [trained(traced("llama"), 64, dropout=0.0, **setup) for setup in setups]
    few, more, all_of_them, whole = (plan.parts["activations"] for plan in plans)
    assert few < more < all_of_them <= 1.05 * whole


def test_pieces_of_the_loss_take_fewer_logits():
    one, eight = (trained(traced("gpt2"), 512, loss_chunks=n) for n in (1, 8))
    logits = 512 * TOKENS * VOCABULARY / 2**20
    # Logits and their gradient in 16 bits, logarithms and two gradients in 32.
    assert 0.5 * 14 * logits < one.live - eight.live <= (1 - 1 / 8) * 16 * logits


def test_old_pytorch_keeps_gradients_and_the_input_of_softmax():
    eager = {"attention": "eager", "dropout": 0.1}
    new, old = (
        trained(traced("bert"), 64, "fp32", legacy_pytorch=legacy, **eager)
        for legacy in (False, True)
    )
    scores = 3 * 64 * HEADS * TOKENS * TOKENS * 4 / 2**20
    assert old.live - new.live == pytest.approx(scores + new.parts["weights"], rel=0.02)


def test_old_bitsandbytes_keeps_the_inputs_of_quantised_layers_that_are_not_trained():
    graph = traced("llama")

    def live(**options):
        return trained(graph, 64, lora_rank=4, lora_targets="query_value", **options).live

    frozen = [op for op in graph.operators if op.kind == "linear"][:-1]
    widest = max(op.input_shapes[0][-1] for op in frozen)
    layers = sum(op.input_shapes[0][-1] == widest for op in frozen)
    # At least the inputs of the layers down from the widest part, which nothing else keeps.
    more = live(frozen_weights="nf4", frozen_inputs=True) - live(frozen_weights="nf4")
    assert more >= layers * 64 * TOKENS * widest * 2 / 2**20
    assert live(frozen_inputs=True) == live()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_more_chunks_of_the_loss_raise_no_peak(precision):
    setups = [TrainingSetup(loss_chunks=chunks) for chunks in (1, 2, 3, 4, 8, 16)]
    gpt2 = network_named("gpt2")
    runs = [Network(gpt2, 1, precision, "training", setup) for setup in setups]
    peaks = [memory_plan(run).reserved for run in runs]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]


# Generation keeps keys and values by batch and context, and makes logits of the last position.


KEYS = {"llama": 2 * WIDTH // HEADS, "gpt2": WIDTH}


def plan(family, batch=1, precision="bf16", **options):
    setup = InferenceSetup(**options)
    return memory_plan(Network(traced(family), batch, precision, inference=setup))


@pytest.mark.parametrize("family", ["llama", "gpt2"])
@pytest.mark.parametrize(("batch", "tokens"), [(1, 64), (3, 1000)])
@pytest.mark.parametrize(("precision", "item"), [("bf16", 2), ("fp8", 1)])
def test_the_cache_is_two_vectors_a_layer_and_token(family, batch, tokens, precision, item):
    found = plan(family, batch, cache_tokens=tokens, cache_precision=precision)
    expected = 2 * LAYERS * KEYS[family] * tokens * batch * item / 2**20
    assert found.parts["cache"] == pytest.approx(expected)


def test_the_cache_holds_the_graphs_own_tokens_where_nothing_is_said():
    assert plan("llama") == plan("llama", cache_tokens=TOKENS)
    assert "cache" not in plan("llama", cache_tokens=0).parts


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_generation_makes_logits_of_the_last_position_alone(family):
    batch = 512
    last, whole = (plan(family, batch, logits=which, cache_tokens=0) for which in ("last", "all"))
    logits = batch * TOKENS * VOCABULARY * 2 / 2**20
    assert whole.live > last.live
    assert whole.live >= logits
    assert last.parts["weights"] == whole.parts["weights"]


def test_a_joined_cache_is_held_twice_in_the_last_step():
    batch, tokens = 64, 4096
    found = plan("llama", batch, cache_tokens=tokens, joined_cache=True)
    once = 2 * LAYERS * KEYS["llama"] * batch * 2 / 2**20
    assert found.parts["cache"] == pytest.approx(once * (2 * tokens - 1))


def test_views_of_a_fused_product_keep_all_of_it():
    """The value is a view of queries, keys and values together; rotated keys are their own."""
    linear = Operator("linear", "qkv", ((1, 8, 4),), ((1, 8, 24),))
    turned = [Operator("copy", "cat", ((1, 2, 8, 4),), ((1, 2, 8, 4),), inputs=(0,))] * 2
    shapes = ((1, 2, 8, 4),) * 3
    rotary = Operator("attention", "sdpa", shapes, shapes[:1], inputs=(0, 1, 2))
    assert first_pass_elements(rotary, [linear, *turned, rotary]) == 8 * (24 + 8)
    plain = Operator("attention", "sdpa", shapes, shapes[:1], inputs=(0,))
    assert first_pass_elements(plain, [linear, plain]) == 8 * 24
    apart = [Operator("linear", "k", ((1, 8, 4),), ((1, 8, 8),))] * 3
    alone = Operator("attention", "sdpa", shapes, shapes[:1], inputs=(0, 1, 2))
    assert first_pass_elements(alone, [*apart, alone]) == 8 * (8 + 8)


def test_encoders_have_neither_cache_nor_last_position():
    graph = traced("bert")
    assert not is_causal(graph)
    plain = memory_plan(Network(graph, 8))
    assert plain == memory_plan(Network(graph, 8, inference=InferenceSetup(cache_tokens=4096)))
    assert "cache" not in plain.parts


def test_eager_attention_writes_scores():
    graph, tokens, batch = traced("gpt2", tokens=256), 256, 64
    fused, eager = (
        memory_plan(Network(graph, batch, "bf16", inference=InferenceSetup(attention, "last", 0)))
        for attention in ("sdpa", "eager")
    )
    scores = batch * HEADS * tokens * tokens * 2 / 2**20
    assert scores < eager.live < 2.5 * scores
    assert fused.live < 0.8 * eager.live


def test_attention_marked_as_causal_is_causal():
    shape = (1, 2, 8, 4)
    op = Operator("attention", "sdpa", (shape,) * 3, (shape,))
    assert not is_causal(OperatorGraph((op,)))
    marked = Operator("attention", "sdpa", (shape,) * 3, (shape,), attributes={"causal": 1})
    assert is_causal(OperatorGraph((marked,)))


# Plans of whole networks: what is kept between questions changes no answer.


LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"


@pytest.fixture(scope="module", params=["resnet50", "densenet121", "squeezenet"])
def graph(request):
    return read_graph((LIGHT / f"light_{request.param}.onnx").read_bytes())


@pytest.mark.parametrize("precision", ["fp32", "amp"])
def test_weights_that_were_loaded_once_serve_every_batch_size(graph, precision):
    asked = inference_requests(graph, precision)
    for batch in (1, 3, 64, 2):
        plan = memory_plan(Network(graph, batch, precision))
        sizes = asked.sizes(batch / graph.batch_size).astype(np.int64).tolist()
        whole = peaks(asked.events.tolist(), sizes)
        assert (plan.live, plan.reserved) == (whole.live / MIB, whole.reserved / MIB)


@pytest.mark.parametrize(
    "name", ["alexnet", "gpt2", "bert-large", "densenet201", "mobilenet-v2", "swin-base"]
)
@pytest.mark.parametrize("phase", ["inference", "training"])
def test_no_plan_exceeds_the_most_that_is_said_without_one(name, phase):
    known = network_named(name)
    for batch in (1, 7, 64):
        for precision in ("fp32", "fp16", "amp"):
            run = Network(known, batch, precision, phase)
            assert memory_plan(run).reserved + 1024.0 < most_mib(run), (batch, precision)
    assert most_mib(replace(run, phase="training", training=TrainingSetup())) == inf


def test_what_convolutions_move_grows_with_the_batch_size(graph):
    one, many = (memory_plan(Network(graph, size, "fp16")) for size in (1, 8))
    assert many.convolutions == pytest.approx(8 * one.convolutions)
    assert many.largest_convolution == pytest.approx(8 * one.largest_convolution)
    assert 0 < one.largest_convolution <= one.convolutions
    sizes = dict(zip(TRAITS, one.traits, strict=True))
    assert sizes["convolutions"] == np.mean([op.kind == "conv" for op in graph.operators])
    written = sum(float(np.prod(s)) for op in graph.operators for s in op.output_shapes)
    assert sizes["traffic"] == pytest.approx(2 * written / MIB / max(one.reserved, 1.0))
