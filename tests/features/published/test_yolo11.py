"""YOLO11 networks have exactly the published numbers of weights, and cost what was published."""

import pytest

from forerun.data.named.networks import network_named
from forerun.features.operators.table import OperatorTable

PUBLISHED = {
    "n": (2_624_080, 6.6),
    "s": (9_458_752, 21.7),
    "m": (20_114_688, 68.5),
    "l": (25_372_160, 87.6),
    "x": (56_966_176, 196.0),
}
"""Size -> weights and GFLOPs at 640 x 640, as Ultralytics' model summaries state them."""


@pytest.mark.parametrize(("size", "figures"), PUBLISHED.items())
def test_weights_and_operations_are_the_published_ones(size, figures):
    torch = pytest.importorskip("torch")
    from forerun.features.published.yolo11 import yolo11

    weights, gflops = figures
    with torch.device("meta"):
        module = yolo11(size)
    assert sum(parameter.numel() for parameter in module.parameters()) == weights
    table = OperatorTable.of_graph(network_named(f"yolo11{size}"))
    assert table.flops.sum() / 1e9 == pytest.approx(gflops, rel=0.005)


def test_a_detector_runs_and_gives_a_box_and_scores_of_each_place():
    torch = pytest.importorskip("torch")
    from forerun.features.published.yolo11 import yolo11

    with torch.no_grad():
        found = yolo11("n").eval()(torch.zeros(2, 3, 640, 640))
    assert found.shape == (2, 84, 8400)
    assert bool(((found[:, 4:] >= 0) & (found[:, 4:] <= 1)).all())
