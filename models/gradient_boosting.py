"""LightGBM boosters fitted with several seeds and averaged; stored in LightGBM's text format."""

import lzma
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.shapes import Float64


@dataclass(frozen=True)
class BoosterBag:
    """Boosters fitted with different seeds, whose predictions are averaged.

    Attributes:
        texts: each booster in LightGBM's text format.
    """

    texts: tuple[str, ...]
    suffix: ClassVar[str] = ".txt.xz"

    @classmethod
    def fit(
        cls,
        matrix: Float64[np.ndarray, "n features"],
        target: Float64[np.ndarray, " n"],
        *,
        parameters: Mapping[str, Any],
        trees: int,
        seeds: Sequence[int],
        weights: Float64[np.ndarray, " n"] | None = None,
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

    def predict(self, matrix: Float64[np.ndarray, "n features"]) -> Float64[np.ndarray, " n"]:
        """Mean prediction of the boosters, shape (n,); no row depends on the other rows."""
        total = np.zeros(len(matrix))
        for booster in self._boosters:
            total += booster.predict(matrix, num_threads=1)
        return total / len(self._boosters)

    def tree_outputs(
        self, matrix: Float64[np.ndarray, "n features"]
    ) -> Float64[np.ndarray, "n trees"]:
        """Contribution of each tree of the first booster to its prediction, shape (n, trees)."""
        leaves = self._boosters[0].predict(matrix, pred_leaf=True, num_threads=1)
        leaves = np.asarray(leaves, dtype=np.intp).reshape(len(matrix), -1)
        outputs = [table[leaves[:, tree]] for tree, table in enumerate(self._leaf_tables)]
        return np.column_stack(outputs)

    def to_files(self) -> tuple[bytes, ...]:
        """The texts, compressed."""
        return tuple(lzma.compress(text.encode()) for text in self.texts)

    @classmethod
    def from_files(cls, contents: tuple[bytes, ...]) -> Self:
        """The bag from compressed texts.

        Raises:
            ValueError: they are damaged.
        """
        try:
            return cls(tuple(lzma.decompress(content).decode() for content in contents))
        except (EOFError, lzma.LZMAError) as error:
            raise ValueError(f"a booster is damaged: {error}") from error

    @cached_property
    def _boosters(self) -> tuple[Any, ...]:
        import lightgbm

        return tuple(lightgbm.Booster(model_str=text) for text in self.texts)

    @cached_property
    def _leaf_tables(self) -> tuple[Float64[np.ndarray, " _leaves"], ...]:
        """For each tree, the output of each of its leaves."""
        first = self._boosters[0]
        trees = first.dump_model()["tree_info"]
        return tuple(
            np.array([first.get_leaf_output(number, leaf) for leaf in range(tree["num_leaves"])])
            for number, tree in enumerate(trees)
        )
