"""Steps of training language models: kernels, memory and layouts."""

from dataclasses import replace
from itertools import product
from typing import get_args

import numpy as np
import pytest

from forerun.data.columns import Column
from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense, Experts
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.training import (
    Cluster,
    LlmTraining,
    Recompute,
    SampleLength,
    TrainingFramework,
    TrainingLayout,
    faults_of_layout,
)
from forerun.features.links import Links
from forerun.features.llm_training.layouts import BY_MODULE, Layouts
from forerun.features.llm_training.memory import (
    PARTS,
    StageMemory,
    groups_in_flight,
    layers_of_stages,
    stage_memory,
)
from forerun.features.llm_training.step import (
    FEW_VALUES,
    StepWork,
    model_flop,
    sheet_of,
    step_work,
    trained_weights,
)
from forerun.features.readers.language_model.reader import named_language_model
from tests.devices import CATALOG

# Ideal work of training steps against published formulas, and laws of messages.


H100, A100, GB200 = (CATALOG.get(name) for name in ("h100-sxm-80gb", "a100-sxm-80gb", "gb200"))
LLAMA = named_language_model("meta-llama/Meta-Llama-3-8B")


def gpt(layers: int, hidden: int, heads: int, vocabulary: int = 51_200) -> LanguageModel:
    """A GPT of that size."""
    width = hidden // heads
    layer = Layer(Attention(heads, heads, width, width), (Dense(4 * hidden, gated=False),))
    return LanguageModel("gpt", hidden, vocabulary, (layer,) * layers, tied_embeddings=True)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads"), [(24, 2304, 24), (96, 12_288, 96), (128, 25_600, 160)]
)
def test_arithmetic_is_that_of_narayanan_et_al(layers: int, hidden: int, heads: int) -> None:
    """Equation 3 of arXiv 2104.04473 without recomputation: 72 B s l h^2 (1 + s / 6h + V / 12lh).

    Theirs counts all pairs of tokens; half of them are masked, and half are counted here.
    """
    batch, length, words = 512, 2048, 51_200
    run = LlmTraining(gpt(layers, hidden, heads), length, batch, 64)
    ratio = 0.5 * length / (6 * hidden) + words / (12 * layers * hidden)
    theirs = 72.0 * batch * length * layers * hidden**2 * (1.0 + ratio)
    assert model_flop(run) == pytest.approx(theirs, rel=2e-3)


def test_recomputation_adds_a_third_of_the_products() -> None:
    """Four passes in place of three; frozen weights need two."""
    run = LlmTraining(LLAMA, 4096, 64, 8)
    plain, again = (
        step_work(run, H100, Layouts.of(run, [TrainingLayout(recompute=what)])).parts["linear"]
        for what in ("none", "full")
    )
    assert again == pytest.approx(plain * 4.0 / 3.0)
    frozen = replace(run, lora_rank=16)
    assert step_work(frozen, H100, Layouts.of(frozen)).parts["linear"] == pytest.approx(
        plain * 2.0 / 3.0
    )


def test_recomputation_of_some_layers_lies_between_none_and_all() -> None:
    """In proportion for arithmetic; every layer more takes less memory and no less time."""
    run, depth = LlmTraining(LLAMA, 4096, 64, 8), len(LLAMA.layers) // 2
    some = [
        TrainingLayout(pipeline=2, recompute="full", recompute_layers=n + 1) for n in range(depth)
    ]
    every = TrainingLayout(pipeline=2, recompute="full")
    layouts = [replace(every, recompute="none"), *some, every]
    parts = step_work(run, H100, Layouts.of(run, layouts)).parts
    for name in ("linear", "attention", "elementwise"):
        plain, *between, whole = parts[name]
        shares = np.arange(1, depth + 1) / depth
        assert between == pytest.approx(plain + shares * (whole - plain)), name
    held = memory(run, *layouts).total
    assert (np.diff(held) <= 1.0).all() and held[-1] == held[-2] < held[1] <= held[0]
    assert "recompute_layers needs recompute = full." in faults_of_layout(
        run, TrainingLayout(recompute_layers=2)
    )


