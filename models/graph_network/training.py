"""Training of the graph network: one member on some rows, stopped by others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from forerun.models.graph_network.batching import Batch, GraphBatches
from forerun.models.graph_network.encoder import GraphShape, encoder, head

if TYPE_CHECKING:
    from torch import Tensor, nn

Column = NDArray[np.float64]
Places = NDArray[np.intp]
Progress = Callable[[int, float], None]

_WARM_UP = 0.2
_STEEPEST = 1.0


def train(
    batches: GraphBatches,
    log_measured: Column,
    weights: Column,
    taught: Places,
    held: Places,
    *,
    shape: GraphShape,
    seed: int,
    progress: Progress = lambda epoch, error: None,
) -> "tuple[nn.ModuleList, Column]":
    """Train on some rows and keep the pass that answers the held ones best.

    Args:
        batches: all rows.
        log_measured: logarithm of their seconds.
        weights: their weights.
        taught: rows to train on.
        held: rows to stop by.
        shape: sizes and schedule.
        seed: of parameters, order and noise.
        progress: told the pass and the mean absolute log error on the held rows.

    Returns:
        Encoder and head of one member; log seconds of the held rows.
    """
    import torch

    torch.manual_seed(seed)
    parts = torch.nn.ModuleList([encoder(shape), head(shape)])
    order = np.random.default_rng(seed)
    optimiser = torch.optim.AdamW(
        parts.parameters(), shape.learning_rate, weight_decay=shape.weight_decay
    )
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser,
        shape.learning_rate,
        total_steps=shape.epochs * batches.count(taught, shape.graphs_a_batch),
        pct_start=_WARM_UP,
    )
    best, found, kept = np.inf, np.zeros(len(held)), _copied(parts)
    for epoch in range(shape.epochs):
        parts.train()
        for batch in batches.batches(taught, shape.graphs_a_batch, order):
            loss = _loss(parts, batch, log_measured, weights, shape.noise)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parts.parameters(), _STEEPEST)
            optimiser.step()
            schedule.step()
        answers = _answers(parts, batches, held, shape)
        error = float(np.average(np.abs(answers - log_measured[held]), weights=weights[held]))
        progress(epoch, error)
        if error < best:
            best, found, kept = error, answers, _copied(parts)
    parts.load_state_dict(kept)
    return parts, found


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """So many threads of torch, and its random state given back afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(before)


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

    encode, answer = cast(Any, parts[0]), cast(Any, parts[1])
    values = {name: torch.from_numpy(value) for name, value in vars(batch).items()}
    features, node, run, runs = (values[name] for name in ("features", "node", "run", "runs"))
    if noise:
        features = features + noise * torch.randn_like(features)
    states = encode(values["root"], features, values["before"], values["after"])
    terms, z = answer.terms(
        states.index_select(1, node),
        answer.through("pair", values["pairs"][None]),
        answer.through("run", runs[None]).index_select(1, run),
        values["seconds"],
    )
    total = torch.zeros(1, len(runs)).index_add(1, run, terms)
    # The share is a weight, not a way to lower the loss.
    weighed = z * (terms / total[:, run]).detach()[:, :, None]
    context = torch.zeros(1, len(runs), z.shape[2]).index_add(1, run, weighed)
    log_seconds: Tensor = answer.log_seconds(total, context, runs[None])[0]
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
