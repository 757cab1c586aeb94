"""Weights are counted once, constants are none, and adapters stand where they are asked for."""

from dataclasses import replace

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import Network, TrainingSetup
from forerun.features.memory.plan import memory_plan
from forerun.features.memory.weights import NothingToAdapt, graph_weights, head_of
from tests.features.configurations import LAYERS, VOCABULARY, WIDTH, traced

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
