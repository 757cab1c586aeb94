"""Training of one member of the graph network, whose best epoch is chosen on held-out rows."""

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
Index = NDArray[np.intp]
Progress = Callable[[int, float], None]

_WARM_UP = 0.2
_STEEPEST = 1.0


def train(
    batches: GraphBatches,
    log_measured: Column,
    weights: Column,
    train_index: Index,
    held_index: Index,
    *,
    shape: GraphShape,
    seed: int,
    progress: Progress = lambda epoch, error: None,
) -> "tuple[nn.ModuleList, Column]":
    """Train one member, and keep the epoch with the lowest error on the held-out rows.

    Args:
        batches: batches of all n rows.
        log_measured: (n,) logarithm of the measured seconds.
        weights: (n,) weights in the loss.
        train_index: positions of the rows to train on.
        held_index: positions of the held-out rows.
        shape: layer sizes and training hyperparameters.
        seed: random seed of parameters, order and noise.
        progress: called with the epoch and the mean absolute log error on the held-out rows.

    Returns:
        Encoder and head of one member; predicted log seconds of the held-out rows.
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
        total_steps=shape.epochs * batches.count(train_index, shape.graphs_a_batch),
        pct_start=_WARM_UP,
    )
    lowest, best_answers, best_state = np.inf, np.zeros(len(held_index)), _copied(parts)
    for epoch in range(shape.epochs):
        parts.train()
        for batch in batches.batches(train_index, shape.graphs_a_batch, order):
            loss = _loss(parts, batch, log_measured, weights, shape.noise)
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(parts.parameters(), _STEEPEST)
            optimiser.step()
            schedule.step()
        answers = _answers(parts, batches, held_index, shape)
        error = float(
            np.average(np.abs(answers - log_measured[held_index]), weights=weights[held_index])
        )
        progress(epoch, error)
        if error < lowest:
            lowest, best_answers, best_state = error, answers, _copied(parts)
    parts.load_state_dict(best_state)
    return parts, best_answers


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Set the number of torch threads; restore it and torch's random state afterwards."""
    import torch

    previous = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        torch.set_num_threads(previous)


def _loss(
    parts: "nn.ModuleList", batch: Batch, log_measured: Column, weights: Column, noise: float
) -> "Tensor":
    """Weighted mean absolute error of the log seconds of a batch."""
    import torch

    target = torch.from_numpy(log_measured[batch.rows].astype(np.float32))
    weight = torch.from_numpy(weights[batch.rows].astype(np.float32))
    error = (_log_seconds(parts, batch, noise) - target).abs()
    return (error * weight).sum() / weight.sum()


def _log_seconds(parts: "nn.ModuleList", batch: Batch, noise: float = 0.0) -> "Tensor":
    """Predicted log seconds of the q runs of a batch of graphs, shape (q,)."""
    import torch

    encode, answer = cast(Any, parts[0]), cast(Any, parts[1])
    values = {name: torch.from_numpy(value) for name, value in vars(batch).items()}
    features, node, run, runs = (values[name] for name in ("features", "node", "run", "runs"))
    if noise:
        features = features + noise * torch.randn_like(features)
    states = encode(values["root"], features, values["before"], values["after"])
    terms, z = answer.terms(
        states.index_select(1, node),
        answer.linear("pair", values["pairs"][None]),
        answer.linear("run", runs[None]).index_select(1, run),
        values["seconds"],
    )
    total = torch.zeros(1, len(runs)).index_add(1, run, terms)
    # The shares are weights only: no gradient flows through them.
    weighted = z * (terms / total[:, run]).detach()[:, :, None]
    context = torch.zeros(1, len(runs), z.shape[2]).index_add(1, run, weighted)
    log_seconds: Tensor = answer.log_seconds(total, context, runs[None])[0]
    return log_seconds


def _answers(
    parts: "nn.ModuleList", batches: GraphBatches, rows: Index, shape: GraphShape
) -> Column:
    """Predicted log seconds of these rows, in evaluation mode, shape (len(rows),)."""
    import torch

    parts.eval()
    log_seconds = np.empty(len(batches.runs))
    with torch.no_grad():
        for batch in batches.batches(rows, shape.graphs_a_batch):
            log_seconds[batch.rows] = _log_seconds(parts, batch).numpy()
    return log_seconds[rows]


def _copied(parts: "nn.ModuleList") -> dict[str, Any]:
    return {name: value.detach().clone() for name, value in parts.state_dict().items()}
