"""Memory of training steps against published formulas, and laws of layouts."""

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest

from forerun.data.language_models.feed_forward import Experts
from forerun.data.language_models.training import (
    LlmTraining,
    Recompute,
    TrainingFramework,
    TrainingLayout,
)
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.memory import (
    PARTS,
    StageMemory,
    groups_in_flight,
    layers_of_stages,
    stage_memory,
)
from forerun.features.readers.language_model.reader import named_language_model
from tests.features.llm_training.test_step import gpt

FRAMEWORKS: tuple[TrainingFramework, ...] = get_args(TrainingFramework)
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
LLAMA = named_language_model("meta-llama/Meta-Llama-3-8B")
NAMES = (
    *("meta-llama/Meta-Llama-3-8B", "deepseek-ai/DeepSeek-V3", "openai/gpt-oss-120b"),
    "nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
)
KORTHIKANTI = {"22B": (64, 6144), "175B": (96, 12_288), "530B": (128, 20_480), "1T": (160, 25_600)}
"""Heads and width of the models of table 3 of arXiv 2205.05198; sequences have 2048 tokens."""


def memory(run: LlmTraining, *layouts: TrainingLayout) -> StageMemory:
    return stage_memory(run, Layouts.of(run, layouts or None))


def layer_bytes(heads: int, hidden: int, **layout) -> float:
    """Activations that one more layer keeps, over sequence x width."""
    one, two = (
        LlmTraining(gpt(layers, hidden, heads), 2048, 8, 8, attention="eager") for layers in (1, 2)
    )
    split = TrainingLayout(tensor=8, **layout)
    kept = memory(two, split).activations - memory(one, split).activations
    return float(kept[0]) / (2048 * hidden)


@pytest.mark.parametrize(("heads", "hidden"), list(KORTHIKANTI.values()), ids=list(KORTHIKANTI))
def test_activations_of_a_layer_are_those_of_korthikanti_et_al(heads: int, hidden: int) -> None:
    """Table 2: with tensor parallelism, sequence parallelism, selective and full recomputation."""
    scores = 5 * heads * 2048 / hidden
    plain = layer_bytes(heads, hidden, sequence_parallel=False)
    assert plain == pytest.approx(10 + (24 + scores) / 8)
    assert layer_bytes(heads, hidden) == pytest.approx((34 + scores) / 8)
    assert layer_bytes(heads, hidden, recompute="selective") == pytest.approx(34 / 8)
    assert layer_bytes(heads, hidden, sequence_parallel=False, recompute="full") == pytest.approx(2)


@pytest.mark.parametrize(("name", "saved"), [("175B", 0.70), ("530B", 0.65)])
def test_selective_recomputation_saves_what_korthikanti_et_al_print(
    name: str, saved: float
) -> None:
    """Section 5: 70 % and 65 % of the activations of GPT-3 and MT-NLG."""
    plain = layer_bytes(*KORTHIKANTI[name])
    again = layer_bytes(*KORTHIKANTI[name], recompute="selective")
    assert 1.0 - again / plain == pytest.approx(saved, abs=0.005)


@pytest.mark.parametrize(
    ("precision", "zero", "per_weight"),
    [("fp16", 0, 20), ("fp16", 1, 4 + 16 / 8), ("bf16", 0, 18), ("bf16", 1, 6 + 12 / 8)],
)
def test_states_are_those_of_megatron(precision, zero: int, per_weight: float) -> None:
    """The table in its documentation of the distributed optimizer, with eight ranks."""
    run = LlmTraining(LLAMA, 4096, 8, 8, precision=precision)
    found = memory(run, TrainingLayout(zero_stage=zero)).model_states[0]
    assert found == pytest.approx(per_weight * LLAMA.parameters(), rel=1e-3)


def test_a_stage_with_embeddings_holds_what_bigscience_counted() -> None:
    """104B with 4 x 32 devices: 953,180,700 weights of 18 bytes (its chronicles of 176B)."""
    run = LlmTraining(gpt(64, 11_600, 80, vocabulary=50_257), 2048, 128, 128)
    found = memory(run, TrainingLayout(tensor=4, pipeline=32, zero_stage=0))
    assert found.model_states[0] == pytest.approx(17_157_252_600, rel=2e-3)


def test_fsdp_shards_all_sixteen_bytes() -> None:
    """Weights, gradients and moments in 32 bits."""
    run = LlmTraining(LLAMA, 4096, 64, 64, framework="torchtitan")
    found = memory(run, TrainingLayout(zero_stage=3))
    assert found.model_states[0] == pytest.approx(16 * LLAMA.parameters() / 64, rel=1e-3)


