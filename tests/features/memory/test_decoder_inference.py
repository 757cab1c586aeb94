"""Generation keeps keys and values by batch and context, and makes logits of the last position."""

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import InferenceSetup, Network
from forerun.features.memory.attention import first_pass_elements, is_causal
from forerun.features.memory.plan import memory_plan
from tests.features.configurations import HEADS, LAYERS, TOKENS, VOCABULARY, WIDTH, traced

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
