"""Torch programs: traced without weights, exact in the batch, read without unpickling.

Shared weights count once, and regions are entered.
"""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from forerun.data.errors import UnreadableModel
from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph, torch_trace
from forerun.features.readers.torch_export import TorchExportReader
from forerun.features.readers.torch_trace import trace_callable, trace_module

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    """A transformer block with scaled-dot-product attention."""

    def __init__(self, width=64, heads=4):
        super().__init__()
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.heads = nn.Linear(width, width), heads

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return x + self.out(y.transpose(1, 2).reshape(batch, length, width))


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


def convolutions():
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Conv2d(8, 16, 3, groups=8),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


MODELS = {
    "convolutions": (convolutions, (3, 32, 32)),
    "transformer": (Block, (16, 64)),
    "groups": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3, stride=2, groups=1), nn.GroupNorm(2, 8), nn.Conv2d(8, 8, 3, groups=4)
        ),
        (3, 32, 32),
    ),
    "windows": (Windows, (16, 8, 8)),
    "perceptron": (lambda: nn.Sequential(nn.LayerNorm(32), nn.Linear(32, 8), nn.GELU()), (5, 32)),
}


def plainly(module, shape):
    """A graph from an export at exactly this shape, without the probing batch."""
    owners = torch_trace._owners(module)
    module = module.eval().to("meta")
    with torch.no_grad():
        program = torch.export.export(module, (torch.empty(shape, device="meta"),), strict=False)
    return torch_trace._graph_of(program, owners, False, shape[0])


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("batch", [2, 7, 64])
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


@pytest.mark.parametrize("name", MODELS)
def test_flops_equal_torchs_own_counter(name):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    make, shape = MODELS[name]
    counter = FlopCounterMode(display=False)
    # The counter does not know the fused attention of CPUs; the plain one does the same products.
    with sdpa_kernel(SDPBackend.MATH), counter, torch.no_grad():
        make().eval()(torch.zeros(4, *shape))
    table = OperatorTable.of_graph(trace_module(make(), (torch.zeros(1, *shape),), batch_size=4))
    softmax = 5 * table.batch * table.m * table.n * (table.rows > 0)
    products = (table.flops - softmax)[table.k > 0].sum()
    assert products == pytest.approx(counter.get_total_flops(), rel=1e-6)


def test_views_are_folded_and_attention_is_one_operator():
    graph = trace_module(Block(), (torch.zeros(1, 16, 64),))
    kinds = [op.kind for op in graph.operators]
    assert kinds.count("attention") == 1
    assert kinds.count("linear") == 2
    assert not graph.unknown


def test_parameters_are_counted_once():
    module = convolutions()
    expected = sum(p.numel() for p in module.parameters())
    buffers = sum(b.numel() for b in module.buffers() if b.is_floating_point())
    graph = trace_module(module, (torch.zeros(1, 3, 32, 32),))
    assert graph.parameter_elements == expected + buffers


def test_an_exported_program_is_read_like_the_module(tmp_path):
    module, shape = convolutions().eval(), (2, 3, 32, 32)
    path = tmp_path / "program.pt2"
    torch.export.save(torch.export.export(module, (torch.zeros(shape),), strict=False), path)
    read, traced = read_graph(path), trace_module(module, (torch.zeros(shape),), batch_size=2)
    assert read.batch_size == 2
    np.testing.assert_allclose(
        OperatorTable.of_graph(read).flops, OperatorTable.of_graph(traced).flops
    )


def test_an_archive_with_a_pickle_is_not_opened(tmp_path):
    path = tmp_path / "evil.pt2"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x/data.pkl", b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(UnreadableModel, match=r"pickle of torch\.save"):
        read_graph(path)


def test_what_cannot_be_traced_says_why():
    class Stops(nn.Module):
        def forward(self, x):
            return x if x.sum() > 0 else -x

    with pytest.raises(UnreadableModel, match=r"torch\.export cannot trace it") as error:
        trace_module(Stops(), (torch.zeros(1, 4),))
    assert "use torch.where or torch.cond" in str(error.value)


def test_a_module_that_fails_is_one_line_with_its_place(tmp_path, monkeypatch, capfd):
    """What torch logs and prints of it is its error once more."""
    (tmp_path / "failing.py").write_text(
        "import torch\nlayer = torch.nn.Linear(10, 3)\n"
        "class Own(torch.nn.Module):\n    def forward(self, x):\n        return layer(x)\n"
        "def make():\n    return Own(), (torch.zeros(2, 3),)\n"
        "def broken():\n    raise ValueError('no checkpoint')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UnreadableModel) as error:
        trace_callable("failing:make")
    (line,) = str(error.value).splitlines()
    assert "(failing.py:5 in forward); give example inputs" in line
    assert error.value.__cause__ is not None
    assert capfd.readouterr() == ("", "")
    with pytest.raises(UnreadableModel, match=r"no checkpoint \(failing\.py:9 in broken\)"):
        trace_callable("failing:broken")


def test_a_function_is_traced_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "mymodel.py").write_text(
        "import torch\ndef make():\n    return torch.nn.Linear(4, 2), (torch.zeros(1, 4),)\n"
    )
    monkeypatch.chdir(tmp_path)
    assert [op.kind for op in trace_callable("mymodel:make").operators] == ["linear"]
    with pytest.raises(UnreadableModel, match="name a function"):
        trace_callable("mymodel:nothing")


def test_programs_of_torch_export_are_known_by_their_suffix():
    assert TorchExportReader().accepts(Path("model.pt2"), b"")
    assert not TorchExportReader().accepts(Path("model.onnx"), b"")


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
