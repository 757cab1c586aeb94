"""Cycles and area of designs of programs in the training set, by a graph network over their loops.

`DesignBoost` averages its answers with those of its boosters. The network is trained in torch
(`forerun.models.hls_designs.loop_module`) and evaluated by onnxruntime, in double precision, so
that an answer does not depend on how many others are in the same batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Column, Matrix
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.hls_designs.features import (
    ARE_SHARES,
    FLOORS,
    METRICS,
    Key,
    log_values,
    network_matrix,
    program_key,
)
from forerun.models.hls_designs.loop_batches import LoopBatches, ShuffledBatches
from forerun.models.hls_designs.loop_module import (
    OUTPUT,
    LoopShape,
    arguments,
    export,
    joined,
    network,
)

NETWORK_SHARE: Mapping[str, float] = {
    "latency_cycles": 0.75,
    "util_dsp": 0.7,
    "util_bram": 0.6,
    "util_lut": 0.7,
    "util_ff": 0.6,
}
"""Metric -> weight of the loop network in answers for programs of the training set; the boosters
have the rest. Chosen on the designs that the published protocol sets aside for validation."""


if TYPE_CHECKING:
    from torch import Tensor

LOG_ERROR: Final = (0.5, 0.4, 0.4, 0.2, 0.2)
"""Typical error of each metric in log2; the unit of the first part of the loss."""
ERROR: Final = (0.5, 0.24, 0.08, 0.14, 0.08)
"""Typical error of log2 of the cycles and of shares; the unit of the second part of the loss."""
LOG_LIMIT, LIMIT = 2.0, 10.0
"""Errors, in these units, from which on the loss is linear."""
WARM_UP = 0.1
"""Share of the steps in which the learning rate rises."""
LARGEST_GRADIENT = 1.0
"""Norm to which gradients are clipped."""
LARGEST_LOG = 8.0
"""log2 of the largest share that the loss tells from others."""
SEEDS_APART = 100
_FLOORS: Final = np.array([FLOORS[metric] for metric in METRICS])
MOST_DESIGNS = 512
"""Designs in one call of onnxruntime, so that its activations fit into a processor's cache."""


@dataclass(frozen=True)
class LoopNetwork:
    """A fitted ensemble for the programs of a training set.

    Attributes:
        first: program and tool version -> number of its first loop's learnt vector.
        content: serialised ONNX file.
    """

    first: Mapping[Key, int]
    content: bytes

    @classmethod
    def fit(
        cls, rows: Measurements, matrix: Matrix, shape: LoopShape, members: int, seed: int
    ) -> Self:
        """Train so many networks, which differ in their seeds.

        Args:
            rows: n designs with the five metrics.
            matrix: their features, (n, len(FEATURES)).
            shape: layer sizes and training hyperparameters.
            members: size of the ensemble.
            seed: of the first member.
        """
        first, vectors = _vectors(rows.queries)
        matrix = network_matrix(rows.queries, matrix)
        trees = LoopBatches.of(rows.queries, matrix, first)
        measured = np.column_stack([rows.values[metric] for metric in METRICS])
        logs = log_values(measured)
        of_loops, of_designs = _moments(trees.features), _moments(matrix)
        parts = []
        for number in range(members):
            own = seed * SEEDS_APART + number
            batches = ShuffledBatches(trees, logs, shape.rows, np.random.default_rng(own))
            with seeded_torch(own):
                part = network(shape, of_loops, of_designs, vectors)
                _train(part, batches, shape)
            parts.append(part)
        whole = joined(parts, network(shape, of_loops, of_designs, vectors, members))
        return cls(first, export(whole.double()))

    def predict_log(self, queries: Sequence[Query], matrix: Matrix) -> Matrix:
        """log2 of the five metrics, floors included, for designs of programs in `first`.

        Args:
            queries: n designs.
            matrix: their features, (n, len(FEATURES)).

        Returns:
            (n, len(METRICS)), means over the members: of logarithms for cycles, of shares of the
            chip for the others.
        """
        matrix, found = network_matrix(queries, matrix), []
        for start in range(0, len(queries), MOST_DESIGNS):
            some = slice(start, start + MOST_DESIGNS)
            inputs = LoopBatches.of(queries[some], matrix[some], self.first).whole()
            found += self._session.run([OUTPUT], inputs)
        return np.concatenate([_mean_of_members(values) for values in found])

    @cached_property
    def _session(self) -> Any:
        return onnx_session(self.content)


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


