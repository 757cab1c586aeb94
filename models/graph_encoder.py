"""The graph network in torch, and its export to ONNX. The only file that needs torch.

Encoder: kernels of a lowered network -> a state each, by rounds of message passing along both
directions of the edges. It sees neither device nor batch size. Head: states, ratios of kernel to
device, the run -> corrections. The time is the sum over kernels of

    seconds x exp(correction) + launch x exp(correction of launches)

times a correction of the whole, from the kernels' states weighed by their share of the time. All
corrections start at zero, so training starts at the additive time of `KernelTimes`.
"""

import io
import logging
import warnings
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from forerun.features.kernel_graph import HOPS, KERNEL_ROOTS, NODE_FEATURES
from forerun.features.network_features import DEVICE_RATIOS
from forerun.models.graph_batches import Batch, GraphBatches
from forerun.models.graph_rows import PAIR_FEATURES, RUN_FEATURES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

Column = NDArray[np.float64]
Places = NDArray[np.intp]
Progress = Callable[[int, float], None]

GRAPH_INPUTS = ("root", "features", "before", "after")
RUN_INPUTS = ("states", "pairs", "runs", "busy", "launch")
RUN_OUTPUTS = ("log_seconds", "terms", "context")
RUN_WIDTH = len(RUN_FEATURES) + len(DEVICE_RATIOS)
_ROOT_WIDTH = 16
_WHOLE = 32
_MOST = 4.0
_TINY = 1e-9
_WARM_UP = 0.2
_STEEPEST = 1.0


@dataclass(frozen=True, slots=True)
class GraphShape:
    """Sizes of the network and how it is trained.

    Attributes:
        hidden: width of the embeddings.
        head: width of the states, the head's first layer.
        last: width of its last.
        epochs: passes over the graphs.
        graphs_a_batch: graphs encoded together, with all their runs.
        learning_rate: highest of the one-cycle schedule.
        weight_decay: of AdamW.
        dropout: share of the head's first layer left out while training.
        noise: standard deviation of what is added to kernels' features while training.
    """

    hidden: int = 64
    head: int = 64
    last: int = 32
    epochs: int = 16
    graphs_a_batch: int = 32
    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    dropout: float = 0.2
    noise: float = 0.05


def encoder(shape: GraphShape) -> "nn.Module":
    """(root, features, before, after) of n kernels -> (n, head) states."""
    import torch
    from torch import nn

    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.root = nn.Embedding(len(KERNEL_ROOTS), _ROOT_WIDTH)
            self.enter = nn.Linear(_ROOT_WIDTH + len(NODE_FEATURES), shape.hidden)
            rounds = range(HOPS)
            self.mix = nn.ModuleList(nn.Linear(3 * shape.hidden, shape.hidden) for _ in rounds)
            self.norm = nn.ModuleList(nn.LayerNorm(shape.hidden) for _ in rounds)
            self.leave = nn.Linear(shape.hidden, shape.head)

        def forward(
            self, root: "Tensor", features: "Tensor", before: "Tensor", after: "Tensor"
        ) -> "Tensor":
            h = torch.relu(self.enter(torch.cat([self.root(root), features], 1)))
            ones = torch.ones_like(features[:, :1])
            sides = [(edges[0], edges[1]) for edges in (before, after)]
            found = [torch.zeros_like(ones).index_add(0, to, ones[of]) for to, of in sides]
            for mix, norm in zip(self.mix, self.norm, strict=True):
                heard = [
                    torch.zeros_like(h).index_add(0, to, h[of]) / n.clamp(min=1.0)
                    for (to, of), n in zip(sides, found, strict=True)
                ]
                h = norm(h + torch.relu(mix(torch.cat([h, *heard], 1))))
            return self.leave(h)

    return Encoder()


