"""Types of numpy arrays with their elements and dimensions: `Float64[np.ndarray, "n d"]`.

The notation is that of jaxtyping (https://docs.kidger.site/jaxtyping): dimensions with the same
name have the same length throughout a call, numbers are lengths, `*name` is any number of
dimensions, `_name` is documented but not compared. A single dimension begins with a space, so that
linters do not take it for a Python name. Static type checkers see plain arrays.

Tests set `FORERUN_CHECK_SHAPES` and check every call (`tests/shapes.py`). Otherwise the types are
numpy's, without dimensions, because importing jaxtyping would slow down every command.
"""

import os
from typing import TYPE_CHECKING, Any, get_args, get_origin

import numpy as np
from numpy.typing import NDArray

CHECK_SHAPES = "FORERUN_CHECK_SHAPES"
"""Environment variable: whether to use jaxtyping's types."""

if TYPE_CHECKING:
    from typing import Annotated as Text

    from jaxtyping import Bool, Float64, Int, Shaped
elif os.environ.get(CHECK_SHAPES):
    from jaxtyping import AbstractDtype, Bool, Float64, Int, Shaped

    class Text(AbstractDtype):
        """Arrays of text, for which jaxtyping has no type."""

        dtypes = ("str_",)
else:

    class _Elements:
        """Arrays with one type of elements and any dimensions."""

        def __init__(self, kind: Any) -> None:
            self._array = NDArray[kind]

        def __getitem__(self, _: Any) -> Any:
            return self._array

    Bool, Float64, Int = _Elements(np.bool_), _Elements(np.float64), _Elements(np.integer)
    Shaped, Text = _Elements(Any), _Elements(np.str_)

__all__ = ["CHECK_SHAPES", "Bool", "Float64", "Int", "Shaped", "Text", "elements_of"]

_ELEMENTS: dict[Any, Any] = {Bool: np.bool_, Float64: np.float64, Int: np.integer, Text: np.str_}


def elements_of(annotation: Any) -> Any:
    """Type of the elements that an array annotation declares; None if it is not of an array.

    Args:
        annotation: one of this module's types with its dimensions, or an `NDArray`.

    Returns:
        A numpy scalar type, or `Any` for arrays of any elements.
    """
    if get_origin(annotation) is np.ndarray:
        return get_args(get_args(annotation)[1])[0]
    if getattr(annotation, "array_type", None) is np.ndarray:
        return _ELEMENTS.get(annotation.dtype, Any)
    return None
