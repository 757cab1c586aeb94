"""What torch exports to ONNX costs what the module costs, at every batch."""

import io
import warnings

import numpy as np
import pytest

from forerun.features.operators.table import OperatorTable
from forerun.features.readers import read_graph
from forerun.features.readers.torch_trace import declare_operators, trace_module
from tests.features.readers.onnx_files import node, read, stored

torch = pytest.importorskip("torch")
COLUMNS = ("flops", "in_elements", "out_elements", "parameter_elements", "batch", "m", "n", "k")


def product_flops(graph):
    """FLOPs of matrix products, the softmax inside attention left out."""
    table = OperatorTable.of_graph(graph)
    softmax = 5 * table.batch * table.m * table.n * (table.rows > 0)
    return float((table.flops - softmax)[table.k > 0].sum())


def exported(module, inputs, **options):
    """The bytes of an ONNX file, whatever the exporter warns of."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.get("dynamo"):
            program = torch.onnx.export(module, inputs, verbose=False, **options)
            return program.model_proto.SerializeToString()
        torch.onnx.export(module, inputs, buffer, dynamo=False, **options)
    return buffer.getvalue()


@pytest.fixture(scope="module")
def bert():
    """A BERT of two small layers, and the bytes of its export with free batch and length."""
    pytest.importorskip("onnxscript")
    # A torchvision for another build of torch would keep transformers from loading.
    declare_operators()
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=500,
    )
    module = transformers.BertModel(config).eval()
    free = {0: torch.export.Dim("batch", max=512), 1: torch.export.Dim("seq", min=2, max=512)}
    tokens = torch.ones((2, 16), dtype=torch.int64)
    content = exported(module, (tokens,), dynamo=True, dynamic_shapes=(free,))
    return module, content


@pytest.mark.slow
def test_an_exported_bert_costs_what_the_module_costs(bert):
    module, content = bert
    tokens = torch.zeros((1, 32), dtype=torch.int64)
    graph = read_graph(content, batch_size=4, sequence_length=32)
    traced = trace_module(module, (tokens,), batch_size=4)
    assert graph.batch_size == 4
    assert not graph.unknown
    assert product_flops(graph) == pytest.approx(product_flops(traced), rel=0.02)


@pytest.mark.parametrize("batch", [2, 8])
def test_an_exported_bert_scales_exactly_with_its_batch(bert, batch):
    one = read_graph(bert[1], sequence_length=32)
    many = read_graph(bert[1], batch_size=batch, sequence_length=32)
    scaled, whole = OperatorTable.of_graph(one).at_batch(batch), OperatorTable.of_graph(many)
    for column in COLUMNS:
        np.testing.assert_allclose(getattr(scaled, column), getattr(whole, column), err_msg=column)


class Recurrent(torch.nn.Module):
    """Embedding, two bidirectional layers and a classifier."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(100, 16)
        self.layers = torch.nn.LSTM(16, 32, 2, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(64, 5)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x))[0][:, -1])


def test_states_made_for_a_batch_are_no_weights():
    module, tokens = Recurrent().eval(), torch.zeros((2, 16), dtype=torch.int64)
    held = sum(p.numel() for p in module.parameters())
    content = exported(
        module, (tokens,), input_names=["tokens"], dynamic_axes={"tokens": {0: "batch", 1: "seq"}}
    )
    graph = read_graph(content, batch_size=2, sequence_length=16)
    assert graph.parameter_elements == pytest.approx(held, rel=0.001)
    traced = trace_module(Recurrent(), (tokens,), batch_size=2)
    assert product_flops(graph) == pytest.approx(product_flops(traced), rel=0.001)


def test_a_shape_may_name_one_tensor_twice():
    nodes = [
        node("Concat", ["n", "two", "two"], ["shape"], axis=0),
        node("Reshape", ["x", "shape"], ["a"]),
        node("ReduceMax", ["a"], ["y"], keepdims=0, axes=[2]),
    ]
    (reduced,) = read(nodes, [stored("n", [-1]), stored("two", [2])], batch_size=2).operators
    assert reduced.input_shapes == ((4, 2, 2),)
