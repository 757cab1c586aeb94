"""YOLO networks have exactly the published numbers of weights, and cost what was published."""

import pytest

from forerun.data.named.networks import network_named
from forerun.features.operators.table import OperatorTable

PUBLISHED = {
    "yolo11n": (2_624_080, 6.6),
    "yolo11s": (9_458_752, 21.7),
    "yolo11m": (20_114_688, 68.5),
    "yolo11l": (25_372_160, 87.6),
    "yolo11x": (56_966_176, 196.0),
    "yolov8n": (3_157_200, 8.9),
    "yolov8s": (11_166_560, 28.8),
    "yolov8m": (25_902_640, 79.3),
    "yolov8l": (43_691_520, 165.7),
    "yolov8x": (68_229_648, 258.5),
}
"""Name -> weights and GFLOPs at 640 x 640, as Ultralytics' model summaries state them."""


@pytest.mark.parametrize(("name", "figures"), PUBLISHED.items())
def test_weights_and_operations_are_the_published_ones(name, figures):
    torch = pytest.importorskip("torch")
    from forerun.features.published.yolo import detector

    weights, gflops = figures
    with torch.device("meta"):
        module = detector(name)
    assert sum(parameter.numel() for parameter in module.parameters()) == weights
    table = OperatorTable.of_graph(network_named(name))
    assert table.flops.sum() / 1e9 == pytest.approx(gflops, rel=0.015)


@pytest.mark.parametrize("name", ["yolo11n", "yolov8n"])
def test_a_detector_runs_and_gives_a_box_and_scores_of_each_place(name):
    torch = pytest.importorskip("torch")
    from forerun.features.published.yolo import detector

    with torch.no_grad():
        found = detector(name).eval()(torch.zeros(2, 3, 640, 640))
    assert found.shape == (2, 84, 8400)
    assert bool(((found[:, 4:] >= 0) & (found[:, 4:] <= 1)).all())
