"""LightGBM boosters fitted with several seeds and averaged; stored in LightGBM's text format.

The stored text omits what predictions do not need. Boosters are evaluated by LightGBM's C library
without its Python package, because `import lightgbm` takes about a second: it imports scikit-learn,
pandas and pyarrow where they are installed. The library in that package loads boosters and predicts
with bitwise identical results.
"""

import ctypes
import lzma
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar, Final, Self
from weakref import finalize

import numpy as np

from forerun.data.errors import BadArtifact
from forerun.data.shapes import Float64
from forerun.features.deadline import check

VALUES: Final = 0
LEAVES: Final = 2
"""Kinds of predictions in LightGBM's C API: of the objective, or the leaf reached in each tree."""
_DOUBLES: Final = 1
_BY_ROWS: Final = 1
_ALL_TREES: Final = (0, -1)
_FEW_ROWS: Final = 8
"""Rows up to which single-row calls are faster: a call for many rows parses its parameters anew."""
_SUFFIXES: Final = {"win32": ".dll", "darwin": ".dylib"}


class LoadedBooster:
    """A booster loaded by LightGBM's C library; several threads may use it at once.

    Args:
        text: the booster in LightGBM's text format.

    Raises:
        ValueError: the text is not a booster.
    """

    def __init__(self, text: str) -> None:
        self._handle = ctypes.c_void_p()
        rounds = ctypes.c_int()
        _call(
            "LoadModelFromString", text.encode(), ctypes.byref(rounds), ctypes.byref(self._handle)
        )
        finalize(self, _library().LGBM_BoosterFree, self._handle)

    def predict(
        self, matrix: Float64[np.ndarray, "n features"], kind: int = VALUES
    ) -> Float64[np.ndarray, " results"]:
        """One number per row, or for `LEAVES` one per row and tree, row by row.

        Args:
            matrix: (n, features).
            kind: `VALUES` or `LEAVES`.

        Raises:
            ValueError: the matrix has another number of features than the booster.
        """
        rows = np.ascontiguousarray(matrix, dtype=np.float64)
        if len(rows) <= _FEW_ROWS and kind == VALUES and rows.shape[1] == self._rows.features:
            return self._rows.predict(rows)
        count, length = ctypes.c_int64(), ctypes.c_int64()
        which = ctypes.c_int(kind), *map(ctypes.c_int, _ALL_TREES)
        _call("CalcNumPredict", self._handle, len(matrix), *which, ctypes.byref(count))
        results = np.empty(count.value)
        layout = ctypes.c_int(_DOUBLES), *map(ctypes.c_int32, rows.shape), ctypes.c_int(_BY_ROWS)
        _call(
            "PredictForMat",
            self._handle,
            rows.ctypes.data_as(ctypes.c_void_p),
            *layout,
            *which,
            b"num_threads=1",
            ctypes.byref(length),
            results.ctypes.data_as(ctypes.c_void_p),
        )
        return results

    @cached_property
    def _rows(self) -> "_SingleRows":
        return _SingleRows(self._handle)

    def leaf_outputs(self, leaves: Sequence[int]) -> tuple[Float64[np.ndarray, " _leaves"], ...]:
        """The output of each leaf, for each tree.

        Args:
            leaves: number of leaves of each tree, as returned by `leaf_counts`.
        """
        return tuple(
            np.array([self._leaf_output(tree, leaf) for leaf in range(count)])
            for tree, count in enumerate(leaves)
        )

    def _leaf_output(self, tree: int, leaf: int) -> float:
        output = ctypes.c_double()
        _call("GetLeafValue", self._handle, tree, leaf, ctypes.byref(output))
        return output.value


class _SingleRows:
    """Predictions of single rows with a prepared configuration, which is slow to set up.

    Args:
        booster: handle of a booster, which must outlive this object.
    """

    def __init__(self, booster: ctypes.c_void_p) -> None:
        features, self._settings = ctypes.c_int(), ctypes.c_void_p()
        _call("GetNumFeature", booster, ctypes.byref(features))
        self.features = features.value
        _call(
            "PredictForMatSingleRowFastInit",
            booster,
            *(ctypes.c_int(VALUES), *map(ctypes.c_int, _ALL_TREES)),
            *(ctypes.c_int(_DOUBLES), ctypes.c_int32(self.features), b"num_threads=1"),
            ctypes.byref(self._settings),
        )
        finalize(self, _library().LGBM_FastConfigFree, self._settings)
        # The configuration stores the current row's features, so only one thread may use it at a
        # time.
        self._turn = Lock()

    def predict(self, rows: Float64[np.ndarray, "n features"]) -> Float64[np.ndarray, " n"]:
        """The prediction of each row, which must have all features.

        Args:
            rows: (n, features), contiguous by rows.
        """
        results, length = np.empty(len(rows)), ctypes.c_int64()
        row, result = rows.ctypes.data, results.ctypes.data
        predict, settings, place = _predict_row(), self._settings, ctypes.addressof(length)
        with self._turn:
            for _ in range(len(rows)):
                _check(predict(settings, row, place, result))
                row, result = row + rows.strides[0], result + results.itemsize
        return results


