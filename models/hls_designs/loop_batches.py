"""Loop trees of many designs as flat arrays, and batches of them for the loop network.

Relations between loops are lists of positions in a batch, as rows of one array. Every row ends with
the position one past the last loop, where the network has a row of zeros.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Matrix, Positions
from forerun.data.query import Query
from forerun.features.hls.loop_tree import loop_tree
from forerun.models.hls_designs.features import Key, program_key

Arrays = dict[str, NDArray[Any]]
Relation = NDArray[np.intp]

INPUTS: Final = (
    *("designs", "loops", "vector", "design"),
    *("parent", "inside", "around", "of_design"),
)
"""Inputs of the network for b designs with n loops, in order.

`designs`: features of designs; `loops`: features of loops; `vector`: number of each loop's learnt
vector; `design`: design of each loop; `parent`: loop around each; `inside`, `around`: all loops
inside and around each; `of_design`: all loops of each design.
"""


@dataclass(frozen=True)
class LoopBatches:
    """Loop trees of n designs with t loops in all; positions are those in a design, -1 is none.

    Attributes:
        designs: (n, columns) features of the designs.
        start: (n + 1,) position of the first loop of each design, and t.
        features: (t, len(LOOP_FEATURES)).
        parents: (t,) position of the loop around each.
        inside: (t, k) positions of the loops inside each, and at least one -1.
        around: (t, m) positions of the loops around each, and at least one -1.
        vectors: (t,) number of each loop's learnt vector.
    """

    designs: Matrix
    start: Positions
    features: Matrix
    parents: Positions
    inside: Relation
    around: Relation
    vectors: Positions

    @classmethod
    def of(
        cls, queries: Sequence[Query], matrix: Matrix, programs: Mapping[Key, int]
    ) -> "LoopBatches":
        """The loop trees of n designs.

        Args:
            queries: n designs.
            matrix: their features, (n, columns).
            programs: program -> number of its first loop's vector.
        """
        trees = [loop_tree(query.design) for query in queries]
        sizes = [len(tree.parents) for tree in trees]
        start = np.cumsum([0, *sizes], dtype=np.intp)
        first = [programs[program_key(query)] for query in queries]
        vectors = [np.arange(one, one + size) for one, size in zip(first, sizes, strict=True)]
        return cls(
            matrix,
            start,
            np.concatenate([tree.features for tree in trees]),
            np.concatenate([tree.parents for tree in trees]),
            _stacked([tree.inside for tree in trees], start),
            _stacked([tree.around for tree in trees], start),
            np.concatenate(vectors),
        )

    def batch(self, rows: Positions) -> Arrays:
        """Inputs of the network for some designs, by the names `INPUTS`.

        Args:
            rows: positions of b designs.
        """
        sizes = self.start[rows + 1] - self.start[rows]
        first = np.cumsum(sizes) - sizes
        loop = np.repeat(self.start[rows] - first, sizes) + np.arange(sizes.sum())
        return self._inputs(rows, loop, first, sizes)

    def whole(self) -> Arrays:
        """Inputs of the network for all designs, as `batch`."""
        return self._inputs(slice(None), slice(None), self.start[:-1], np.diff(self.start))

    def _inputs(
        self, rows: Positions | slice, loops: Positions | slice, start: Positions, sizes: Positions
    ) -> Arrays:
        """Inputs of the network for b designs.

        Args:
            rows: positions of the designs.
            loops: positions of their loops.
            start: (b,) position in the batch of the first loop of each.
            sizes: (b,) loops of each.
        """
        design = np.repeat(np.arange(len(sizes)), sizes)
        first, slots = start[design], np.arange(sizes.max() + 1)
        every = np.where(slots < sizes[:, None], start[:, None] + slots, len(design))
        return {
            "designs": self.designs[rows],
            "loops": self.features[loops],
            "vector": self.vectors[loops],
            "design": design,
            "parent": _in_batch(self.parents[loops], first),
            "inside": _in_batch(self.inside[loops], first[:, None]),
            "around": _in_batch(self.around[loops], first[:, None]),
            "of_design": every,
        }


def _stacked(relations: Sequence[Relation], start: Positions) -> Relation:
    """Relations of several designs, one below the other, with a column of -1 at the end."""
    stacked = np.full((start[-1], max(one.shape[1] for one in relations) + 1), -1, dtype=np.intp)
    for first, one in zip(start.tolist(), relations, strict=False):
        stacked[first : first + len(one), : one.shape[1]] = one
    return stacked


def _in_batch(positions: Relation, first: Relation) -> Relation:
    """Positions in a batch from those in a design; none is one past the last loop."""
    return np.where(positions < 0, len(positions), positions + first)


@dataclass(frozen=True)
class ShuffledBatches:
    """Batches of tensors for training, in a new order in each pass.

    Attributes:
        trees: n designs.
        log_measured: (n, metrics) logarithms of the measured values.
        rows: designs of a batch.
        random: draws the orders.
    """

    trees: LoopBatches
    log_measured: Matrix
    rows: int
    random: np.random.Generator

    def __len__(self) -> int:
        """Number of batches."""
        return -(-len(self.log_measured) // self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Inputs and `log_measured` of each batch, in single precision."""
        import torch

        order = self.random.permutation(len(self.log_measured))
        for start in range(0, len(order), self.rows):
            rows = order[start : start + self.rows]
            arrays = {**self.trees.batch(rows), "log_measured": self.log_measured[rows]}
            tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
            yield {n: t.float() if t.dtype == torch.float64 else t for n, t in tensors.items()}