def head(shape: GraphShape) -> "nn.Module":
    """(states, pairs, runs, busy, launch) -> (log seconds, terms, context).

    Runs of one graph: (n, head), (q, n, pairs), (q, runs), (q, n), (q, n) -> (q,), (q, n), (q, c).
    """
    import torch
    from torch import nn

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.pair = nn.Linear(len(PAIR_FEATURES), shape.head, bias=False)
            self.run = nn.Linear(RUN_WIDTH, shape.head, bias=False)
            self.last = nn.Linear(shape.head, shape.last)
            self.correct = nn.Linear(shape.last, 2)
            self.whole = nn.Linear(shape.last + RUN_WIDTH, _WHOLE)
            self.shift = nn.Linear(_WHOLE, 1)
            for layer in (self.correct, self.shift):
                nn.init.zeros_(layer.weight)
                nn.init.zeros_(layer.bias)

        def forward(
            self, states: "Tensor", pairs: "Tensor", runs: "Tensor", busy: "Tensor",
            launch: "Tensor",
        ) -> "tuple[Tensor, Tensor, Tensor]":
            z = self.inner(states, self.pair(pairs), self.run(runs)[:, None])
            terms = self.terms(z, busy, launch)
            total = terms.sum(1, keepdim=True)
            context = (z * (terms / total)[:, :, None]).sum(1)
            return self.log_seconds(total[:, 0], context, runs), terms, context

        def inner(self, states: "Tensor", pairs: "Tensor", runs: "Tensor") -> "Tensor":
            z = torch.relu(states + pairs + runs)
            if self.training:
                z = nn.functional.dropout(z, shape.dropout)
            return torch.relu(self.last(z))

        def terms(self, z: "Tensor", busy: "Tensor", launch: "Tensor") -> "Tensor":
            factors = torch.exp(self.correct(z).clamp(-_MOST, _MOST))
            return busy * factors[..., 0] + launch * factors[..., 1]

        def log_seconds(self, total: "Tensor", context: "Tensor", runs: "Tensor") -> "Tensor":
            of_whole = torch.relu(self.whole(torch.cat([context, runs], 1)))
            return torch.log(total + _TINY) + self.shift(of_whole)[:, 0]

    return Head()


@dataclass(frozen=True, slots=True)
class Trained:
    """A trained network as two ONNX files, and how it answers rows it was not trained on.

    Attributes:
        encoder, head: ONNX.
        held_log_seconds: log seconds of the rows held out.
    """

    encoder: bytes
    head: bytes
    held_log_seconds: Column


def train(
    batches: GraphBatches,
    log_measured: Column,
    weights: Column,
    taught: Places,
    held: Places,
    *,
    shape: GraphShape,
    seed: int,
    threads: int,
    progress: Progress = lambda epoch, loss: None,
) -> Trained:
    """Train on some rows, keep the pass that answers the held ones best, export it.

    Args:
        batches: all rows.
        log_measured: logarithm of their seconds.
        weights: their weights.
        taught: rows to train on.
        held: rows to stop by.
        shape: sizes and schedule.
        seed: of parameters, order and noise.
        threads: of torch.
        progress: told the pass and the mean absolute log error on the held rows.
    """
    import torch

    with _threads(threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        parts = torch.nn.ModuleList([encoder(shape), head(shape)])
        order = np.random.default_rng(seed)
        steps = shape.epochs * batches.count(taught, shape.graphs_a_batch)
        optimiser = torch.optim.AdamW(
            parts.parameters(), shape.learning_rate, weight_decay=shape.weight_decay
        )
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimiser, shape.learning_rate, total_steps=steps, pct_start=_WARM_UP
        )
        best, found, kept = np.inf, np.zeros(len(held)), _copied(parts)
        for epoch in range(shape.epochs):
            parts.train()
            for batch in batches.batches(taught, shape.graphs_a_batch, order):
                loss = _loss(parts, batch, log_measured, weights, shape.noise)
                optimiser.zero_grad()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parts.parameters(), _STEEPEST)
                optimiser.step()
                schedule.step()
            answers = _answers(parts, batches, held, shape)
            error = float(np.average(np.abs(answers - log_measured[held]), weights=weights[held]))
            progress(epoch, error)
            if error < best:
                best, found, kept = error, answers, _copied(parts)
        parts.load_state_dict(kept)
        return Trained(*export(parts[0], parts[1], shape), found)


