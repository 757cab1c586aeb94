"""Buffers of weights that fully sharded training gathers, one block after another.

ZeRO stage 3 and FSDP keep a part of every weight on each device; before a block runs its weights
are gathered, and those of the next block at the same time; its gradients are complete until they
are scattered (Zhao et al. 2023, arXiv 2304.11277). Stage 2 holds one block's complete gradients.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from forerun.data.workload import NumberFormat, TrainingSetup
from forerun.features.graph_cache import GraphKey, kept_by_graph
from forerun.features.graphs.blocks import parts
from forerun.features.memory.allocation_requests import GRADIENTS, Requests
from forerun.features.memory.allocator import peaks
from forerun.features.memory.tensor_parallel import divided_weights
from forerun.features.memory.weights import graph_weights

GATHERED_AT_ONCE = 2
"""Blocks gathered at a time: the one that runs and the one that is prefetched."""
_HALF = {"amp", "amp_bf16"}


def casts_when_gathered(precision: NumberFormat, setup: TrainingSetup | None) -> bool:
    """Whether weights are cast to 16 bits as they are gathered, which replaces autocast.

    FSDP's `MixedPrecisionPolicy(param_dtype=bfloat16)`, as torchtitan uses it, and ZeRO stage 3 in
    16 bits gather copies of 32-bit shards; whatever is computed from them, norms and residuals
    too, is in 16 bits, while autocast leaves those in 32.
    """
    return precision in _HALF and setup is not None and setup.zero_stage == 3


def gathered_bytes(key: GraphKey, precision: NumberFormat, setup: TrainingSetup) -> int:
    """Bytes of gathered weights and gradients on a device on top of its shard; 0 below stage 2."""
    if setup.zero_stage < 2 or setup.data_parallel == 1:
        return 0
    weights, gradients = _largest(key, precision, setup)
    copies = GATHERED_AT_ONCE if setup.zero_stage == 3 else 0
    return int(copies * weights + gradients)


def reserved_by_stream(
    asked: Requests, sizes: NDArray[np.float64], *, expandable_segments: bool = False
) -> int:
    """Bytes that the allocator reserves where gradients come from a stream of their own.

    FSDP scatters gradients on another stream than that of the network (`foreach_reduce` of
    torch/distributed/fsdp), and the caching allocator has a pool for each stream: what gradients
    leave between two steps is not given to activations, nor the reverse.

    Args:
        asked: requests of one device.
        sizes: (tensors,) bytes of each.
        expandable_segments: the option of `forerun.features.memory.allocator`.
    """
    events, scattered = asked.events.tolist(), asked.category == GRADIENTS
    return sum(
        peaks(
            events,
            np.where(of_stream, sizes, 0.0).astype(np.int64).tolist(),
            expandable_segments=expandable_segments,
        ).reserved
        for of_stream in (scattered, ~scattered)
    )


@kept_by_graph()
def _largest(key: GraphKey, precision: NumberFormat, setup: TrainingSetup) -> tuple[float, float]:
    """Bytes of the weights and of the gradients of the largest part that is gathered at a time."""
    graph, item = key.graph, 2.0 if precision in _HALF else None
    known = graph_weights(graph, precision, setup)
    groups: list[Iterable[int]] = []
    for part in parts(graph):
        # Layers outside blocks, such as embeddings and heads, are gathered one by one.
        groups += [part.span] if part.block else [(place,) for place in part.span]

    def size(group: Iterable[int], *, trained: bool) -> float:
        return sum(
            w.elements * (item or w.item) / _devices(place)
            for place in group
            for w in known[place]
            if w.owner is None and (w.trained or not trained)
        )

    def _devices(place: int) -> int:
        return setup.tensor_parallel if divided_weights(graph.operators[place]) else 1

    return (
        max((size(group, trained=False) for group in groups), default=0.0),
        max((size(group, trained=True) for group in groups), default=0.0),
    )
