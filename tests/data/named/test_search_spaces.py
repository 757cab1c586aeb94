"""Architectures by the names of their choices, as the literature writes them."""

from typing import get_args

import pytest

from forerun.data.errors import BadArchitecture
from forerun.data.named.search_spaces import (
    FbnetBlock,
    Nb201Operation,
    fbnet,
    nb201,
    nb201_operations,
    ofa,
)
from forerun.features.nas_cells import CONV1, CONV3, NONE, POOL, SKIP, codes_of

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
def test_what_is_no_cell_is_refused_with_an_example(text):
    with pytest.raises(BadArchitecture, match="no NAS-Bench-201 cell; one is "):
        nb201_operations(text)


def test_names_count_as_their_places():
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
    with pytest.raises(BadArchitecture, match="'conv' is none of the operations"):
        nb201(["conv"] * 6)
    with pytest.raises(BadArchitecture, match="operations has 5 entries, not 6"):
        nb201(["none"] * 5)
    with pytest.raises(BadArchitecture, match="blocks has 21 entries, not 22"):
        fbnet(["skip"] * 21)
    with pytest.raises(BadArchitecture, match="depths has 4 entries, not 5"):
        ofa([3] * 20, [3] * 20, [2] * 4, 224)