def test_a_pipeline_divides_layers_and_not_their_activations() -> None:
    """The first of p stages holds p micro-batches of a p-th of the layers (1F1B)."""
    run = LlmTraining(LLAMA, 4096, 64, 8)
    one, four = memory(run, TrainingLayout(), TrainingLayout(pipeline=4)).activations
    assert four == pytest.approx(one, rel=0.02)


@pytest.mark.parametrize("virtual", [2, 4])
def test_interleaving_holds_more_by_the_published_factor(virtual: int) -> None:
    """1 + (p - 1) / (p v) of Korthikanti et al., section 4.2.3."""
    run = LlmTraining(LLAMA, 4096, 512, 8)
    table = Layouts.of(run, [TrainingLayout(pipeline=8, virtual_stages=virtual)])
    assert groups_in_flight(table, 8, virtual)[0, 0] / (8 * virtual) == pytest.approx(
        1.0 + 7 / (8 * virtual)
    )


def test_micro_batches_in_flight_are_at_most_the_stages_and_those_of_the_step() -> None:
    run = LlmTraining(LLAMA, 4096, 64, 8)
    for pipeline, batch in product((2, 4, 8), (1, 2, 8)):
        table = Layouts.of(run, [TrainingLayout(pipeline=pipeline, micro_batch=batch)])
        flying = groups_in_flight(table, pipeline, 1)[0]
        assert (flying <= np.minimum(pipeline, table.micro_batches)).all()
        assert flying[-1] == 1.0


@pytest.mark.parametrize(("layers", "groups"), [(126, 8), (61, 16), (78, 12), (7, 8), (126, 128)])
def test_stages_hold_all_layers_and_ends_no_more_than_others(layers: int, groups: int) -> None:
    found = layers_of_stages(np.arange(layers) % 2, 2, groups, 1).sum(axis=1)
    assert found.sum() == layers
    assert found.max() - found.min() <= 1
    assert found[-1] == found.min()
    assert found[0] == found.min() or layers % groups == groups - 1


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("name", NAMES)
def test_what_saves_memory_never_raises_it(name: str, framework: TrainingFramework) -> None:
    """Recomputation, stages of ZeRO, offloading, and more devices of a layer or its experts."""
    model = named_language_model(name)
    run = LlmTraining(model, 4096, 256, 64, framework=framework)
    for pipeline, zero, batch in product((1, 4), (0, 1, 2, 3), (1, 4)):
        base = TrainingLayout(pipeline=pipeline, zero_stage=zero, micro_batch=batch)
        again = memory(run, *(replace(base, recompute=one) for one in RECOMPUTE)).total
        assert (np.diff(again) <= 1.0).all()
        away = memory(run, *(replace(base, offload=one) for one in ("none", "optimizer")))
        assert away.total[1] < away.total[0]
        away = memory(run, base, replace(base, offload="activations"))
        assert away.total[1] <= away.total[0]
    stages = memory(run, *(TrainingLayout(zero_stage=zero) for zero in (0, 1, 2, 3)))
    assert (np.diff(stages.model_states) <= 0.0).all()
    tensors = memory(run, *(TrainingLayout(tensor=one, pipeline=2) for one in (1, 2, 4, 8)))
    assert (np.diff(tensors.weights) < 0.0).all()
    pipelines = memory(run, *(TrainingLayout(pipeline=one) for one in (1, 2, 4, 8)))
    assert (np.diff(pipelines.weights) < 0.0).all()


def test_experts_are_divided_and_the_rest_is_not() -> None:
    model = named_language_model("openai/gpt-oss-120b")
    run = LlmTraining(model, 4096, 64, 64)
    found = memory(run, *(TrainingLayout(expert=one) for one in (1, 4, 16)))
    routed = sum(
        part.experts * part.expert(model.hidden_size)
        for layer in model.layers
        for part in layer.feed_forward
        if isinstance(part, Experts)
    )
    dense = model.parameters() - routed
    assert found.weights == pytest.approx([2 * (dense + routed / n) for n in (1, 4, 16)], rel=1e-3)
    assert found.gradients == pytest.approx(2 * found.weights)
    # Optimizer states of experts are spread over all devices, however the weights are.
    assert found.optimizer == pytest.approx(12 * model.parameters() / 64, rel=1e-3)


def test_parts_grow_in_proportion_to_the_micro_batch_or_not_at_all() -> None:
    run = LlmTraining(LLAMA, 4096, 64, 8)
    one, two = (memory(run, TrainingLayout(pipeline=4, micro_batch=size)) for size in (1, 2))
    for name in ("activations", "running", "logits"):
        assert two.parts()[name] == pytest.approx(2.0 * one.parts()[name])
    assert two.model_states == pytest.approx(one.model_states)


