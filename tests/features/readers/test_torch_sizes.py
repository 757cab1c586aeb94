"""Operators of torchvision in torch modules, and results whose number depends on the data."""

import json
import subprocess
import sys
import textwrap

import pytest

SCRIPT = """
    import json
    import torch
    from torch.library import Library, get_ctx, register_fake

    library = Library("torchvision", "DEF")
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define(
        "roi_align(Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, "
        "SymInt pooled_width, int sampling_ratio, bool aligned) -> Tensor"
    )
    library.define(
        "deform_conv2d(Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, "
        "SymInt stride_h, SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, "
        "SymInt dilation_w, SymInt groups, SymInt offset_groups, bool use_mask) -> Tensor"
    )

    @register_fake("torchvision::nms")
    def _(dets, scores, threshold):
        return dets.new_empty(get_ctx().new_dynamic_size(), dtype=torch.int64)

    @register_fake("torchvision::roi_align")
    def _(x, rois, scale, height, width, ratio, aligned):
        return x.new_empty((rois.shape[0], x.shape[1], height, width))

    @register_fake("torchvision::deform_conv2d")
    def _(x, weight, *others):
        return x.new_empty((x.shape[0], weight.shape[0], x.shape[2] // 2, x.shape[3] // 2))

    from forerun.features.readers.torch_trace import trace_module

    class Deformable(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(8, 3, 3, 3))

        def forward(self, x, offset):
            one = torch.zeros(1)
            sizes = (2, 2, 1, 1, 1, 1, 1, 1)
            return torch.ops.torchvision.deform_conv2d(
                x, self.weight, offset, one, one, *sizes, False
            )

    class Regions(torch.nn.Module):
        def forward(self, x, boxes):
            return torch.ops.torchvision.roi_align(x, boxes, 0.5, 7, 7, 2, True)

    class Kept(torch.nn.Module):
        def forward(self, x):
            keep = torch.ops.torchvision.nms(x, x.sum(-1), 0.5)
            return torch.relu(x[keep])

    class Chosen(torch.nn.Module):
        def forward(self, x):
            return x[x > 0].relu()

    image, rows = torch.zeros(1, 3, 32, 32), torch.zeros(100, 4)
    asked = {
        "deformable": (Deformable(), (image, torch.zeros(1, 18, 16, 16))),
        "regions": (Regions(), (image, torch.zeros(10, 5))),
        "kept": (Kept(), (rows,)),
        "chosen": (Chosen(), (rows,)),
    }
    found = {}
    for name, (module, inputs) in asked.items():
        graph = trace_module(module, inputs, batch_size=50)
        found[name] = graph.to_json()
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def graphs():
    """Graphs by name, traced in a process of their own, where torchvision is not imported."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.slow
def test_a_deformable_convolution_is_a_convolution(graphs):
    (made,) = graphs["deformable"]["operators"]
    assert (made["kind"], made["name"]) == ("conv", "torchvision::deform_conv2d")
    assert made["output_shapes"] == [[50, 8, 16, 16]]
    assert made["attributes"] == {
        "groups": 1,
        "kernel": [3, 3],
        "padding": [1, 1],
        "stride": [2, 2],
    }


@pytest.mark.slow
def test_pooling_of_regions_is_pooling(graphs):
    (made,) = graphs["regions"]["operators"]
    assert (made["kind"], made["output_shapes"]) == ("pool", [[50, 3, 7, 7]])


@pytest.mark.slow
def test_a_suppression_is_taken_to_keep_every_box(graphs):
    *_, suppression, gathered, last = graphs["kept"]["operators"]
    assert (suppression["kind"], suppression["name"]) == ("unknown", "torchvision::nms")
    assert suppression["output_shapes"] == [[50]]
    assert last["output_shapes"] == gathered["output_shapes"] == [[50, 4]]
    assert "depends on the data" in graphs["kept"]["assumptions"][0]


@pytest.mark.slow
def test_a_mask_is_taken_to_select_every_element(graphs):
    assert graphs["chosen"]["operators"][-1]["output_shapes"] == [[200]]
    assert "assumptions" not in graphs["regions"]
