"""numpy arrays as JSON content, exact to the last bit.

An array is written as nested lists where that restores it exactly and is short. Otherwise it is an
object: `dtype` and `shape` with the elements as `values` (a flat list of texts) or `hex` (their
bytes, in the byte order of `dtype`), or `rows` and `index` where rows repeat: the distinct rows,
and the row at each position. Hexadecimal digits take no more room than base64 once compressed, and
less where numbers repeat.
"""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

FEW = 64
"""Arrays of at most this many elements are lists, whatever their length as text."""

Array = NDArray[Any]


def array_to_json(array: Array) -> Any:
    """JSON content from which `array_from_json` restores the array.

    Raises:
        TypeError: its elements are Python objects.
    """
    if array.dtype.hasobject:
        raise TypeError("arrays of Python objects cannot be stored")
    if array.ndim and len(array) > FEW and array.size:
        rows, index = _distinct_rows(array)
        if 2 * (rows.nbytes + index.nbytes) <= array.nbytes:
            return {"rows": array_to_json(rows), "index": array_to_json(index)}
    values = array.tolist()
    if _is_exact(array, values) and (array.size <= FEW or _is_short(array, values)):
        return values
    head = {"dtype": array.dtype.str, "shape": list(array.shape)}
    if array.dtype.kind == "U":
        return {**head, "values": array.ravel().tolist()}
    return {**head, "hex": array.tobytes().hex()}


def array_from_json(content: Any) -> Array:
    """The array that `array_to_json` wrote.

    Raises:
        ValueError: the content is not that of an array.
    """
    try:
        if not isinstance(content, dict):
            return np.array(content)
        if "rows" in content:
            return array_from_json(content["rows"])[array_from_json(content["index"])]
        dtype, shape = np.dtype(content["dtype"]), tuple(content["shape"])
        if "values" in content:
            return np.array(content["values"], dtype=dtype).reshape(shape)
        return np.frombuffer(bytes.fromhex(content["hex"]), dtype=dtype).reshape(shape).copy()
    except (KeyError, IndexError, TypeError) as error:
        raise ValueError(f"no array: {error}") from error


def _is_exact(array: Array, values: Any) -> bool:
    """Whether numpy makes the same array of these nested lists, and JSON can hold them."""
    if array.dtype.kind not in "biufU" or (
        array.dtype.kind == "f" and not np.isfinite(array).all()
    ):
        return False
    again = np.array(values)
    same = again.dtype == array.dtype and again.shape == array.shape
    return same and again.tobytes() == array.tobytes()


def _is_short(array: Array, values: Any) -> bool:
    text = json.dumps(values, separators=(",", ":"))
    return array.dtype.kind == "U" or len(text) <= 2 * array.nbytes


def _distinct_rows(array: Array) -> tuple[Array, Array]:
    """Rows along the first axis that differ in a bit, and the index of each row among them."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    raw = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    _, first, index = np.unique(raw, return_index=True, return_inverse=True)
    return array[first], index.astype(np.min_scalar_type(len(first) - 1))
