"""Steps, guidance and offloading change the graph of a pipeline, and that of no other network."""

from dataclasses import replace

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import InferenceSetup, Network
from forerun.features.graphs.pipeline import (
    DECODER,
    DENOISER,
    ENCODER,
    as_run,
    has_parts,
    joined,
    steps_of,
    weights_by_part,
)


def network(width, rows):
    shapes = (((rows, width),), ((rows, width),))
    return OperatorGraph(
        (Operator("linear", "l", *shapes, width * width),), 1, False, "x", width**2
    )


PIPELINE = joined(
    {ENCODER: [network(8, 1)], DENOISER: [network(32, 2)], DECODER: [network(16, 1)]}, 50, 2
)


def run(**options):
    return as_run(Network(PIPELINE, inference=InferenceSetup(**options))).graph


def test_parts_run_in_order_and_the_denoiser_by_steps():
    assert has_parts(PIPELINE)
    assert [op.part for op in PIPELINE.operators] == [ENCODER, DENOISER, DECODER]
    assert [op.repeat for op in PIPELINE.operators] == [1, 50, 1]
    assert PIPELINE.parameter_elements == 8**2 + 32**2 + 16**2


def test_steps_repeat_the_denoiser_alone():
    assert [op.repeat for op in run(steps=4).operators] == [1, 4, 1]


def test_without_guidance_a_step_has_half_the_samples():
    assert [op.input_shapes[0][0] for op in run(guidance=False).operators] == [1, 1, 1]
    assert run(guidance=True).operators == PIPELINE.operators


@pytest.mark.parametrize(
    ("options", "said"),
    [({}, (50, True)), ({"steps": 4}, (4, True)), ({"guidance": False}, (50, False))],
)
def test_a_run_says_its_steps_and_its_guidance(options, said):
    asked = Network(PIPELINE, inference=InferenceSetup(**options))
    assert steps_of(asked) == steps_of(as_run(asked)) == said


def test_weights_of_a_part_are_those_of_its_networks_however_often_they_are_read():
    """T5 reads constants of its positions in each layer; autoencoders hold an encoder as well."""
    twice = replace(network(8, 1), operators=network(8, 1).operators * 2)
    more = replace(network(16, 1), parameter_elements=500)
    graph = joined({ENCODER: [twice, twice], DENOISER: [network(20, 2)], DECODER: [more]}, 50, 2)
    assert weights_by_part(graph) == {ENCODER: 2 * 8**2, DENOISER: 20**2, DECODER: 500}
    assert sum(weights_by_part(graph).values()) == graph.parameter_elements
    offloaded = as_run(Network(graph, inference=InferenceSetup(offload=True))).graph
    assert offloaded.parameter_elements == 500


@pytest.mark.parametrize("passes", ["two", 0, None])
def test_an_uploaded_graph_may_say_anything_of_its_passes(passes):
    attributes = {"part": DENOISER} | ({} if passes is None else {"passes": passes})
    op = Operator("linear", "l", ((2, 4),), ((2, 4),), 16, attributes)
    asked = Network(OperatorGraph((op,)), inference=InferenceSetup(steps=3, guidance=False))
    assert as_run(asked).graph.operators[0].repeat == 3


def test_other_networks_are_left_as_they_are():
    other = Network(network(8, 1), inference=InferenceSetup(steps=3))
    assert as_run(other) is other
