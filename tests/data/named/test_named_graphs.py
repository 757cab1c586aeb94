"""Packaged networks and programs, and architectures given by the names of their choices."""

from typing import get_args

import pytest

from forerun.data.errors import BadArchitecture
from forerun.data.facts import facts_of
from forerun.data.named.networks import (
    network_named,
    network_names,
    network_with_digest,
    program_named,
    program_names,
)
from forerun.data.named.search_spaces import (
    FbnetBlock,
    Nb201Operation,
    fbnet,
    nb201,
    nb201_operations,
    ofa,
)
from forerun.features.nas_cells import CONV1, CONV3, NONE, POOL, SKIP, codes_of

FACTS = facts_of(__file__)
WEIGHTS = FACTS["weights"]


@pytest.mark.parametrize("name", network_names())
def test_every_network_reads_as_a_graph_of_known_operators(name):
    graph = network_named(name)
    assert len(graph) > 15
    assert graph.batch_size == 1
    assert not graph.unknown


@pytest.mark.parametrize(("name", "weights"), WEIGHTS.items())
def test_networks_have_the_published_number_of_weights(name, weights):
    """Shared embeddings count twice in a graph: as embeddings and as the matrix of the logits."""
    found = sum(operator.parameter_elements for operator in network_named(name).operators)
    assert weights * 0.99 < found < weights * 1.35


@pytest.mark.parametrize(
    ("name", "ours"),
    [("ResNet-50", "resnet50"), ("resnext50_32x4d", "resnext50-32x4d"), ("vit_b_16", "vit-base")],
)
def test_separators_and_capitals_do_not_matter_and_names_of_torchvision_are_known(name, ours):
    assert network_named(name) == network_named(ours)


def test_every_network_is_found_by_its_digest():
    for name in network_names():
        graph = network_named(name)
        assert network_with_digest(graph.digest) == graph


def test_unknown_names_are_none():
    assert network_with_digest("0" * 32) is None
    assert network_named("resnet51") is None
    assert program_named("nothing") is None


def test_programs_have_one_entry_per_node_and_edges_between_nodes():
    assert len(program_names()) >= 10
    for name in program_names():
        program = program_named(name)
        count = len(program.types)
        columns = (program.texts, program.full_texts, program.blocks, program.functions)
        assert {len(column) for column in columns} == {count}
        assert all(max(start, end) < count for start, end, _, _ in program.edges)


CELL = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|nor_conv_1x1~0|avg_pool_3x3~1|none~2|"


def test_a_cell_as_text_gives_its_edges_in_the_order_of_the_features():
    assert nb201(nb201_operations(CELL)).operators == (CONV3, NONE, SKIP, CONV1, POOL, NONE)


@pytest.mark.parametrize(
    "text",
    [
        "",
        CELL.replace("~2", "~1"),
        CELL.rpartition("+")[0],
        CELL.replace("+", ""),
        CELL + "+|none~0|none~1|none~2|none~3|",
    ],
)
def test_text_that_is_not_a_cell_is_refused_with_an_example(text):
    with pytest.raises(BadArchitecture, match="not a NAS-Bench-201 cell; one is "):
        nb201_operations(text)


def test_names_become_their_positions():
    assert nb201([get_args(Nb201Operation)[n] for n in (4, 3, 2, 1, 0, 0)]).operators[:5] == (
        *(4, 3, 2, 1, 0),
    )
    blocks = get_args(FbnetBlock)
    assert fbnet([*blocks, *blocks, *blocks[:4]]).operators == (*range(9), *range(9), 0, 1, 2, 3)


def test_an_ofa_network_has_kernels_expansions_depths_and_size_in_this_order():
    network = ofa([7] * 20, [6] * 20, [2] * 5, 160)
    assert network.operators == (*[7] * 20, *[6] * 20, *[2] * 5, 160)
    assert codes_of([network]).shape == (1, 46)


def test_unknown_names_and_wrong_lengths_are_refused():
    with pytest.raises(BadArchitecture, match="'conv' is not one of the operations"):
        nb201(["conv"] * 6)
    with pytest.raises(BadArchitecture, match="operations has 5 entries, not 6"):
        nb201(["none"] * 5)
    with pytest.raises(BadArchitecture, match="blocks has 21 entries, not 22"):
        fbnet(["skip"] * 21)
    with pytest.raises(BadArchitecture, match="depths has 4 entries, not 5"):
        ofa([3] * 20, [3] * 20, [2] * 4, 224)
