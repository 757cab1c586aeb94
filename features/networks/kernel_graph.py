"""A lowered network as the arrays that a graph network reads: kernels, edges, counts.

Networks repeat blocks. Kernels with equal neighbourhoods of `HOPS` edges get the same embedding
from `HOPS` rounds of message passing, so they are stored once, with a count (colour refinement,
Weisfeiler and Leman 1968), without changing the result.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from forerun.data.graph import OperatorGraph
from forerun.features.lowering import Kernels, LoweringMode, lower_linked
from forerun.features.lowering.kernel_kinds import KERNEL_KINDS

Column = NDArray[np.float64]
Edges = NDArray[np.intp]

HOPS = 2

KERNEL_ROOTS: tuple[str, ...] = tuple(dict.fromkeys(kind.root for kind in KERNEL_KINDS))
ROOT_OF_KERNEL_KIND = np.array([KERNEL_ROOTS.index(kind.root) for kind in KERNEL_KINDS])

NODE_FEATURES: tuple[str, ...] = (
    *("log_work", "log_traffic", "log_fixed_traffic", "log_m", "log_n", "log_k", "log_groups"),
    *("aligned_8", "aligned_64", "tensor", "log_repeat", "log_readers", "log_sources"),
)
"""Features of a kernel, per sample where it grows with the batch; log(1 + value), in units of ten
(one for counts)."""


@dataclass(frozen=True)
class KernelGraph:
    """n distinct kernels of a lowered network.

    Attributes:
        kernels: one of each.
        count: (n,) how many of each the network launches.
        kind: (n,) positions in `KERNEL_KINDS`.
        root: (n,) positions in `KERNEL_ROOTS`.
        features: (n, len(NODE_FEATURES)).
        before: (2, e) sources and targets of messages from what a kernel reads.
        after: (2, e) sources and targets of messages from what reads a kernel.
    """

    kernels: Kernels
    count: Column
    root: NDArray[np.intp]
    features: NDArray[np.float32]
    before: Edges
    after: Edges

    @classmethod
    def of(cls, kernels: Kernels, edges: Edges) -> "KernelGraph":
        """The graph of a lowered network, with equal kernels merged.

        Args:
            kernels: launches of one pass.
            edges: (2, e) positions of writer and reader.
        """
        features = _features(kernels, edges)
        own = np.stack([getattr(kernels, name) for name in _DISTINGUISHING], axis=1)
        colour = _ids(np.concatenate([own, kernels.kind[:, None]], axis=1))
        for _ in range(HOPS):
            colour = _refined(colour, edges)
        _, chosen, group, count = np.unique(
            colour, return_index=True, return_inverse=True, return_counts=True
        )
        place = np.full(len(kernels), -1)
        place[chosen] = np.arange(len(chosen))
        writer, reader = edges
        into, out_of = place[reader] >= 0, place[writer] >= 0
        return cls(
            kernels=_take(kernels, chosen),
            count=count.astype(np.float64),
            root=ROOT_OF_KERNEL_KIND[kernels.kind[chosen]],
            features=features[chosen],
            before=np.stack([group[writer[into]], place[reader[into]]]),
            after=np.stack([group[reader[out_of]], place[writer[out_of]]]),
        )

    def __len__(self) -> int:
        return len(self.count)

    @cached_property
    def fingerprint(self) -> bytes:
        """Key, equal for graphs with equal results on every device and at every batch size."""
        columns = [getattr(self.kernels, name) for name in _PER_KERNEL]
        digest = hashlib.sha256()
        for array in (*columns, self.count, self.before, self.after):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.digest()


def kernel_graphs(graph: OperatorGraph, modes: Sequence[LoweringMode]) -> Iterator[KernelGraph]:
    """The kernel graphs of a network in several modes."""
    for kernels, edges in lower_linked(graph, modes):
        yield KernelGraph.of(kernels, edges)


_DISTINGUISHING = (
    *("work", "traffic", "fixed_work", "fixed_traffic", "m", "n", "k", "groups", "tensor"),
    "repeat",
)
_PER_KERNEL = ("kind", *_DISTINGUISHING)


def _features(kernels: Kernels, edges: Edges) -> NDArray[np.float32]:
    n = len(kernels)
    views = kernels.product_views
    large = (
        *(kernels.work + kernels.fixed_work, kernels.traffic, kernels.fixed_traffic),
        *(kernels.m, kernels.n, kernels.k, kernels.groups),
    )
    columns = [np.log1p(column) / 10.0 for column in large]
    columns += [
        views[1],
        views[2],
        kernels.tensor.astype(np.float64),
        np.log(np.maximum(kernels.repeat, 1.0)),
    ]
    columns += [np.log1p(np.bincount(side, minlength=n)) for side in edges]
    return np.stack(columns, axis=1).astype(np.float32)


def _refined(colour: NDArray[np.intp], edges: Edges) -> NDArray[np.intp]:
    """Colours refined by the multisets of colours on either side (Weisfeiler-Leman)."""
    sums = [colour.astype(np.uint64)]
    for salt, (nodes, other) in enumerate((edges, edges[::-1])):
        total = np.zeros(len(colour), dtype=np.uint64)
        np.add.at(total, nodes, _mixed(colour[other].astype(np.uint64), salt + 1))
        sums.append(total)
    return _ids(np.stack(sums, axis=1))


def _mixed(values: NDArray[np.uint64], salt: int) -> NDArray[np.uint64]:
    """SplitMix64, so that sums of hashed colours distinguish multisets."""
    mixed = values + np.uint64(salt * 0x9E3779B97F4A7C15 % 2**64)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return np.asarray(mixed ^ (mixed >> np.uint64(31)))


def _ids(rows: NDArray[np.generic]) -> NDArray[np.intp]:
    _, found = np.unique(rows, axis=0, return_inverse=True)
    return np.asarray(found, dtype=np.intp).reshape(-1)


def _take(kernels: Kernels, chosen: NDArray[np.intp]) -> Kernels:
    return replace(kernels, **{name: getattr(kernels, name)[chosen] for name in _PER_KERNEL})
