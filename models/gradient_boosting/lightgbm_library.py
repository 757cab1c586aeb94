"""Boosters of LightGBM, evaluated by its C library without its Python package.

`import lightgbm` takes about a second, because it imports scikit-learn, pandas and pyarrow where
they are installed. Whoever asks a question only needs the library that lies in the same package:
its C API loads a booster and predicts, with results that are equal in every bit.
"""

import ctypes
import re
import sys
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import Final
from weakref import finalize

import numpy as np

from forerun.data.shapes import Float64

VALUES: Final = 0
LEAVES: Final = 2
"""Kinds of predictions in LightGBM's C API: of the objective, and the leaf reached in each tree."""
_DOUBLES: Final = 1
_BY_ROWS: Final = 1
_ALL_TREES: Final = (0, -1)
_FEW_ROWS: Final = 8
"""Rows up to which they are faster one by one: a call for many first reads its parameters anew."""
_SUFFIXES: Final = {"win32": ".dll", "darwin": ".dylib"}


class LoadedBooster:
    """A booster that LightGBM's C library loaded; it may be used by several threads at once.

    Args:
        text: the booster in LightGBM's text format.

    Raises:
        ValueError: the text is not that of a booster.
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
        """One number for each row, or for `LEAVES` one for each row and tree, rows first.

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
        """For each tree, the output of each of its leaves.

        Args:
            leaves: number of leaves of each tree, as `leaf_counts` reads them.
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
    """Predictions of rows one at a time, whose preparation takes longer than most predictions.

    Args:
        booster: handle of a booster, which has to outlive this.
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
        # What is prepared holds the features of the row, which is that of one thread at a time.
        self._turn = Lock()

    def predict(self, rows: Float64[np.ndarray, "n features"]) -> Float64[np.ndarray, " n"]:
        """The prediction of each row, which has all features.

        Args:
            rows: (n, features), each row after the one before in memory.
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
    # Unlike by its key, a function by its attribute is looked up in the library once.
    _check(getattr(_library(), f"LGBM_Booster{name}")(*arguments))


def _check(status: int) -> None:
    if status != 0:
        raise ValueError(_library().LGBM_GetLastError().decode(errors="replace"))


@cache
def _predict_row() -> Callable[..., int]:
    """The function for one row, which takes addresses as integers: that saves their conversion."""
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
    """Set the largest number of threads that LightGBM uses in this process, at first 1."""
    _library().LGBM_SetMaxThreads(count)
