"""Features of operators, against counts by hand of what a kernel does."""

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.features.operators.features import FEATURES, operator_features
from forerun.features.operators.table import OperatorTable

A100 = DeviceCatalog.load().get("a100-sxm-80gb")


def feature(kind: str, width: int, name: str, rows: int = 4096) -> float:
    """One feature of `rows` rows of this width."""
    table = OperatorTable.of([Operator(kind, kind, ((rows, width),), ((rows, width),))])
    matrix = operator_features(table, A100, "fp32", kind).matrix
    return float(matrix[0, FEATURES[kind].index(name)])


@pytest.mark.parametrize(
    ("width", "fill"), [(512, 1.0), (640, 1.25 / 2), (1024, 1.0), (128, 0.25), (1536, 1.0)]
)
def test_layer_norm_reads_four_elements_in_each_of_128_threads(width: int, fill: float) -> None:
    assert feature("layer_norm", width, "lane_fill") == pytest.approx(fill)


@pytest.mark.parametrize(("width", "fill"), [(32, 1.0), (48, 0.75), (1024, 1.0), (700, 700 / 1024)])
def test_softmax_of_short_rows_is_one_warp_a_row(width: int, fill: float) -> None:
    assert feature("softmax", width, "lane_fill") == pytest.approx(fill)
    assert feature("softmax", width, "iterations") == 0.0


@pytest.mark.parametrize(("width", "block"), [(2048, 256), (4096, 512), (16384, 512), (1536, 256)])
def test_softmax_of_long_rows_is_one_block_of_up_to_512_threads(width: int, block: int) -> None:
    steps = width / 4 / block
    assert feature("softmax", width, "iterations") == min(np.ceil(steps), 8)
    assert feature("softmax", width, "lane_fill") == pytest.approx(steps / np.ceil(steps))


def test_a_tile_also_reads_its_borders() -> None:
    """One full wave of tiles of 128 x 128 on 108 units: 16 / 128 more for rows and for columns."""
    assert A100.compute_units == 108
    product = Operator("linear", "aten.mm", ((108 * 128, 512),), ((108 * 128, 128),), 512 * 128)
    matrix = operator_features(OperatorTable.of([product]), A100, "fp16", "linear").matrix
    best = matrix[0, FEATURES["linear"].index("log_best_tile")]
    assert np.exp(best) == pytest.approx(1 + 16 / 128 + 16 / 128)
