"""LightGBM boosters fitted with several seeds and averaged; stored in LightGBM's text format.

Boosters in LightGBM's text format without what predictions do not need.
"""

import lzma
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np

from forerun.data.errors import BadArtifact
from forerun.data.shapes import Float64
from forerun.features.deadline import check
from forerun.models.gradient_boosting.lightgbm_library import (
    LEAVES,
    LoadedBooster,
    allow_threads,
    leaf_counts,
)

_UNUSED = re.compile(
    r"^(?:split_gain|leaf_weight|leaf_count|internal_value|internal_weight|internal_count"
    r"|tree_sizes)=.*\n",
    re.MULTILINE,
)
_LEAVES = re.compile(r"^(leaf_value=)(.*)$", re.MULTILINE)
_THRESHOLDS = re.compile(r"^(threshold=)(.*)$", re.MULTILINE)
_AFTER_TREES = re.compile(r"\nend of trees\n.*", re.DOTALL)


def lean(text: str) -> str:
    """The booster without statistics of its fit, and with leaves of six digits.

    It takes about a third of the space once compressed; predictions change by less than 1e-5.

    Args:
        text: a booster in LightGBM's text format.
    """
    kept = _UNUSED.sub("", _AFTER_TREES.sub("\nend of trees\n\n", text))
    return _rounded(kept, _LEAVES, 6)


def coarse(text: str, threshold_digits: int = 6) -> str:
    """As `lean`, with leaves of four digits and shorter thresholds: a third smaller again.

    A value that is closer to a threshold than its digits tell may take the other branch.

    Args:
        text: a booster in LightGBM's text format.
        threshold_digits: significant digits of thresholds; more where a feature has large values
            with small differences.
    """
    return _rounded(_rounded(lean(text), _LEAVES, 4), _THRESHOLDS, threshold_digits)


def _rounded(text: str, numbers: re.Pattern[str], digits: int) -> str:
    def shorter(found: re.Match[str]) -> str:
        return found[1] + " ".join(f"{float(number):.{digits}g}" for number in found[2].split())

    return numbers.sub(shorter, text)


class CompressedTexts:
    """Texts as an artifact stores them; each is decompressed whenever it is read.

    A predictor has far more boosters than one question needs.

    Args:
        files: the texts, compressed by `lzma`.

    Raises:
        ValueError: a file is not complete.
    """

    def __init__(self, files: Sequence[bytes]) -> None:
        if not all(f.startswith(_FIRST_BYTES) and f.endswith(_LAST_BYTES) for f in files):
            raise ValueError("a booster is damaged: it is no complete file of xz")
        self.files = tuple(files)

    def __getitem__(self, index: int) -> str:
        return _decompressed(self.files[index])

    def __iter__(self) -> Iterator[str]:
        return map(_decompressed, self.files)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple | CompressedTexts) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))


_FIRST_BYTES, _LAST_BYTES = b"\xfd7zXZ\x00", b"YZ"


def _decompressed(file: bytes) -> str:
    try:
        return lzma.decompress(file).decode()
    except (EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise BadArtifact(f"a booster is damaged: {error}; install or fit it again.") from error


@dataclass(frozen=True)
class BoosterBag:
    """Boosters fitted with different seeds, whose predictions are averaged.

    Attributes:
        texts: each booster in LightGBM's text format.
    """

    texts: tuple[str, ...] | CompressedTexts
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

        allow_threads(threads)
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
            check()
            total += booster.predict(matrix)
        return total / len(self._boosters)

    def tree_outputs(
        self, matrix: Float64[np.ndarray, "n features"]
    ) -> Float64[np.ndarray, "n trees"]:
        """Contribution of each tree of the first booster to its prediction, shape (n, trees)."""
        leaves = self._boosters[0].predict(matrix, LEAVES).astype(np.intp).reshape(len(matrix), -1)
        outputs = [table[leaves[:, tree]] for tree, table in enumerate(self._leaf_tables)]
        return np.column_stack(outputs)

    def to_files(self) -> tuple[bytes, ...]:
        """The texts, compressed."""
        if isinstance(self.texts, CompressedTexts):
            return self.texts.files
        return tuple(lzma.compress(text.encode()) for text in self.texts)

    @classmethod
    def from_files(cls, contents: tuple[bytes, ...]) -> Self:
        """The bag from compressed texts.

        Raises:
            ValueError: they are not complete.
        """
        return cls(CompressedTexts(contents))

    @cached_property
    def _boosters(self) -> tuple[LoadedBooster, ...]:
        return tuple(map(LoadedBooster, self.texts))

    def load(self) -> None:
        """Load the boosters, which the first prediction does otherwise."""
        # Unlike the property, this does not exclude other bags until it is done (Python 3.11).
        vars(self).setdefault("_boosters", tuple(map(LoadedBooster, self.texts)))

    @cached_property
    def _leaf_tables(self) -> tuple[Float64[np.ndarray, " _leaves"], ...]:
        """For each tree, the output of each of its leaves."""
        return self._boosters[0].leaf_outputs(leaf_counts(self.texts[0]))


def load_together(bags: Iterable[BoosterBag]) -> None:
    """Load the boosters of bags on all processors, since neither step holds Python's lock."""
    missing = [bag for bag in bags if "_boosters" not in vars(bag)]
    if missing:
        with ThreadPoolExecutor() as pool:
            list(pool.map(BoosterBag.load, missing))