@pytest.mark.parametrize("framework", ["megatron", "torchtitan", "fsdp", "deepspeed", "maxtext"])
def test_selective_recomputation_is_what_a_framework_selects(framework: TrainingFramework) -> None:
    """Attention alone in Megatron-LM; elsewhere half of the products and all between them."""
    run = LlmTraining(LLAMA, 4096, 64, 8, framework=framework)
    plain, again = (
        step_work(run, H100, Layouts.of(run, [TrainingLayout(tensor=2, recompute=what)])).parts
        for what in ("none", "selective")
    )
    ratios = {name: (again[name] / plain[name])[0] for name in plain if plain[name][0] > 0.0}
    usual = dict.fromkeys(ratios, 1.0)
    by_operator = {"linear": 3.5 / 3.0, "elementwise": 4.0 / 3.0, "tensor_messages": 2.5 / 2.0}
    own = {"attention": 4.5 / 3.5} if framework == "megatron" else by_operator
    assert ratios == pytest.approx(usual | own)


@pytest.mark.parametrize("tokens", [512, 4096, 131_072])
def test_attention_is_as_fast_as_its_instructions(tokens: int) -> None:
    """FlashAttention-2 is no faster on Blackwell; kernels for a device are never slower than it."""

    def attention_s(framework: TrainingFramework, device: Device) -> float:
        run = LlmTraining(LLAMA, tokens, 8, 8, framework=framework)
        return float(step_work(run, device, Layouts.of(run)).parts["attention"][0])

    b200 = CATALOG.get("b200-sxm-180gb")
    assert attention_s("torchtitan", b200) == attention_s("torchtitan", H100)
    assert attention_s("torchtitan", H100) < attention_s("torchtitan", A100)
    for device in (A100, H100, b200):
        assert attention_s("deepspeed", device) <= attention_s("torchtitan", device)
    assert attention_s("deepspeed", b200) <= attention_s("deepspeed", H100)


def test_attention_in_fp8_is_at_its_peak_and_in_frameworks_with_transformer_engine() -> None:
    """Twice as fast as in 16 bits on Blackwell."""
    b200 = CATALOG.get("b200-sxm-180gb")
    usual, fp8 = (
        LlmTraining(LLAMA, 131_072, 8, 8, attention=own)  # type: ignore[arg-type]
        for own in ("flash", "flash-fp8")
    )
    parts = [step_work(run, b200, Layouts.of(run)).parts for run in (usual, fp8)]
    assert parts[0]["attention"] == pytest.approx(2.0 * parts[1]["attention"])
    assert parts[0]["linear"] == parts[1]["linear"]
    for run, device in ((fp8, A100), (replace(fp8, framework="fsdp"), H100)):
        with pytest.raises(UnanswerableQuery, match=r"attention = (flash-)?fp8"):
            sheet_of(run, device)


def test_products_reach_what_was_measured_of_an_architecture() -> None:
    """51 % of the peak on an MI300X, 60 % on an MI325X, 80 % on an H100."""
    run = LlmTraining(LLAMA, 4096, 64, 8)
    mi300x, h100 = (
        step_work(run, device, Layouts.of(run)).parts["linear"][0] * sheet_of(run, device).peak
        for device in (CATALOG.get("mi300x"), H100)
    )
    assert 0.80 / 0.60 <= mi300x / h100 <= 0.80 / 0.51


def test_degrees_divide_the_arithmetic_of_a_stage() -> None:
    """Whatever the layout, all devices together do the same products of a global batch."""
    run = LlmTraining(gpt(96, 12_288, 96), 2048, 512, 64)
    layouts = [
        TrainingLayout(),
        TrainingLayout(tensor=8),
        TrainingLayout(tensor=4, pipeline=8, virtual_stages=2),
        TrainingLayout(context=2, pipeline=4, micro_batch=4),
    ]
    table = Layouts.of(run, layouts)
    work = step_work(run, H100, table)
    each = work.parts["attention"] * table.micro_batches / table.pipeline
    assert each == pytest.approx(each[0])
    each = work.parts["linear"] * table.micro_batches / table.pipeline
    few = 1.0 + FEW_VALUES / (work.width * work.tokens)
    assert each / few == pytest.approx((each / few)[0])


