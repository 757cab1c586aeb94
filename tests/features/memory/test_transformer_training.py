"""What a step of a transformer holds equals what torch holds, and follows published formulas."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.named.networks import network_named
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.allocator import ACTIVATIONS, WEIGHTS
from forerun.features.memory.liveness import Walk
from forerun.features.memory.plan import memory_plan
from forerun.features.memory.training_step import training_requests
from forerun.features.memory.weights import device_shares
from tests.features.configurations import HEADS, TOKENS, VOCABULARY, WIDTH, module, traced
from tests.features.memory.test_training_step import tracker

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
    full = replace(STEP, dropout=0.0)
    graph = traced("llama")
    parts = {
        targets: memory_plan(
            Network(graph, 64, "bf16", "training", replace(full, lora_rank=4, lora_targets=targets))
        ).parts["activations"]
        for targets in ("all_linear", "attention", "query_value")
    }
    whole = memory_plan(Network(graph, 64, "bf16", "training", full)).parts["activations"]
    assert parts["query_value"] < parts["attention"] < parts["all_linear"] <= 1.05 * whole


def test_pieces_of_the_loss_take_fewer_logits():
    graph = traced("gpt2")
    one, eight = (
        memory_plan(Network(graph, 512, "bf16", "training", replace(STEP, loss_chunks=n)))
        for n in (1, 8)
    )
    logits = 512 * TOKENS * VOCABULARY / 2**20
    # Logits and their gradient in 16 bits, logarithms and two gradients in 32.
    assert 0.5 * 14 * logits < one.live - eight.live <= (1 - 1 / 8) * 16 * logits


def test_old_pytorch_keeps_gradients_and_the_input_of_softmax():
    graph = traced("bert")
    eager = replace(STEP, attention="eager", dropout=0.1)
    new, old = (
        memory_plan(Network(graph, 64, "fp32", "training", replace(eager, legacy_pytorch=legacy)))
        for legacy in (False, True)
    )
    scores = 3 * 64 * HEADS * TOKENS * TOKENS * 4 / 2**20
    assert old.live - new.live == pytest.approx(scores + new.parts["weights"], rel=0.02)


def test_old_bitsandbytes_keeps_the_inputs_of_quantised_layers_that_are_not_trained():
    graph, lora = traced("llama"), replace(STEP, lora_rank=4, lora_targets="query_value")

    def live(**options):
        setup = replace(lora, **options)
        return memory_plan(Network(graph, 64, "bf16", "training", setup)).live

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
