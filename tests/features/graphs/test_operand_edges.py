"""Products of matrices keep both operands, also where a trace shows a chain or one sample alone."""

from dataclasses import replace

import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.workload import Network, TrainingSetup
from forerun.features.graphs.operand_edges import copied_operands, with_operand_edges
from forerun.features.memory.plan import memory_plan
from forerun.features.readers.torch_trace import trace_module
from tests.features.memory.test_training_step import BATCH, held_by_torch, held_by_walk


def talking():
    """Attention product by product, with a layer across heads before and after softmax."""
    from torch import nn

    class Talking(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.before, self.after = nn.Linear(32, 96), nn.Linear(4, 4), nn.Linear(4, 4)
            self.out = nn.Linear(32, 32)

        def forward(self, x):
            q, k, v = self.qkv(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4).unbind(0)
            scores = (q * 0.35) @ k.transpose(-2, -1)
            scores = self.before(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2).softmax(-1)
            scores = self.after(scores.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
            return self.out((scores @ v).transpose(1, 2).flatten(2))

    return Talking()


def test_a_traced_product_keeps_what_torch_keeps():
    import torch

    module = talking()
    after, _ = held_by_torch(module.train(), torch.zeros(BATCH, 10, 32))
    graph = trace_module(talking(), (torch.zeros(BATCH, 10, 32),), batch_size=BATCH)
    assert held_by_walk(graph) == after


HEADS, TOKENS, WIDTH = 4, 16, 8


def table(batch=1):
    """The table of a decomposed trace: heads of one sample are seen as a batch of matrices."""
    scores, rows = (HEADS, TOKENS, TOKENS), (TOKENS, 3 * HEADS * WIDTH)
    keys = (HEADS, WIDTH, TOKENS)
    queries = (HEADS, TOKENS, WIDTH)
    ops = (
        Operator("linear", "aten.addmm", ((TOKENS, 32),), (rows,), 32 * rows[1]),
        Operator("elementwise", "aten.mul", (queries,), ((1, *queries),), inputs=(0,)),
        Operator("matmul", "aten.bmm", (queries, keys), (scores,), inputs=(0, 1)),
        Operator("softmax", "aten._softmax", ((1, *scores),), ((1, *scores),), inputs=(2,)),
        Operator("matmul", "aten.bmm", (scores, queries), (queries,), inputs=(0, 3)),
    )
    return OperatorGraph(ops, batch_size=batch)


def test_operands_that_lie_within_rows_are_copied_by_larger_batches():
    found = copied_operands(table())
    queries, keys = (HEADS, TOKENS, WIDTH), (HEADS, WIDTH, TOKENS)
    assert found == {2: (queries, keys), 4: (queries,)}
    assert copied_operands(table(batch=2)) == {}


def test_copies_are_kept_in_place_of_what_they_are_copied_from():
    graph = table()
    apart = replace(graph, batch_size=2)
    setup = TrainingSetup("none")
    copied, plain = (
        memory_plan(Network(g, 64 * g.batch_size, "fp32", "training", setup)).parts["activations"]
        for g in (graph, apart)
    )
    assert copied != pytest.approx(plain, rel=0.01)


def test_graphs_without_such_products_stay_as_they_are():
    shape = ((1, 8),)
    graph = OperatorGraph((Operator("linear", "fc", shape, shape, 64),))
    assert with_operand_edges(graph) is graph
