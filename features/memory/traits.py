"""Traits of a network: sizes of its convolutions by class, and shares of its operators.

cuDNN chooses an algorithm, and with it a workspace, by the geometry of a convolution. PyTorch runs
depthwise convolutions in its own kernels without a workspace; convolutions with several channels
per group, with strides, with large kernels, and those suited to Winograd's algorithm differ as
well. A size is therefore computed for each of these classes.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.graph import Operator
from forerun.features.caches import GraphKey, kept_by_graph

CLASSES: Final = (
    "channel_groups",
    "unfolded",
    "winograd",
    "large_kernel",
    "strided",
    "full_spatial",
)
"""Classes of convolutions other than depthwise; one convolution may be in several.

- `channel_groups`: several groups, with several channels each.
- `unfolded`: plain spatial ones; their size is that of the matrix that matrix multiplication reads
  (`im2col`), which a workspace may hold.
- `winograd`: plain 3 x 3 ones without strides, in transformed tiles of 6 x 6 for 4 x 4 results.
- `large_kernel`: plain ones with more than nine weights per pair of channels.
- `strided`: plain spatial ones with strides.
- `full_spatial`: all spatial ones.

Except for `unfolded` and `winograd`, sizes are those of the input and the result.
"""
_TILE: Final = 36 / 16
_SMALL_KERNEL: Final = 9

TRAITS: Final = (
    "weights",
    "activations",
    "live",
    "grouped_largest",
    "pointwise_largest",
    "spatial_largest",
    "spatial_all",
    "grouped_all",
    "pointwise_all",
    *(f"{which}_{how}" for which in CLASSES for how in ("largest", "all")),
    "traffic",
    "batch_norms",
    "layer_norms",
    "attentions",
    "convolutions",
)
"""Names of `MemoryPlan.traits`: memory over `reserved`, then counts over all operators."""
SHARES: Final = ("batch_norm", "layer_norm", "attention", "conv")
"""Operator kinds of the last traits."""
OVER_RESERVED: Final = TRAITS[: -len(SHARES)]


@dataclass(frozen=True, slots=True)
class NetworkSizes:
    """Sizes of a network's convolutions and results at a batch size, MiB.

    Attributes:
        largest_convolution: input and output of the largest plain spatial convolution.
        convolutions: inputs and outputs of all of them.
        over_reserved: sizes of `TRAITS` from `grouped_largest` to `traffic`.
        shares: the remaining traits, which do not depend on the batch size.
    """

    largest_convolution: float
    convolutions: float
    over_reserved: tuple[float, ...]
    shares: tuple[float, ...]


def network_sizes(key: GraphKey, factor: float, unit: float) -> NetworkSizes:
    """Sizes of a network.

    Args:
        key: its graph.
        factor: batch size over the graph's own.
        unit: MiB per element.
    """
    known, scale = _elements(key), unit * np.array([1.0, factor])
    sizes = {which: scale @ each for which, each in known.convolutions.items()}
    largest = {which: float(each.max(initial=0.0)) for which, each in sizes.items()}
    summed = {which: float(each.sum()) for which, each in sizes.items()}
    return NetworkSizes(
        largest["s"],
        summed["s"],
        (
            *(largest[which] for which in "gps"),
            *(summed[which] for which in "sgp"),
            *(size for which in CLASSES for size in (largest[which], summed[which])),
            float(scale @ known.written),
        ),
        known.shares,
    )


@dataclass(frozen=True, slots=True)
class _Elements:
    """Batch-independent elements (first row) and batch-dependent ones (second).

    Attributes:
        written: (2,) results of all operators.
        convolutions: class of `_convolution` or `CLASSES` -> (2, n) elements of n convolutions.
        shares: shares of operators of the kinds `SHARES`.
    """

    written: Column
    convolutions: Mapping[str, Column]
    shares: tuple[float, ...]


@kept_by_graph()
def _elements(key: GraphKey) -> _Elements:
    operators, written = key.graph.operators, np.zeros(2)
    found: dict[str, list[tuple[float, float]]] = {which: [] for which in (*"sgp", *CLASSES)}
    for op in operators:
        results = float(sum(map(prod, op.output_shapes)))
        written[int(op.batched)] += results
        if op.kind == "conv":
            both = results + sum(map(prod, op.input_shapes))
            for which, size in ((_convolution(op), both), *_classes(op, both)):
                found[which].append((0.0, size) if op.batched else (size, 0.0))
    kinds = Counter(op.kind for op in operators)
    n = max(1, len(operators))
    return _Elements(
        written,
        {which: np.array(sizes).reshape(-1, 2).T for which, sizes in found.items()},
        tuple(kinds[kind] / n for kind in SHARES),
    )


def _convolution(op: Operator) -> str:
    """`s` for spatial, `g` for spatial with groups, `p` for pointwise."""
    if prod(_sides(op, "kernel")) == 1:
        return "p"
    return "s" if op.attributes.get("groups", 1) == 1 else "g"


def _classes(op: Operator, both: float) -> Iterator[tuple[str, float]]:
    """Classes of a convolution, each with its size in elements.

    Args:
        op: a convolution.
        both: elements of its input and its result together.
    """
    if not op.input_shapes or not op.output_shapes or len(op.input_shapes[0]) < 2:
        return
    kernel, groups, channels = _sides(op, "kernel"), op.attributes.get("groups", 1), _channels(op)
    if groups != 1 and groups == channels:
        return
    weights, plain = prod(kernel), groups == 1
    if not plain:
        yield "channel_groups", both
    if weights == 1:
        return
    yield "full_spatial", both
    if plain:
        result = op.output_shapes[0]
        yield "unfolded", float(channels * weights * result[0] * prod(result[2:]))
        if kernel == (3, 3) and prod(_sides(op, "stride")) == 1:
            yield "winograd", _TILE * both
        if weights > _SMALL_KERNEL:
            yield "large_kernel", both
        if prod(_sides(op, "stride")) > 1:
            yield "strided", both


def _channels(op: Operator) -> int:
    return op.input_shapes[0][1]


def _sides(op: Operator, name: str) -> tuple[int, ...]:
    found = op.attributes.get(name, (1,))
    return found if isinstance(found, tuple) else (1,)