def leaf_counts(text: str) -> list[int]:
    """Number of leaves of each tree of a booster in LightGBM's text format."""
    return [int(count) for count in re.findall(r"^num_leaves=(\d+)$", text, re.MULTILINE)]


def _call(name: str, *arguments: object) -> None:
    # Attribute access, unlike access by key, looks a function up in the library only once.
    _check(getattr(_library(), f"LGBM_Booster{name}")(*arguments))


def _check(status: int) -> None:
    if status != 0:
        raise ValueError(_library().LGBM_GetLastError().decode(errors="replace"))


@cache
def _predict_row() -> Callable[..., int]:
    """The function for single rows, typed to take addresses as integers without conversion."""
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)
    return prototype(("LGBM_BoosterPredictForMatSingleRowFast", _library()))


@cache
def _library() -> ctypes.CDLL:
    """The library in the installed package, found without importing it."""
    spec = find_spec("lightgbm")
    assert spec is not None
    assert spec.origin is not None
    name = f"lib_lightgbm{_SUFFIXES.get(sys.platform, '.so')}"
    folder = Path(spec.origin).parent
    path = next(p for p in (folder / "lib" / name, folder / "bin" / name) if p.is_file())
    library = ctypes.CDLL(str(path))
    library.LGBM_GetLastError.restype = ctypes.c_char_p
    # Threads that wait for each other take longer than one thread that parses a booster.
    library.LGBM_SetMaxThreads(1)
    return library


def allow_threads(count: int) -> None:
    """Set the maximum number of threads that LightGBM uses in this process, initially 1."""
    _library().LGBM_SetMaxThreads(count)


_UNUSED = re.compile(
    r"^(?:split_gain|leaf_weight|leaf_count|internal_value|internal_weight|internal_count"
    r"|tree_sizes)=.*\n",
    re.MULTILINE,
)
_LEAVES = re.compile(r"^(leaf_value=)(.*)$", re.MULTILINE)
_THRESHOLDS = re.compile(r"^(threshold=)(.*)$", re.MULTILINE)
_AFTER_TREES = re.compile(r"\nend of trees\n.*", re.DOTALL)


def lean(text: str) -> str:
    """The booster without statistics of its fit, and with leaf values of six digits.

    It takes about a third of the compressed space; predictions change by less than 1e-5.

    Args:
        text: a booster in LightGBM's text format.
    """
    kept = _UNUSED.sub("", _AFTER_TREES.sub("\nend of trees\n\n", text))
    return _rounded(kept, _LEAVES, 6)


def coarse(text: str, threshold_digits: int = 6) -> str:
    """Like `lean`, but with four-digit leaf values and shorter thresholds: another third smaller.

    A value closer to a threshold than its digits resolve may take the other branch.

    Args:
        text: a booster in LightGBM's text format.
        threshold_digits: significant digits of thresholds; use more for a feature with large values
            and small differences.
    """
    return _rounded(_rounded(lean(text), _LEAVES, 4), _THRESHOLDS, threshold_digits)


def _rounded(text: str, numbers: re.Pattern[str], digits: int) -> str:
    def shorter(found: re.Match[str]) -> str:
        return found[1] + " ".join(f"{float(number):.{digits}g}" for number in found[2].split())

    return numbers.sub(shorter, text)


class CompressedTexts:
    """Texts as stored in an artifact, decompressed on each access.

    A predictor has far more boosters than one query needs.

    Args:
        files: the texts, compressed by `lzma`.

    Raises:
        ValueError: a file is incomplete.
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
        """Mean prediction of the boosters, shape (n,), independent of the other rows."""
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
            ValueError: they are incomplete.
        """
        return cls(CompressedTexts(contents))

    @cached_property
    def _boosters(self) -> tuple[LoadedBooster, ...]:
        return tuple(map(LoadedBooster, self.texts))

    def load(self) -> None:
        """Load the boosters now rather than at the first prediction."""
        # Unlike the property, this does not block other bags while loading (Python 3.11).
        vars(self).setdefault("_boosters", tuple(map(LoadedBooster, self.texts)))

    @cached_property
    def _leaf_tables(self) -> tuple[Float64[np.ndarray, " _leaves"], ...]:
        """For each tree, the output of each of its leaves."""
        return self._boosters[0].leaf_outputs(leaf_counts(self.texts[0]))


def load_together(bags: Iterable[BoosterBag]) -> None:
    """Load the boosters of several bags in parallel; both steps of loading release the GIL."""
    missing = [bag for bag in bags if "_boosters" not in vars(bag)]
    if missing:
        with ThreadPoolExecutor() as pool:
            list(pool.map(BoosterBag.load, missing))
