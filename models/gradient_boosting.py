"""LightGBM boosters fitted with several seeds and averaged; stored in LightGBM's text format."""

import gzip
import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.errors import BadArtifact

Matrix = NDArray[np.float64]
Column = NDArray[np.float64]


@dataclass(frozen=True)
class BoosterBag:
    """Boosters fitted with different seeds, whose predictions are averaged.

    Attributes:
        texts: each booster in LightGBM's text format.
    """

    texts: tuple[str, ...]

    @classmethod
    def fit(
        cls,
        matrix: Matrix,
        target: Column,
        *,
        parameters: Mapping[str, Any],
        trees: int,
        seeds: Sequence[int],
        weights: Column | None = None,
        threads: int = 1,
    ) -> "BoosterBag":
        """Fit one booster per seed, deterministically.

        Args:
            matrix: (n, features).
            target: (n,) values.
            parameters: LightGBM parameters except seed, threads and verbosity. `objective` may be
                a function (raw scores, dataset) -> (gradients, hessians).
            trees: number of boosting rounds.
            seeds: seeds of the boosters.
            weights: (n,) positive weights, or None for equal weights.
            threads: number of LightGBM threads while fitting.
        """
        import lightgbm

        texts = []
        for seed in seeds:
            settings = dict(parameters)
            settings.update(
                seed=seed,
                num_threads=threads,
                verbosity=-1,
                deterministic=True,
                force_row_wise=True,
            )
            plain = {name: value for name, value in settings.items() if not callable(value)}
            data = lightgbm.Dataset(matrix, label=target, weight=weights, params=plain)
            booster = lightgbm.train(settings, data, num_boost_round=trees)
            texts.append(booster.model_to_string())
        return cls(tuple(texts))

    def predict(self, matrix: Matrix) -> Column:
        """Mean prediction of the boosters, shape (n,); no row depends on the other rows."""
        total = np.zeros(len(matrix))
        for booster in self._boosters:
            total += booster.predict(matrix, num_threads=1)
        return total / len(self._boosters)

    def tree_outputs(self, matrix: Matrix) -> Matrix:
        """Contribution of each tree of the first booster to its prediction, shape (n, trees)."""
        leaves = self._boosters[0].predict(matrix, pred_leaf=True, num_threads=1)
        leaves = np.asarray(leaves, dtype=np.intp).reshape(len(matrix), -1)
        outputs = [table[leaves[:, tree]] for tree, table in enumerate(self._leaf_tables)]
        return np.column_stack(outputs)

    def save(self, folder: Path, name: str) -> None:
        """Write one compressed text file per booster: `NAME-0.txt.xz`, `NAME-1.txt.xz`, ..."""
        for number, text in enumerate(self.texts):
            (folder / f"{name}-{number}.txt.xz").write_bytes(lzma.compress(text.encode()))

    @classmethod
    def load(cls, folder: Path, name: str, count: int) -> "BoosterBag":
        """The bag that `save` wrote.

        Raises:
            BadArtifact: a file is missing.
        """
        try:
            texts = [_unpacked(folder / f"{name}-{number}") for number in range(count)]
        except (OSError, EOFError, ValueError, lzma.LZMAError) as error:
            raise BadArtifact(f"{folder} lacks a booster: {error}") from None
        return cls(tuple(texts))

    @cached_property
    def _boosters(self) -> tuple[Any, ...]:
        import lightgbm

        return tuple(lightgbm.Booster(model_str=text) for text in self.texts)

    @cached_property
    def _leaf_tables(self) -> tuple[Column, ...]:
        """For each tree, the output of each of its leaves."""
        first = self._boosters[0]
        trees = first.dump_model()["tree_info"]
        return tuple(
            np.array([first.get_leaf_output(number, leaf) for leaf in range(tree["num_leaves"])])
            for number, tree in enumerate(trees)
        )


def _unpacked(stem: Path) -> str:
    """Text of a booster, from `.txt.xz` or, in artifacts of earlier versions, from `.txt.gz`."""
    former = stem.with_name(f"{stem.name}.txt.gz")
    if former.is_file():
        return gzip.decompress(former.read_bytes()).decode()
    return lzma.decompress(stem.with_name(f"{stem.name}.txt.xz").read_bytes()).decode()
