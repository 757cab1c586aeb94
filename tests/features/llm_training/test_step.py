"""Ideal work of training steps against published formulas, and laws of messages."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.attention import Attention
from forerun.data.language_models.feed_forward import Dense
from forerun.data.language_models.model import LanguageModel, Layer
from forerun.data.language_models.training import Cluster, LlmTraining, TrainingLayout
from forerun.features.links import Links
from forerun.features.llm_training.layouts import Layouts
from forerun.features.llm_training.step import FEW_TOKENS, model_flop, step_work, trained_weights
from forerun.features.readers.language_model.reader import named_language_model
from tests.devices import CATALOG

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
    assert each / (1.0 + FEW_TOKENS / work.tokens) == pytest.approx(each[0] / (1.0 + 0.125))


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
