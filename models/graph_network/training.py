"""Training of one member of the graph network, whose best epoch is chosen on held-out rows."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from forerun.data.columns import Column
from forerun.models.graph_network.encoder import GraphShape, member
from forerun.models.neural import geometric, minimise

if TYPE_CHECKING:
    from torch import Tensor, nn

Progress = Callable[[int, float], None]

_WARM_UP = 0.2
_STEEPEST = 1.0


def train(
    training: Sequence[Any],
    held_out: Sequence[Any],
    *,
    shape: GraphShape,
    progress: Progress = lambda epoch, error: None,
) -> "tuple[nn.Module, Column]":
    """Train one member, and keep the epoch with the lowest error on the held-out rows.

    Args:
        training: data of `forerun.models.graph_network.batching.graph_data` to train on.
        held_out: data of the held-out rows.
        shape: layer sizes and training hyperparameters.
        progress: called with the epoch and the mean absolute log error on the held-out rows.

    Returns:
        The module of `forerun.models.graph_network.encoder.member`; predicted log seconds of the
        held-out rows, in the order of their data.
    """
    import torch

    loader = geometric().loader.DataLoader
    network, size = member(shape), shape.graphs_a_batch
    batches = list(loader(list(held_out), size))
    measured = torch.cat([batch.log_measured for batch in batches])
    weight = torch.cat([batch.weight for batch in batches])

    def held_out_answers() -> "Tensor":
        with torch.no_grad():
            return torch.cat([network(batch) for batch in batches])

    def held_out_error(epoch: int) -> float:
        error = float(_mean_error(held_out_answers(), measured, weight))
        progress(epoch, error)
        return error

    minimise(
        network,
        loader(list(training), size, shuffle=True),
        lambda batch: _mean_error(network(batch), batch.log_measured, batch.weight),
        shape,
        warm_up=_WARM_UP,
        largest_gradient=_STEEPEST,
        held_out_error=held_out_error,
    )
    return network, held_out_answers().double().numpy()


def _mean_error(predicted: "Tensor", measured: "Tensor", weight: "Tensor") -> "Tensor":
    """Weighted mean absolute error of log seconds."""
    return ((predicted - measured).abs() * weight).sum() / weight.sum()