def test_messages_of_zero_stages_are_ordered() -> None:
    """Sharded weights are gathered for each micro-batch; others once for a step."""
    run = LlmTraining(LLAMA, 4096, 256, 64)
    table = Layouts.of(run, [TrainingLayout(zero_stage=stage) for stage in (0, 1, 2, 3)])
    work = step_work(run, A100, table)
    sent = work.gathers + work.reductions
    assert (np.diff(sent) >= 0).all()
    assert sent[0] == pytest.approx(sent[1])
    assert sent[3] > 2.0 * sent[1]


def test_sharding_within_a_node_keeps_gathering_off_the_network() -> None:
    """Hybrid sharding gathers by the fast links, and adds up shards over the network once."""
    run = LlmTraining(LLAMA, 4096, 256, 64, cluster=Cluster(network_gbit_s=50.0))
    whole, hybrid = (TrainingLayout(zero_stage=3, shard_devices=size) for size in (64, 8))
    work = step_work(run, H100, Layouts.of(run, [whole, hybrid]))
    assert work.gathers[1] < work.gathers[0]


def test_a_rack_reaches_all_experts_by_its_links() -> None:
    """72 devices of an NVL72 rack are as near as eight of a server."""
    rack, server = Links.of(GB200, Cluster()), Links.of(H100, Cluster())
    tokens, many, few = np.array([1e6]), np.array([64.0]), np.array([8.0])
    assert rack.dispatch_s(tokens, 1e3, 8, many) == pytest.approx(1e9 * 8 * 63 / 64 / rack.link)
    near = server.dispatch_s(tokens, 1e3, 8, few)
    assert near == pytest.approx(1e9 * 7 / server.link)
    assert server.dispatch_s(tokens, 1e3, 8, many) > 3.0 * near


def test_a_token_enters_each_node_once() -> None:
    """With very many experts a token, it enters all other nodes, and no more."""
    links = Links.of(H100, Cluster(network_gbit_s=8.0))
    sent = links.dispatch_s(np.array([1e6]), 1e3, 1000, np.array([64.0]))
    by_links = 1e9 * 1000 * 7 / 8 / links.link
    assert sent - by_links == pytest.approx(7.0, rel=1e-3)


def test_a_ring_over_nodes_uses_the_networks_of_all_its_members() -> None:
    """Eight members in a node share what enters it, up to the rate of their links."""
    links = Links.of(H100, Cluster(network_gbit_s=100.0))
    alone, eight = links.ring(np.array([8.0, 64.0]), np.array([8.0, 1.0]))
    assert (alone, eight) == pytest.approx((12.5e9, 100e9))


def test_few_tokens_an_expert_wait_for_its_weights() -> None:
    """Each pass reads the experts of a device once; their gradients are summed in 32 bits."""
    model = named_language_model("deepseek-ai/DeepSeek-V3")
    run = LlmTraining(model, 1024, 4096, 256, precision="bf16")
    layouts = [TrainingLayout(pipeline=8, expert=own) for own in (1, 32)]
    found = step_work(run, H100, Layouts.of(run, layouts)).parts["experts"]
    routed = 58 * 256 * 3 * 7168 * 2048
    assert found[0] == pytest.approx(routed * (2.0 + 2.0 + 8.0) / (H100.bandwidth_gbs * 1e9))
    assert found[1] < found[0] / 3.0
    frozen = replace(run, lora_rank=16)
    read = step_work(frozen, H100, Layouts.of(frozen, layouts[:1])).parts["experts"]
    assert read == pytest.approx(found[:1] / 3.0)


def test_trained_weights_are_all_weights_over_the_devices() -> None:
    """Experts are divided by their degree, the rest by those of tensors and pipelines."""
    model = named_language_model("mistralai/Mixtral-8x7B-v0.1")
    run = LlmTraining(model, 4096, 64, 32)
    whole, divided = trained_weights(
        run, Layouts.of(run, [TrainingLayout(), TrainingLayout(tensor=2, pipeline=2, expert=8)])
    )
    assert whole == pytest.approx(model.parameters())
    assert model.parameters() / 16 < divided < model.parameters() / 4


