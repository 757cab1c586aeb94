"""Loop trees of many designs as flat arrays, and batches of them by level for the loop network.

A level holds all loops of a batch that have the same number of loops around them. Every batch ends
with one more design, of empty loops one inside the other, so that no level is empty; its answer is
dropped.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.columns import Matrix, Positions
from forerun.data.query import Query
from forerun.features.hls.loop_tree import LOOP_FEATURES, loop_tree
from forerun.models.hls_designs.features import Key, program_key

Arrays = dict[str, NDArray[Any]]


def input_names(levels: int) -> tuple[str, ...]:
    """Names of the network's inputs for so many levels, in order.

    `designs` has features of b designs. At each level, `loops` has features of n loops, `vector`
    the number of the learnt vector of each, `design` the design of each, and below the first
    level `parent` the position of the loop around each in the level above.
    """
    per_level = [f"{name}_{d}" for name in ("loops", "vector", "design") for d in range(levels)]
    return ("designs", *per_level, *(f"parent_{d}" for d in range(1, levels)))


@dataclass(frozen=True)
class LoopBatches:
    """Loop trees of n designs with t loops in all.

    Attributes:
        designs: (n, columns) features of the designs.
        start: (n + 1,) position of the first loop of each design, and t.
        features: (t, len(LOOP_FEATURES)).
        parents: (t,) position of the loop around each in its design; -1 for an outermost one.
        depths: (t,) loops around each.
        vectors: (t,) number of each loop's learnt vector.
    """

    designs: Matrix
    start: Positions
    features: Matrix
    parents: Positions
    depths: Positions
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
        sizes = np.array([len(tree.parents) for tree in trees], dtype=np.intp)
        start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.intp)
        own = np.arange(start[-1]) - np.repeat(start[:-1], sizes)
        first = np.array([programs[program_key(query)] for query in queries], dtype=np.intp)
        return cls(
            matrix,
            start,
            np.concatenate([tree.features for tree in trees]),
            np.concatenate([tree.parents for tree in trees]),
            np.concatenate([tree.depths for tree in trees]),
            np.repeat(first, sizes) + own,
        )

    @property
    def levels(self) -> int:
        """Number of levels of the deepest tree."""
        return int(self.depths.max()) + 1

    def batch(self, rows: Positions, levels: int) -> Arrays:
        """Inputs of the network for some designs and the empty one, by the names `input_names`.

        Args:
            rows: positions of b designs.
            levels: number of levels; deeper loops are left out.
        """
        sizes = self.start[rows + 1] - self.start[rows]
        design = np.repeat(np.arange(len(rows)), sizes)
        first = self.start[rows][design]
        before = (np.cumsum(sizes) - sizes)[design]
        loop = first + np.arange(len(design)) - before
        depth = self.depths[loop]
        order = np.argsort(depth, kind="stable")[: int((depth < levels).sum())]
        counts = np.bincount(depth[order], minlength=levels) + 1
        starts = np.cumsum(counts) - counts
        # Each level's last row is left for the empty design.
        place = np.empty(len(loop), dtype=np.int64)
        place[order] = np.arange(len(order)) + depth[order]
        at, chosen, total = place[order], loop[order], int(counts.sum())
        features = np.zeros((total, len(LOOP_FEATURES)))
        vectors, parents = np.zeros((2, total), dtype=np.int64)
        designs = np.full(total, len(rows), dtype=np.int64)
        features[at], vectors[at], designs[at] = (
            self.features[chosen],
            self.vectors[chosen],
            design[order],
        )
        parents[at] = place[np.maximum(self.parents[chosen], 0) + before[order]]
        inputs: Arrays = {"designs": np.zeros((len(rows) + 1, self.designs.shape[1]))}
        inputs["designs"][:-1] = self.designs[rows]
        for level, (start, count) in enumerate(zip(starts.tolist(), counts.tolist(), strict=True)):
            mine = slice(start, start + count)
            inputs[f"loops_{level}"], inputs[f"vector_{level}"] = features[mine], vectors[mine]
            inputs[f"design_{level}"] = designs[mine]
            if level:
                above = int(starts[level - 1])
                parents[start + count - 1] = start - 1
                inputs[f"parent_{level}"] = parents[mine] - above
        return inputs


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

        order, levels = self.random.permutation(len(self.log_measured)), self.trees.levels
        for start in range(0, len(order), self.rows):
            rows = order[start : start + self.rows]
            arrays = self.trees.batch(rows, levels)
            arrays["log_measured"] = self.log_measured[rows]
            tensors = {name: torch.from_numpy(values) for name, values in arrays.items()}
            yield {n: t.float() if t.dtype == torch.float64 else t for n, t in tensors.items()}
