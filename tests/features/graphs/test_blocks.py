"""Networks are cut where one tensor is handed on, whatever every part reads besides."""

from itertools import pairwise

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import TrainingSetup
from forerun.features.graphs.blocks import cuts, parts, spans, stretch
from forerun.features.memory.training_step import training_requests
from tests.features.configurations import traced


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
@pytest.mark.parametrize("layers", [2, 3])
def test_the_layers_of_a_transformer_are_its_blocks(family, layers):
    graph = traced(family, layers)
    blocks = [part.span for part in parts(graph) if part.block]
    attending = [[graph.operators[i].kind for i in span].count("attention") for span in blocks]
    assert attending == [1] * layers
    assert stretch(graph) == (blocks[0].start, blocks[-1].stop)


@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_parts_are_the_network_in_order(family):
    graph = traced(family)
    assert [i for part in parts(graph) for i in part.span] == list(range(len(graph)))
    assert [i for span in spans(graph, 3) for i in span] == list(range(len(graph)))


def test_tables_and_masks_that_every_layer_reads_prevent_no_cut():
    graph = traced("llama")
    starts = [part.span.start for part in parts(graph) if part.block]
    assert set(starts[1:]) <= set(cuts(graph))
    kept = [
        training_requests(graph, "bf16", TrainingSetup("none", checkpoint_segments=n))
        for n in (0, 3)
    ]
    plain, parted = (asked.live(asked.sizes(64.0)).max() for asked in kept)
    assert parted < plain
    assert len(spans(graph, 3)) == 3


def chain(*inputs):
    shape = ((1, 8),)
    return OperatorGraph(
        tuple(Operator("linear", "fc", shape, shape, 64, inputs=given) for given in inputs)
    )


def test_a_skip_over_a_place_prevents_a_cut_there():
    assert cuts(chain((), (0,), (1,), (2,))) == (1, 2, 3)
    assert cuts(chain((), (0,), (0, 1), (2,))) == (1, 3)


def test_what_many_distant_parts_read_is_handed_to_all_of_them():
    inputs = [()]
    for place in range(1, 31):
        inputs.append((0, place - 1) if place % 5 == 1 else (place - 1,))
    assert set(range(2, 30)) <= set(cuts(chain(*inputs)))


def test_a_network_without_repetition_has_no_blocks():
    shapes = [((1, n),) for n in (8, 16, 32)]
    ops = tuple(
        Operator("linear", "fc", a, b, 1 + i, inputs=(i - 1,) if i else ())
        for i, (a, b) in enumerate(pairwise(shapes))
    )
    graph = OperatorGraph(ops)
    assert not any(part.block for part in parts(graph))
    assert stretch(graph) == (0, len(graph))
