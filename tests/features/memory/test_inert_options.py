"""Options of parts that a network does not have are left out, and what it lacks is known."""

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import InferenceSetup, Network, TrainingSetup
from forerun.features.memory.inert_options import (
    NO_ATTENTION,
    NO_DROPOUT,
    NO_LOGITS,
    NO_TEXT,
    without_inert,
)
from forerun.features.memory.plan import memory_plan
from tests.features.configurations import traced

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
