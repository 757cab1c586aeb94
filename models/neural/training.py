"""Training of torch modules with fixed seeds: AdamW on a one-cycle schedule, and ensembles."""

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn


class Hyperparameters(Protocol):
    """Hyperparameters of a training."""

    @property
    def epochs(self) -> int:
        """Passes over the training set."""

    @property
    def learning_rate(self) -> float:
        """Maximum of the one-cycle schedule."""

    @property
    def weight_decay(self) -> float:
        """Weight decay of AdamW."""


class Batches(Protocol):
    """Batches of a training set, such as a `torch.utils.data.DataLoader`."""

    def __len__(self) -> int:
        """Number of batches."""

    def __iter__(self) -> Iterator[Any]:
        """The batches of one pass over the training set."""


@contextmanager
def seeded_torch(seed: int) -> Iterator[None]:
    """Set torch's seed, and one thread; restore its random state and threads afterwards."""
    import torch

    previous = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            yield
    finally:
        torch.set_num_threads(previous)


def minimise(
    module: "nn.Module",
    batches: Batches,
    loss: "Callable[[Any], Tensor]",
    shape: Hyperparameters,
    *,
    warm_up: float = 0.3,
    largest_gradient: float,
) -> None:
    """Train a module, and leave it in evaluation mode.

    Args:
        module: to train.
        batches: iterated once in each epoch.
        loss: of one batch.
        shape: hyperparameters.
        warm_up: share of the steps in which the learning rate rises.
        largest_gradient: norm to which gradients are clipped.
    """
    import torch

    optimiser = torch.optim.AdamW(
        module.parameters(), shape.learning_rate, weight_decay=shape.weight_decay
    )
    steps = shape.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, shape.learning_rate, total_steps=steps, pct_start=warm_up
    )
    module.train()
    for _ in range(shape.epochs):
        for batch in batches:
            optimiser.zero_grad()
            loss(batch).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(module.parameters(), largest_gradient)
            optimiser.step()
            schedule.step()
    module.eval()


def stacked(members: "Sequence[nn.Module]") -> "nn.Module":
    """An ensemble as one module: the outputs of its members along a new first dimension."""
    import torch

    class Ensemble(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.members = torch.nn.ModuleList(members)

        def forward(self, *inputs: "Tensor") -> "Tensor":
            return torch.stack([member(*inputs) for member in self.members])

    return Ensemble()


def geometric() -> Any:
    """The package `torch_geometric`, imported without its deprecation warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch_geometric
        import torch_geometric.data
        import torch_geometric.loader
        import torch_geometric.nn
    return torch_geometric