@pytest.mark.parametrize(
    ("layout", "field"),
    [
        (TrainingLayout(tensor=3), "tensor x context x pipeline = 3"),
        (TrainingLayout(micro_batch=5), "global_batch = 64"),
        (TrainingLayout(expert=2), "no routed experts"),
        (TrainingLayout(virtual_stages=2), "virtual_stages"),
        (TrainingLayout(schedule="zb-h1"), "zb-h1 needs pipeline above 1"),
        (TrainingLayout(pipeline=2, schedule="zb-v"), "zb-v needs .* virtual_stages = 2"),
        (TrainingLayout(pipeline=2, virtual_stages=2, schedule="zb-h2"), "virtual_stages = 1"),
        (TrainingLayout(pipeline=1, schedule="dualpipe"), "dualpipe needs an even pipeline .1"),
        (TrainingLayout(pipeline=8, micro_batch=8, schedule="dualpipe"), "twice as many .8"),
        (TrainingLayout(pipeline=8, virtual_stages=8), "34 layers|32 layers"),
        (TrainingLayout(shard_devices=3), "shard_devices = 3"),
    ],
)
def test_degrees_that_do_not_divide_are_refused_by_their_name(
    layout: TrainingLayout, field: str
) -> None:
    """One line says which degree, and what it does not divide."""
    with pytest.raises(UnanswerableQuery, match=field):
        LlmTraining(LLAMA, 4096, 64, 8, layout).check()


# Distributions of lengths.


def work(run: LlmTraining, *layouts: TrainingLayout) -> StepWork:
    return step_work(run, H100, Layouts.of(run, layouts or [run.layout]))


def columns_of(own: StepWork) -> dict[str, Column]:
    """Name of each column of works -> it."""
    names = [name for name in StepWork.__dataclass_fields__ if name != "parts"]
    return {**own.parts, **{name: getattr(own, name) for name in names}}


@pytest.mark.parametrize("packed", [False, True])
def test_a_distribution_of_one_length_is_that_length(packed: bool) -> None:
    """Also where longer samples are cut to it; every column and all arithmetic are the same."""
    plain = LlmTraining(LLAMA, 4096, 64, 8, TrainingLayout(micro_batch=2))
    for tokens in (4096, 9000):
        own = replace(plain, lengths=(SampleLength(tokens, 3.0),), packed=packed)
        pairs = zip(columns_of(work(own)).values(), columns_of(work(plain)).values(), strict=True)
        assert all((one == other).all() for one, other in pairs)
        assert (model_flop(own), own.step_tokens) == (model_flop(plain), plain.step_tokens)


@pytest.mark.parametrize("micro_batch", [1, 2, 4])
def test_padding_costs_the_mean_over_the_longest_of_a_micro_batch(micro_batch: int) -> None:
    """Against all draws of a micro-batch; what no length changes stays."""
    lengths = (SampleLength(512, 3.0), SampleLength(2048, 2.0), SampleLength(4096, 1.0))
    plain = LlmTraining(LLAMA, 4096, 64, 8, TrainingLayout(micro_batch=micro_batch))
    alone = {
        one.tokens: columns_of(work(replace(plain, sequence_tokens=one.tokens))) for one in lengths
    }
    found = columns_of(work(replace(plain, lengths=lengths)))
    for name, own in found.items():
        expected = sum(
            np.prod([one.share / 6.0 for one in drawn])
            * alone[max(one.tokens for one in drawn)][name][0]
            for drawn in product(lengths, repeat=micro_batch)
        )
        assert own[0] == pytest.approx(expected, rel=1e-9), name
    assert found["optimizer"] == pytest.approx(alone[512]["optimizer"])


def test_packing_fills_sequences_and_attends_within_samples() -> None:
    """Products are those of full sequences; scores grow with the mean of squares over the mean."""
    plain = LlmTraining(LLAMA, 4096, 64, 8, TrainingLayout(micro_batch=2), framework="fsdp")
    lengths = (SampleLength(1024, 3.0), SampleLength(4096, 1.0))
    packed, full = (
        columns_of(work(own)) for own in (replace(plain, lengths=lengths, packed=True), plain)
    )
    for name in ("linear", "elementwise", "head", "starts", "tokens"):
        assert packed[name] == pytest.approx(full[name]), name
    squares = (3.0 * 1024**2 + 4096**2) / (3.0 * 1024 + 4096)
    assert packed["attention"] / full["attention"] == pytest.approx(squares / 4096)
    assert replace(plain, lengths=lengths, packed=True).step_tokens == plain.step_tokens


