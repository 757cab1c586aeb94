"""Types of numpy arrays with their elements and their dimensions: `Float64[np.ndarray, "n d"]`.

They are those of jaxtyping (https://docs.kidger.site/jaxtyping): dimensions of one name have one
length throughout a call, numbers are lengths, `*name` is any number of dimensions, `_name` is
explained but not compared. A single dimension begins with a space, so that linters do not take it
for a name of Python. Static type checkers read plain arrays.

Tests set `FORERUN_CHECK_SHAPES` and check every call (`tests/shapes.py`). Elsewhere the types are
numpy's, without dimensions, because importing jaxtyping takes longer than a command should wait.
"""

import os
from typing import TYPE_CHECKING, Any, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

CHECK_SHAPES = "FORERUN_CHECK_SHAPES"
"""Environment variable: whether the types are those of jaxtyping."""

if TYPE_CHECKING:
    from typing import Annotated as Text

    from jaxtyping import Bool, Float64, Int, Shaped
elif os.environ.get(CHECK_SHAPES):
    from jaxtyping import AbstractDtype, Bool, Float64, Int, Shaped

    class Text(AbstractDtype):
        """Elements that are texts, for which jaxtyping has no name."""

        dtypes = ("str_",)
else:

    class _Elements:
        """Arrays of one type of elements, whatever their dimensions."""

        def __init__(self, kind: Any) -> None:
            self._array = NDArray[kind]

        def __getitem__(self, _: Any) -> Any:
            return self._array

    Bool, Float64, Int = _Elements(np.bool_), _Elements(np.float64), _Elements(np.integer)
    Shaped, Text = _Elements(Any), _Elements(np.str_)

__all__ = ["CHECK_SHAPES", "Bool", "Float64", "Int", "Shaped", "Text", "elements_of"]

_ELEMENTS: dict[Any, Any] = {Bool: np.bool_, Float64: np.float64, Int: np.integer, Text: np.str_}


def elements_of(annotation: Any) -> Any:
    """Type of the elements that an annotation of an array declares; None if it is of no array.

    Args:
        annotation: one of this module's types with its dimensions, or an `NDArray`.

    Returns:
        A scalar type of numpy, or `Any` for arrays of any elements.
    """
    if get_origin(annotation) is np.ndarray:
        return get_args(get_args(annotation)[1])[0]
    if getattr(annotation, "array_type", None) is np.ndarray:
        return _ELEMENTS.get(annotation.dtype, Any)
    return None