def export(encode: "nn.Module", answer: "nn.Module", shape: GraphShape) -> tuple[bytes, bytes]:
    """Encoder in single, head in double precision, as ONNX with free sizes.

    The head answers many runs at once; in double precision a run does not depend on how many.
    """
    import torch
    from torch.export import Dim

    n, b, a, q = Dim("n"), Dim("b"), Dim("a"), Dim("q")
    kernels, edges = torch.arange(5), torch.tensor([[1, 2, 3], [0, 1, 2]])
    graph = (kernels, torch.rand(5, len(NODE_FEATURES)), edges, torch.rand(2, 4).long())
    wide = torch.float64
    run = (
        torch.rand(5, shape.head, dtype=wide),
        torch.rand(3, 5, len(PAIR_FEATURES), dtype=wide),
        torch.rand(3, RUN_WIDTH, dtype=wide),
        torch.rand(3, 5, dtype=wide),
        torch.rand(3, 5, dtype=wide),
    )
    return (
        _onnx(encode, graph, ({0: n}, {0: n}, {1: b}, {1: a}), GRAPH_INPUTS, ("states",)),
        _onnx(
            answer.double(), run, ({0: n}, {0: q, 1: n}, {0: q}, {0: q, 1: n}, {0: q, 1: n}),
            RUN_INPUTS, RUN_OUTPUTS,
        ),
    )


def _loss(
    parts: "nn.ModuleList", batch: Batch, log_measured: Column, weights: Column, noise: float
) -> "Tensor":
    import torch

    wanted = torch.from_numpy(log_measured[batch.rows].astype(np.float32))
    weight = torch.from_numpy(weights[batch.rows].astype(np.float32))
    error = (_log_seconds(parts, batch, noise) - wanted).abs()
    return (error * weight).sum() / weight.sum()


def _log_seconds(parts: "nn.ModuleList", batch: Batch, noise: float = 0.0) -> "Tensor":
    """What the head says of runs of many graphs, laid end to end; shape (q,)."""
    import torch

    encode, answer = parts[0], parts[1]
    values = {name: torch.from_numpy(value) for name, value in vars(batch).items()}
    features, node, run = values["features"], values["node"], values["run"]
    if noise:
        features = features + noise * torch.randn_like(features)
    states = encode(values["root"], features, values["before"], values["after"])
    runs = values["runs"]
    z = answer.inner(states[node], answer.pair(values["pairs"]), answer.run(runs)[run])
    terms = answer.terms(z, values["busy"], values["launch"])
    total = torch.zeros(len(runs)).index_add(0, run, terms)
    # The share is a weight, not a way to lower the loss.
    weighed = z * (terms / total[run]).detach()[:, None]
    context = torch.zeros(len(runs), z.shape[1]).index_add(0, run, weighed)
    log_seconds: Tensor = answer.log_seconds(total, context, runs)
    return log_seconds


def _answers(
    parts: "nn.ModuleList", batches: GraphBatches, rows: Places, shape: GraphShape
) -> Column:
    import torch

    parts.eval()
    found = np.empty(len(batches.runs))
    with torch.no_grad():
        for batch in batches.batches(rows, shape.graphs_a_batch):
            found[batch.rows] = _log_seconds(parts, batch).numpy()
    return found[rows]


def _copied(parts: "nn.ModuleList") -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in parts.state_dict().items()}


def _onnx(
    module: "nn.Module",
    example: "tuple[Tensor, ...]",
    free: tuple[dict[int, Any], ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> bytes:
    import torch

    file = io.BytesIO()
    loud = logging.getLogger("torch.onnx")
    level = loud.level
    loud.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(), example, dynamo=True, dynamic_shapes=free,
                input_names=list(inputs), output_names=list(outputs), verbose=False,
            )
            assert program is not None
            program.save(file)
    finally:
        loud.setLevel(level)
    return file.getvalue()


@contextmanager
def _threads(count: int) -> "Iterator[None]":
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