def test_tokens_and_model_arithmetic_leave_padding_out() -> None:
    lengths = (SampleLength(1024, 1.0), SampleLength(4096, 1.0))
    plain = LlmTraining(LLAMA, 4096, 64, 8)
    padded = replace(plain, lengths=lengths)
    assert padded.step_tokens == 64 * 2560
    halves = [model_flop(replace(plain, sequence_tokens=one.tokens)) for one in lengths]
    assert model_flop(padded) == pytest.approx(sum(halves) / 2.0)


# Memory of training steps against published formulas, and laws of layouts.


FRAMEWORKS: tuple[TrainingFramework, ...] = get_args(TrainingFramework)
RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
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
    assert groups_in_flight(table, (8, virtual, 0))[0, 0] / (8 * virtual) == pytest.approx(
        1.0 + 7 / (8 * virtual)
    )


def test_micro_batches_in_flight_are_at_most_the_stages_and_those_of_the_step() -> None:
    run = LlmTraining(LLAMA, 4096, 64, 8)
    for pipeline, batch in product((2, 4, 8), (1, 2, 8)):
        table = Layouts.of(run, [TrainingLayout(pipeline=pipeline, micro_batch=batch)])
        flying = groups_in_flight(table, (pipeline, 1, 0))[0]
        assert (flying <= np.minimum(pipeline, table.micro_batches)).all()
        assert flying[-1] == 1.0


@pytest.mark.parametrize("pipeline", [2, 4, 8])
def test_zero_bubble_schedules_hold_what_qi_et_al_publish(pipeline: int) -> None:
    """Micro-batches of a stage at most: p of ZB-H1 and ZB-V, as 1F1B, and 2 p - 1 of ZB-H2 (arXiv
    2401.10241, table 2 and section 6); no more than the step has.
    """
    run = LlmTraining(LLAMA, 4096, 512, 8)
    for code, virtual, most in ((1, 1, pipeline), (2, 1, 2 * pipeline - 1), (3, 2, pipeline)):
        for batch in (1, 512):
            layout = TrainingLayout(pipeline=pipeline, virtual_stages=virtual, micro_batch=batch)
            table = Layouts.of(run, [layout])
            flying = groups_in_flight(table, (pipeline, virtual, code))[0] / virtual
            assert flying.max() == min(most, table.micro_batches[0])


def test_dualpipe_holds_two_copies_and_one_micro_batch_more() -> None:
    """Table 2 of arXiv 2412.19437; both devices that have a stage shard its optimizer states."""
    run = LlmTraining(replace(LLAMA, vocabulary=0), 4096, 64, 8)
    one, dual = (
        memory(run, TrainingLayout(pipeline=4, schedule=own)) for own in ("zb-h1", "dualpipe")
    )
    for name, times in (("weights", 2.0), ("gradients", 2.0), ("optimizer", 1.0)):
        assert getattr(dual, name) == pytest.approx(times * getattr(one, name)), name
    assert dual.activations == pytest.approx(one.activations * 5 / 4, rel=0.01)


def test_the_first_stage_of_zb_v_holds_embeddings_and_head() -> None:
    """16 bytes for each weight of a table more than others; ZB-H1 holds one table at each end."""
    run = LlmTraining(LLAMA, 4096, 64, 8)
    tables = 16.0 * LLAMA.table_parameters()
    v, h = memory(
        run,
        TrainingLayout(pipeline=8, virtual_stages=2, schedule="zb-v", zero_stage=0),
        TrainingLayout(pipeline=8, schedule="zb-h1", zero_stage=0),
    ).stages
    assert v.argmax() == 0
    assert v[0] - v[3] > 2.0 * tables > v[-1] - v[3] == 0.0
    assert h[0] - h[3] > tables and h[-1] - h[3] > tables


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
        assert framework in BY_MODULE or again[1] < again[0]
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
