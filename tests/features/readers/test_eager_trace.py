"""Eager traces are rows of the benchmark's own table: same calls, costs and edges."""

import json
from math import prod

import pandas as pd
import pytest

from forerun.data.errors import UnreadableModel
from forerun.features.operators.table import OperatorTable
from forerun.features.readers.model_zoo import EagerCall, eager_calls
from forerun.features.tables.timm_bench import timm_graphs

torch = pytest.importorskip("torch")
nn = torch.nn


class Stem(nn.Module):
    """The first operators of ResNet-18: the reference table has them as rows 0 to 4."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False)
        self.norm, self.act = nn.BatchNorm2d(64), nn.ReLU(inplace=True)
        self.pool = nn.MaxPool2d(3, 2, 1)

    def forward(self, x):
        return self.pool(self.act(self.norm(self.conv(x))))


class Encoder(nn.Module):
    """The first block of a small vision transformer, with a class token and positions."""

    def __init__(self, width=192, heads=3):
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 197, width))
        self.norm, self.heads = nn.LayerNorm(width), heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.places
        batch, length, width = x.shape
        split = self.qkv(self.norm(x)).reshape(batch, length, 3, self.heads, -1)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        return x + self.out(mixed.reshape(batch, length, width))


class Assigns(nn.Module):
    """Writes into a part of a tensor, splits and joins."""

    def forward(self, x):
        left, right = x.chunk(2, dim=1)
        joined = torch.cat([left.relu_(), right, torch.zeros(1, 1, 8, 8)], dim=1)
        return joined.add_(1).flatten(1).T


class Moves(nn.Module):
    """Makes places by itself and moves them, as ConViT does."""

    def forward(self, x):
        return x + torch.zeros(1, 1, *x.shape[2:]).to(x.device)


class Chooses(nn.Module):
    def forward(self, x):
        return x if x.sum() > 0 else -x


def image(size=224):
    return (torch.empty(1, 3, size, size),)


def rows_of(calls, model="net", size=224):
    frame = pd.DataFrame(calls)
    return frame.assign(model=model, img_size=size)


def test_rows_of_a_convolutional_stem_are_those_of_the_published_table():
    """Rows 0 to 4 of `resnet18` at 224 pixels in the reference table, copied."""
    assert eager_calls(Stem(), image()) == [
        EagerCall(
            *(0, "convolution", "[[1,3,224,224],[64,3,7,7]]", "[1,64,112,112]", ""),
            *(236027904, 159936, 802816, 9408),
            '{"k": [7, 7], "s": [2, 2], "p": [3, 3], "g": 1}',
        ),
        EagerCall(1, "empty", "[]", "[0]", "", 0, 0, 0, 0, ""),
        EagerCall(
            *(2, "native_batch_norm", "[[1,64,112,112],[64],[64],[64]]", "[1,64,112,112]", "0"),
            *(0, 803072, 802944, 128, ""),
        ),
        EagerCall(
            *(3, "relu", "[[1,64,112,112]]", "[1,64,112,112]", "2", 0, 802816, 802816, 0, "")
        ),
        EagerCall(
            *(4, "max_pool2d_with_indices", "[[1,64,112,112]]", "[1,64,56,56]", "3"),
            *(0, 802816, 401408, 0, ""),
        ),
    ]


def test_rows_of_an_attention_block_are_those_of_the_published_table():
    """Rows 0 to 12 of `vit_tiny_patch16_224` in the reference table, copied in part."""
    found = [(c.op, c.preds, c.flops, c.param_elems) for c in eager_calls(Encoder(), image())]
    assert found == [
        ("convolution", "", 57802752, 147648),
        ("cat", "0", 0, 0),
        ("add", "1", 0, 37824),
        ("native_layer_norm", "2", 0, 384),
        ("addmm", "3", 43573248, 576),
        ("mul", "4", 0, 0),
        ("mul", "4", 0, 0),
        ("bmm", "5,6", 14902656, 0),
        ("_safe_softmax", "7", 0, 0),
        ("bmm", "4,8", 14902656, 0),
        ("clone", "9", 0, 0),
        ("addmm", "10", 14524416, 192),
        ("add", "2,11", 0, 0),
    ]


def test_attention_is_read_back_as_one_operator():
    (graph,) = timm_graphs(rows_of(eager_calls(Encoder(), image()))).values()
    assert graph.source == "table"
    assert [op.kind for op in graph.operators].count("attention") == 1
    assert not graph.unknown


@pytest.mark.parametrize("make", [Stem, Encoder])
def test_flops_are_those_that_torch_counts(make):
    from torch.utils.flop_counter import FlopCounterMode

    with torch.device("meta"):
        module = make().eval()
        counter = FlopCounterMode(display=False)
        with counter, torch.no_grad():
            module(*image())
    calls = eager_calls(module, image())
    assert sum(c.flops for c in calls) == counter.get_total_flops()
    (graph,) = timm_graphs(rows_of(calls)).values()
    table = OperatorTable.of_graph(graph)
    assert table.flops[table.flops > 1e7].sum() == pytest.approx(
        counter.get_total_flops(), rel=0.02
    )


def test_views_pass_on_who_made_what_they_look_at():
    calls = eager_calls(Assigns(), (torch.empty(1, 4, 8, 8),))
    assert [(c.op, c.preds) for c in calls] == [
        ("relu", ""),
        ("zeros", ""),
        ("cat", "0,1"),
        ("add", "2"),
    ]


def test_what_a_module_moves_itself_is_a_copy_as_in_the_published_table():
    assert [c.op for c in eager_calls(Moves(), image(8))] == ["zeros", "_to_copy", "add"]


def test_elements_are_those_of_all_tensors_though_four_shapes_are_listed():
    class Joins(nn.Module):
        def forward(self, x):
            return torch.cat([x] * 6, dim=1)

    (call,) = eager_calls(Joins(), image(8))
    assert len(json.loads(call.in_shapes)) == 4
    assert call.in_elems == call.out_elems == 6 * prod((3, 8, 8))


def test_tracing_needs_no_memory_for_weights():
    with torch.device("meta"):
        vast = nn.Linear(1 << 20, 1 << 20)
    (product,) = eager_calls(vast, (torch.empty(1, 1 << 20, device="meta"),))
    assert product.flops == 2 << 40


def test_a_module_whose_way_depends_on_values_is_named():
    with pytest.raises(UnreadableModel, match=r"Chooses.*does not run on meta"):
        eager_calls(Chooses(), image(8))
