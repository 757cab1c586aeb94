"""Classes of convolutions and their sizes."""

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.caches import GraphKey
from forerun.features.memory.traits import OVER_RESERVED, TRAITS, network_sizes

IMAGE, RESULT = (1, 8, 6, 6), (1, 16, 6, 6)
BOTH = 8 * 36 + 16 * 36


def sizes(factor: float = 1.0, result=RESULT, **attributes) -> dict[str, float]:
    """Sizes of a network of one convolution, in elements, by the name of the trait."""
    op = Operator("conv", "aten.convolution", (IMAGE,), (result,), attributes=attributes)
    found = network_sizes(GraphKey(OperatorGraph((op,))), factor, 1.0)
    names = OVER_RESERVED[OVER_RESERVED.index("grouped_largest") :]
    known = dict(zip(names, found.over_reserved, strict=True))
    assert len(found.shares) == len(TRAITS) - len(OVER_RESERVED)
    return {name: size for name, size in known.items() if size and name.endswith("_all")}


def test_plain_3_by_3_convolutions_may_be_unfolded_or_run_in_tiles():
    assert sizes(kernel=(3, 3), stride=(1, 1), groups=1) == {
        "spatial_all": BOTH,
        "unfolded_all": 8 * 9 * 36,
        "winograd_all": pytest.approx(BOTH * 36 / 16),
        "full_spatial_all": BOTH,
    }


def test_strided_convolutions_with_large_kernels_have_their_own_classes():
    result = (1, 16, 3, 3)
    both = 8 * 36 + 16 * 9
    assert sizes(result=result, kernel=(7, 7), stride=(2, 2), groups=1) == {
        "spatial_all": both,
        "unfolded_all": 8 * 49 * 9,
        "large_kernel_all": both,
        "strided_all": both,
        "full_spatial_all": both,
    }


def test_groups_of_several_channels_differ_from_depthwise_convolutions():
    assert sizes(kernel=(3, 3), stride=(1, 1), groups=4) == {
        "grouped_all": BOTH,
        "channel_groups_all": BOTH,
        "full_spatial_all": BOTH,
    }
    assert sizes(kernel=(3, 3), stride=(1, 1), groups=8) == {"grouped_all": BOTH}


def test_pointwise_convolutions_are_in_no_spatial_class():
    assert sizes(kernel=(1, 1), groups=1) == {"pointwise_all": BOTH}


def test_sizes_grow_with_the_batch():
    one, many = (sizes(factor, kernel=(3, 3), groups=1) for factor in (1.0, 4.0))
    assert many == pytest.approx({name: 4 * size for name, size in one.items()})