def onnx_session(content: bytes) -> Any:
    """An `onnxruntime.InferenceSession` of serialised ONNX, on one thread of the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])


def _train(part: Any, batches: ShuffledBatches, shape: LoopShape) -> None:
    """Train a network by AdamW on a one-cycle schedule, and leave it in evaluation mode."""
    import torch

    optimiser = torch.optim.AdamW(
        part.parameters(), shape.learning_rate, weight_decay=shape.weight_decay
    )
    steps = shape.epochs * len(batches)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, shape.learning_rate, total_steps=steps, pct_start=WARM_UP
    )
    part.train()
    for _ in range(shape.epochs):
        for batch in batches:
            optimiser.zero_grad()
            _loss(part, batch).backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(part.parameters(), LARGEST_GRADIENT)
            optimiser.step()
            schedule.step()
    part.eval()


def _mean_of_members(logs: NDArray[np.float64]) -> Matrix:
    """Means over predictions of shape (members, n, len(METRICS)), in log2 with the floor."""
    scaled = np.where(ARE_SHARES, np.exp2(np.minimum(logs, LARGEST_LOG)), logs)
    means: Matrix = scaled.sum(axis=0) / len(scaled)
    return np.where(ARE_SHARES, np.log2(np.where(ARE_SHARES, means, 1.0)), means)


def averaged(
    boosted: Matrix, network: Matrix, share: Mapping[str, float] = NETWORK_SHARE
) -> Matrix:
    """Average of two predictions: of logarithms for cycles, of shares of the chip for the others.

    Args:
        boosted: n predictions of the boosters, log2 with the floor, (n, len(METRICS)).
        network: n predictions of the network, the same.
        share: metric -> weight of the network.

    Returns:
        log2 with the floor, (n, len(METRICS)).
    """
    weights = np.array([share[metric] for metric in METRICS])
    logs = (1.0 - weights) * boosted + weights * network
    mean = (1.0 - weights) * 2.0 ** np.minimum(boosted, LARGEST_LOG)
    mean += weights * 2.0 ** np.minimum(network, LARGEST_LOG)
    shares = np.log2(np.maximum(mean, _FLOORS))
    return np.where(ARE_SHARES, shares, logs)


def _moments(features: Matrix) -> tuple[Column, Column]:
    """Mean and standard deviation of each column, the latter at least 1e-3."""
    return features.mean(axis=0), features.std(axis=0) + 1e-3


def _vectors(queries: Sequence[Query]) -> tuple[dict[Key, int], int]:
    """Program -> number of its first loop's vector; number of vectors."""
    from forerun.features.hls.loop_tree import loop_tree

    programs = {program_key(query): query for query in queries}
    first, total = {}, 0
    for key in sorted(programs):
        first[key] = total
        total += len(loop_tree(programs[key].design).parents)
    return first, total


def _loss(part: Any, batch: Mapping[str, Any]) -> "Tensor":
    """Huber losses of logarithms and of shares, in units of typical errors, added up."""
    import torch

    predicted, measured = part(*arguments(batch))[0], batch["log_measured"]
    logs = (predicted - measured) / torch.tensor(LOG_ERROR)
    scales = [
        torch.cat([x[:, :1], torch.exp2(x[:, 1:].clamp(max=LARGEST_LOG))], 1)
        for x in (predicted, measured)
    ]
    errors = (scales[0] - scales[1]) / torch.tensor(ERROR)
    total: Tensor = _huber(logs, LOG_LIMIT).sum() + _huber(errors, LIMIT).sum()
    return total / len(predicted)


def _huber(errors: "Tensor", limit: float) -> "Tensor":
    import torch

    found: Tensor = torch.nn.functional.huber_loss(
        errors, torch.zeros_like(errors), reduction="none", delta=limit
    )
    return found
