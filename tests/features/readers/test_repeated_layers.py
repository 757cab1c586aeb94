"""A network read from three of its layers is the network traced whole, or is traced whole."""

import json

import pytest

from forerun.features.readers import torch_trace
from forerun.features.readers import torch_trace as repeated_layers
from forerun.features.readers.huggingface import HuggingFaceReader
from forerun.features.readers.input_sizes import InputSizes
from forerun.features.readers.torch_trace import with_blocks
from tests.features.configurations import SIZES, traced

LAYERS = 6


def read(family, sizes):
    count = "n_layer" if family == "gpt2" else "num_hidden_layers"
    content = {"model_type": family, **sizes, count: LAYERS}
    return HuggingFaceReader().read(json.dumps(content).encode(), InputSizes(sequence_length=16))


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "llama", "gpt2"])
def test_three_layers_tell_of_all(family, monkeypatch):
    counted = []
    trace = torch_trace.trace_module

    def counting(*given, **options):
        counted.append(trace(*given, **options))
        return counted[-1]

    monkeypatch.setattr(torch_trace, "trace_module", counting)
    graph = read(family, SIZES[family])
    assert len(counted) == 2
    assert max(map(len, counted)) < 0.7 * len(graph)
    monkeypatch.setattr(repeated_layers, "FEWEST_LAYERS", 1000)
    assert graph == read(family, SIZES[family])


def test_layers_that_differ_are_not_alike():
    import torch

    even = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(LAYERS))
    odd = torch.nn.ModuleList([*(torch.nn.Linear(4, 4) for _ in range(5)), torch.nn.Linear(4, 8)])
    slow = torch.nn.ModuleList(torch.nn.Dropout(0.1 if i < 5 else 0.2) for i in range(LAYERS))
    for layers, alike in ((even, 1), (odd, 0), (slow, 0)):
        owner = torch.nn.Module()
        owner.layers = layers
        assert len(list(repeated_layers._lists_of_equal_layers(owner))) == alike


def test_blocks_are_added_where_they_repeat():
    two, three = traced("llama", 2), traced("llama", 3)
    assert with_blocks(two, 1, three) == three
    assert with_blocks(three, 2, two) == traced("llama", 5)
