"""The graph network in torch and PyTorch Geometric, and its export to ONNX.

The encoder maps the kernels of a lowered network to embeddings ("states"), by rounds of message
passing along both directions of the edges (GraphSAGE with mean aggregation, Hamilton et al. 2017).
Its inputs depend neither on the device nor on the batch size. The head maps the states, ratios of
kernels to the device and features of the run to corrections. The time is the sum over kernels of

    seconds x exp(correction) + launch x exp(correction of launches)

times a correction of the whole, which is computed from the mean of the kernels' hidden states
weighted by their shares of the time. All corrections start at zero, so training starts at the
additive time of `AdditiveLatencyModel`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from forerun.features.networks.kernel_graph import HOPS, KERNEL_ROOTS, NODE_FEATURES
from forerun.models.graph_network.inputs import PAIR_FEATURES, RUN_FEATURES
from forerun.models.neural import geometric, onnx_bytes, stacked

if TYPE_CHECKING:
    from torch import Tensor, nn

GRAPH_INPUTS = ("root", "x", "before_index", "after_index")
RUN_INPUTS = ("states", "node_index", "run_batch", "pairs", "seconds", "runs")
RUN_OUTPUTS = ("log_seconds", "terms")
_ROOT_WIDTH = 16
_WHOLE = 32
_MOST = 4.0
_TINY = 1e-9


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Layer sizes and training hyperparameters of the graph network.

    Attributes:
        hidden: width of the encoder's hidden layers.
        head: width of the states and of the head's first layer.
        last: width of the head's last hidden layer.
        epochs: passes over the training graphs.
        graphs_a_batch: graphs in a batch, each with all its runs.
        learning_rate: maximum of the one-cycle schedule.
        weight_decay: weight decay of AdamW.
        dropout: dropout rate of the head's first layer.
        noise: standard deviation of the Gaussian noise on kernels' features during training.
    """

    hidden: int = 32
    head: int = 24
    last: int = 12
    epochs: int = 12
    graphs_a_batch: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    dropout: float = 0.2
    noise: float = 0.05


def encoder(shape: GraphShape) -> "nn.Module":
    """A module that maps the inputs `GRAPH_INPUTS` of n kernels to their states, (n, head)."""
    import torch
    from torch import nn

    convolution = geometric().nn.SAGEConv
    width = shape.hidden

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.root = nn.Embedding(len(KERNEL_ROOTS), _ROOT_WIDTH)
            self.enter = nn.Linear(_ROOT_WIDTH + len(NODE_FEATURES), width)
            self.before = nn.ModuleList(convolution(width, width) for _ in range(HOPS))
            self.after = nn.ModuleList(
                convolution(width, width, root_weight=False, bias=False) for _ in range(HOPS)
            )
            self.norm = nn.ModuleList(nn.LayerNorm(width) for _ in range(HOPS))
            self.leave = nn.Linear(width, shape.head)

        def forward(
            self, root: "Tensor", x: "Tensor", before_index: "Tensor", after_index: "Tensor"
        ) -> "Tensor":
            h = torch.relu(self.enter(torch.cat([self.root(root), x], 1)))
            for before, after, norm in zip(self.before, self.after, self.norm, strict=True):
                h = norm(h + torch.relu(before(h, before_index) + after(h, after_index)))
            states: Tensor = self.leave(h)
            return states

    return Encoder()


