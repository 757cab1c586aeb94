"""Tracing torch: scaled graphs equal plain ones, shared weights count once, regions are entered."""

import numpy as np
import pytest

from forerun.features.operators.table import OperatorTable
from forerun.features.readers import torch_trace
from forerun.features.readers.torch_trace import trace_module

torch = pytest.importorskip("torch")
nn = torch.nn


class Windows(nn.Module):
    """Attention inside windows of a feature map, as in Swin, by reshapes and products."""

    def __init__(self, width=16, window=4):
        super().__init__()
        self.qkv, self.window = nn.Linear(width, 3 * width), window

    def forward(self, x):
        batch, width, height, _ = x.shape
        side, count = self.window, height // self.window
        x = x.reshape(batch, width, count, side, count, side).permute(0, 2, 4, 3, 5, 1)
        q, k, v = self.qkv(x.reshape(-1, side * side, width)).chunk(3, dim=-1)
        weights = (q @ k.transpose(-2, -1)).softmax(-1)
        return (weights @ v).reshape(batch, -1, width).mean(1)


class Tied(nn.Module):
    """Input and output embedding are one weight."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(50, 8), nn.Linear(8, 50, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


class Regions(nn.Module):
    """The same layer plainly, under autocast and with gradients switched on."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x):
        x = self.layer(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.layer(x)
        with torch.enable_grad():
            return self.layer(x.float())


class Branches(nn.Module):
    """Which side runs is known in the run only."""

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: y + 1, lambda y: y - 1, (x,))


def plainly(module, shape):
    """A graph from an export at exactly this shape, without the probing batch."""
    owners = torch_trace._owners(module)
    module = module.eval().to("meta")
    with torch.no_grad():
        program = torch.export.export(module, (torch.empty(shape, device="meta"),), strict=False)
    return torch_trace._graph_of(program, owners, False, shape[0])


MODELS = {
    "groups": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, groups=1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, groups=4)
        ),
        (3, 32, 32),
    ),
    "windows": (Windows, (16, 8, 8)),
    "perceptron": (lambda: nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 8), nn.GELU()), (5, 32)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [2, 8])
def test_a_graph_scaled_from_one_sample_is_the_graph_traced_at_that_batch(name, batch):
    make, shape = MODELS[name]
    one = trace_module(make(), (torch.zeros(1, *shape),))
    scaled = OperatorTable.of_graph(one).at_batch(batch)
    traced = OperatorTable.of_graph(plainly(make(), (batch, *shape)))
    for column in (
        *("kind", "flops", "in_elements", "out_elements", "parameter_elements"),
        *("batch", "m", "n", "k", "rows", "width"),
    ):
        np.testing.assert_allclose(getattr(scaled, column), getattr(traced, column), err_msg=column)


def test_shared_weights_are_counted_once():
    graph = trace_module(Tied(), (torch.zeros((1, 4), dtype=torch.int64),))
    assert graph.parameter_elements == 50 * 8


def test_work_inside_regions_is_not_lost():
    graph = trace_module(Regions(), (torch.zeros(1, 8),))
    assert [op.kind for op in graph.operators].count("linear") == 3
    assert graph.parameter_elements == 8 * 8 + 8


def test_control_flow_is_counted_as_unknown():
    graph = trace_module(Branches(), (torch.zeros(1, 8),))
    assert graph.unknown == {"torch::cond": 1}