def test_two_layers_stay_where_activations_are_offloaded() -> None:
    run = LlmTraining(LLAMA, 4096, 8, 8)
    plain, away = memory(
        run, *(TrainingLayout(offload=one) for one in ("none", "activations"))
    ).activations
    ends = 2 * 2 * 4096 * LLAMA.hidden_size
    assert away - ends == pytest.approx((plain - ends) * 2 / 32)


def test_context_parallelism_divides_tokens() -> None:
    run = LlmTraining(LLAMA, 65_536, 8, 8)
    one, eight = memory(run, TrainingLayout(), TrainingLayout(context=8)).activations
    assert eight == pytest.approx(one / 8.0)


def test_adapters_alone_have_gradients_and_states() -> None:
    """LoRA on all products; QLoRA keeps the rest in four bits."""
    run = LlmTraining(LLAMA, 4096, 8, 1, layout=TrainingLayout(zero_stage=0))
    adapted = replace(run, lora_rank=16)
    full, lora = memory(run), memory(adapted)
    quantised = memory(replace(adapted, frozen_weights="nf4"))
    # 41,943,040 weights of adapters (rank 16, all products of Llama 3 8B).
    assert lora.gradients[0] == pytest.approx(4 * 41_943_040)
    assert lora.optimizer[0] == pytest.approx(12 * 41_943_040)
    assert lora.activations == pytest.approx(full.activations)
    assert quantised.weights[0] < 0.3 * lora.weights[0]
    assert quantised.gathered[0] > lora.gathered[0] == 0.0


def test_transformer_engine_keeps_fewer_bits_of_inputs_and_each_weight_twice() -> None:
    """One quantised weight for each direction: in FP8 as many bytes as one in 16 bits."""
    run = LlmTraining(LLAMA, 4096, 8, 8)
    half, eight, four = (memory(replace(run, precision=p)) for p in ("bf16", "fp8", "nvfp4"))
    assert half.activations > eight.activations > four.activations
    assert eight.weights == pytest.approx(half.weights)
    assert four.weights == pytest.approx((2.0 + 2 * 0.5625) / 2.0 * half.weights)
    plain, scaled = (
        memory(replace(run, framework="torchtitan", precision=p)) for p in ("bf16", "fp8")
    )
    assert scaled.total == pytest.approx(plain.total)


def test_columns_are_what_each_layout_is_alone() -> None:
    model = named_language_model("deepseek-ai/DeepSeek-V3")
    run = LlmTraining(model, 4096, 4096, 256)
    layouts = [
        TrainingLayout(tensor=t, pipeline=p, virtual_stages=v, expert=e, recompute=again)
        for t, (p, v), e, again in product(
            (1, 4), ((1, 1), (4, 2), (8, 1)), (1, 8), ("none", "full")
        )
    ]
    together = memory(run, *layouts)
    for row, layout in enumerate(layouts):
        alone = memory(run, layout)
        for name in (*PARTS, "fullest"):
            assert getattr(together, name)[row] == pytest.approx(getattr(alone, name)[0])
        held = together.stages[row, : layout.pipeline]
        assert together.total[row] == pytest.approx(held.max())
        assert np.isnan(together.stages[row, layout.pipeline :]).all()


@pytest.mark.parametrize(
    ("layers", "hidden", "devices", "tokens", "batch", "recompute", "most_gib"),
    [
        (24, 2048, 128, 2048, 10, "none", 40.0),
        (24, 2048, 16, 2048, 20, "none", 80.0),
        (32, 4096, 8, 2048, 6, "none", 80.0),
        (32, 4096, 8, 4096, 16, "full", 80.0),
    ],
)
def test_the_largest_micro_batches_of_llm_foundry_fit(
    layers: int, hidden: int, devices: int, tokens: int, batch: int, recompute, most_gib: float
) -> None:
    """MPT on GPUs with 40 and 80 GB ran (its scripts/train/benchmarking); with twice the sequences
    the activations alone would need more than they have.
    """
    model = gpt(layers, hidden, hidden // 128, vocabulary=50_368)
    run = LlmTraining(model, tokens, 2 * devices * batch, devices, framework="fsdp")
    layout = TrainingLayout(micro_batch=batch, zero_stage=3, recompute=recompute)
    found = memory(run, layout, replace(layout, micro_batch=2 * batch)).total / 2**30
    assert 0.6 * most_gib < found[0] < most_gib
    assert found[1] > most_gib
