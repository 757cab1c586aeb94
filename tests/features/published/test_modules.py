"""Modules of published networks have the sizes that were published."""

import pytest

from forerun.features.published.sources import (
    einsum_as_products,
    ssd300,
    wide_squeeze_efficientnet,
)
from tests.zoo import needs_zoo

torch = pytest.importorskip("torch")


@pytest.mark.parametrize(
    ("equation", "left", "right"),
    [
        ("bhwc,hkc->bhwk", (2, 3, 4, 5), (3, 6, 5)),
        ("bhwc,wkc->bhwk", (2, 3, 4, 5), (4, 6, 5)),
        ("bqc, bchw -> bqhw", (2, 3, 4), (2, 4, 5, 6)),
    ],
)
def test_a_product_is_what_einsum_says(equation, left, right):
    first, second = torch.randn(left), torch.randn(right)
    expected = torch.einsum(equation, first, second)
    with einsum_as_products():
        torch.testing.assert_close(torch.einsum(equation, first, second), expected)


def test_einsum_is_itself_again_afterwards():
    before = torch.einsum
    with pytest.raises(RuntimeError, match="stop"), einsum_as_products():
        raise RuntimeError("stop")
    assert torch.einsum is before


@needs_zoo
def test_ssd_looks_at_8732_boxes_of_81_classes():
    with torch.device("meta"):
        places, classes = ssd300()(torch.empty(2, 3, 300, 300))
    assert places.shape == (2, 4, 8732)
    assert classes.shape == (2, 81, 8732)


@needs_zoo
def test_the_wide_squeeze_is_a_quarter_of_the_expanded_width():
    with torch.device("meta"):
        network = wide_squeeze_efficientnet(1.0, 1.0)
    block = network.blocks[1][0]
    assert block.conv_dw.out_channels == 96
    assert block.se.conv_reduce.out_channels == 24