def head(shape: GraphShape) -> "nn.Module":
    """A module that maps the inputs `RUN_INPUTS` to (log seconds, terms).

    A pair is a kernel in a run. For q runs of graphs with n kernels in all, which make p pairs, the
    inputs are states (n, head), the kernel and the run of each pair (p,), features of the pairs
    (p, len(PAIR_FEATURES)), their busy and launch seconds (p, 2), and features of the runs
    (q, len(RUN_FEATURES)). The outputs are the logarithm of each run's seconds (q,) and the seconds
    of each pair before the correction of the whole (p,).
    """
    import torch
    from torch import nn

    add_pool = geometric().nn.global_add_pool

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = nn.Linear(len(PAIR_FEATURES), shape.head)
            self.run = nn.Linear(len(RUN_FEATURES), shape.head)
            self.dropout = nn.Dropout(shape.dropout)
            self.last = nn.Linear(shape.head, shape.last)
            self.correct = nn.Linear(shape.last, 2)
            self.whole = nn.Linear(shape.last + len(RUN_FEATURES), _WHOLE)
            self.shift = nn.Linear(_WHOLE, 1)
            for layer in (self.correct, self.shift):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

        def forward(
            self,
            states: "Tensor",
            node_index: "Tensor",
            run_batch: "Tensor",
            pairs: "Tensor",
            seconds: "Tensor",
            runs: "Tensor",
        ) -> "tuple[Tensor, Tensor]":
            z = torch.relu(states[node_index] + self.pair(pairs) + self.run(runs)[run_batch])
            z = torch.relu(self.last(self.dropout(z)))
            factors = torch.exp(self.correct(z).clamp(-_MOST, _MOST))
            terms = (seconds * factors).sum(1, keepdim=True)
            total = add_pool(terms, run_batch, runs.shape[0])
            # The shares are weights only: no gradient flows through them.
            shares = (terms / total[run_batch]).detach()
            context = add_pool(z * shares, run_batch, runs.shape[0])
            whole = torch.relu(self.whole(torch.cat([context, runs], 1)))
            log_seconds = torch.log(total + _TINY) + self.shift(whole)
            return log_seconds[:, 0], terms[:, 0]

    return Head()


def member(shape: GraphShape) -> "nn.Module":
    """Encoder and head: a module that maps a batch of graphs to the log seconds of its q runs."""
    import torch
    from torch import nn

    class Member(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.head = encoder(shape), head(shape)

        def forward(self, batch: Any) -> "Tensor":
            x, *edges = (batch[name] for name in GRAPH_INPUTS[1:])
            if self.training:
                x = x + shape.noise * torch.randn_like(x)
            states = self.encoder(batch.root, x, *edges)
            log_seconds: Tensor = self.head(states, *(batch[name] for name in RUN_INPUTS[1:]))[0]
            return log_seconds

    return Member()


def heads(members: "Sequence[nn.Module]") -> "nn.Module":
    """The heads of an ensemble as one module, whose outputs are the means over its members.

    Args:
        members: heads; their states are stacked, (members, n, head).
    """
    import torch
    from torch import nn

    class Heads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = nn.ModuleList(members)

        def forward(self, states: "Tensor", *rest: "Tensor") -> "tuple[Tensor, Tensor]":
            outputs = [one(states[i], *rest) for i, one in enumerate(self.members)]
            log_seconds, terms = zip(*outputs, strict=True)
            return torch.stack(log_seconds).mean(0), torch.stack(terms).mean(0)

    return Heads()


def export(members: "Sequence[Any]", shape: GraphShape) -> tuple[bytes, bytes]:
    """The ensemble as two ONNX files with dynamic sizes: encoder in fp32, head in fp64.

    The head evaluates many runs at once; in double precision a result does not depend on how many.

    Args:
        members: trained modules of `member`; their heads become double.
        shape: layer sizes of all.

    Returns:
        Serialised encoder and head.
    """
    import torch
    from torch.export import Dim

    n, b, a, q, p = (Dim(name) for name in "nbaqp")
    edges = torch.tensor([[0, 1, 2], [1, 2, 3]])
    graph = (torch.arange(5), torch.ones(5, len(NODE_FEATURES)), edges, edges[:, :2])
    wide = torch.float64
    run = (
        torch.ones(len(members), 5, shape.head, dtype=wide),
        torch.arange(5).repeat(3),
        torch.arange(3).repeat_interleave(5),
        torch.ones(15, len(PAIR_FEATURES), dtype=wide),
        torch.ones(15, 2, dtype=wide),
        torch.ones(3, len(RUN_FEATURES), dtype=wide),
    )
    encode = stacked([one.encoder for one in members])
    answer = heads([one.head for one in members]).double()
    of_graph = (({0: n}, {0: n}, {1: b}, {1: a}),)
    of_run = ({1: n}, ({0: p}, {0: p}, {0: p}, {0: p}, {0: q}))
    return (
        onnx_bytes(encode, graph, of_graph, GRAPH_INPUTS, ("states",)),
        onnx_bytes(answer, run, of_run, RUN_INPUTS, RUN_OUTPUTS),
    )
