"""Converts predictors' dataclasses to JSON content and back, built on cattrs.

Dataclasses, named tuples and mappings with text keys become objects; tuples and sets become lists.
A mapping with other keys is a list of pairs, and a non-finite float is a text, since strict JSON
supports neither. Objects stored in separate files or folders are leaves of the content
(`forerun.models.artifact.stored_predictor`).

numpy arrays are preserved bit for bit: as nested lists if these restore the array exactly and are
short, otherwise as an object with `dtype` and `shape`, and the elements as `values` (a flat list of
texts) or `hex` (their bytes, in the byte order of `dtype`), or `rows` and `index` where rows
repeat: the distinct rows, and the row at each position. Once compressed, hexadecimal digits take no
more room than base64, and less where numbers repeat.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, Literal, TypeVar, cast, get_args, get_origin

import numpy as np
from cattrs import Converter, override, transform_error
from cattrs.cols import (
    is_frozenset,
    is_mapping,
    is_namedtuple,
    namedtuple_dict_structure_factory,
    namedtuple_dict_unstructure_factory,
)
from cattrs.errors import BaseValidationError
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn
from cattrs.v import format_exception
from numpy.typing import NDArray
from pydantic import BaseModel

from forerun.data.shapes import elements_of

FEW = 64
"""Arrays with at most this many elements are always lists."""

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
        ValueError: the content does not describe an array.
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
    """Whether numpy rebuilds exactly this array from the nested lists, and JSON can store them."""
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
    """Distinct rows along the first axis, compared bitwise, and the index of each row in them."""
    flat = np.ascontiguousarray(array).reshape(len(array), -1)
    raw = flat.view(np.dtype((np.void, flat.dtype.itemsize * flat.shape[1]))).ravel()
    _, first, index = np.unique(raw, return_index=True, return_inverse=True)
    return array[first], index.astype(np.min_scalar_type(len(first) - 1))


NOT_STORED: Mapping[str, bool] = {"stored": False}
"""Metadata of a dataclass field that artifacts omit; it has a default."""
NOT_FINITE = ("nan", "inf", "-inf")

ToJson = Callable[[Any], Any]
FromJson = Callable[[Any, Any], Any]
T = TypeVar("T")


class Pairs(list[tuple[Any, Any]]):
    """Content of a mapping with non-text keys: a list of keys and values."""


def to_content(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON content.

    Raises:
        TypeError: a field holds an array with elements of another type than declared.
    """
    cls: Any = type(value)
    return cast(dict[str, Any], _dataclass_to_json(cls)(value))


def from_content(cls: type[T], content: Any) -> T:
    """The dataclass that `to_content` wrote; fields with a default may be missing.

    Raises:
        ValueError: a field is missing, unknown or of another type; the message names it.
    """
    try:
        return cast(T, _dataclass_from_json(cast(Any, cls))(content, cls))
    except (BaseValidationError, TypeError) as error:
        raise ValueError(transform_error(error, "", _reason)[0]) from error


def checked(value: Any, kind: type[T]) -> T:
    """The value, if it is an instance.

    Raises:
        TypeError: it is not.
    """
    if isinstance(value, kind):
        return value
    raise TypeError(f"a {type(value).__name__} is not a {kind.__name__}")


def _reason(error: BaseException, expected: type | None) -> str:
    message = str(error) if type(error) in (TypeError, ValueError) else ""
    return message or format_exception(error, expected)


def _left_out(cls: Any) -> dict[str, Any]:
    return {
        field.name: override(omit=True)
        for field in fields(cls)
        if field.metadata.get("stored") is False
    }


@cache
def _dataclass_to_json(cls: Any) -> ToJson:
    return make_dict_unstructure_fn(cls, CONVERTER, **_left_out(cls))


@cache
def _dataclass_from_json(cls: Any) -> FromJson:
    from_json: FromJson = make_dict_structure_fn(
        cls, CONVERTER, _cattrs_forbid_extra_keys=True, **_left_out(cls)
    )
    return lambda content, kind: from_json(checked(content, dict), kind)


def _float_to_json(value: float) -> float | str:
    return float(value) if isfinite(value) else str(float(value))


def _float_from_json(value: Any, _: Any) -> float:
    if type(value) in (float, int) or value in NOT_FINITE:
        return float(value)
    raise TypeError(f"{value!r} is not a number")


def _exactly(kind: type) -> FromJson:
    def from_json(value: Any, _: Any) -> Any:
        if type(value) is kind:
            return value
        raise TypeError(f"{value!r} is not of type {kind.__name__}")

    return from_json


def _is_array(kind: Any) -> bool:
    return elements_of(kind) is not None


def _of_declared_elements(kind: Any, array: Any) -> Any:
    elements = elements_of(kind)
    if elements is Any or np.issubdtype(checked(array, np.ndarray).dtype, elements):
        return array
    raise TypeError(f"elements of type {array.dtype} are not {elements.__name__}")


def _array_to_json(kind: Any) -> ToJson:
    return lambda array: array_to_json(_of_declared_elements(kind, array))


def _array_from_json(kind: Any) -> FromJson:
    return lambda content, _: _of_declared_elements(kind, array_from_json(content))


def _is_list(kind: Any) -> bool:
    return is_frozenset(kind) or (get_origin(kind) is tuple and get_args(kind)[1:] == (...,))


def _list_to_json(kind: Any) -> ToJson:
    element = CONVERTER.get_unstructure_hook(get_args(kind)[0])
    if is_frozenset(kind):
        return lambda values: [element(value) for value in sorted(values)]
    return lambda values: [element(value) for value in values]


def _list_from_json(kind: Any) -> FromJson:
    of = get_args(kind)[0]
    element, whole = CONVERTER.get_structure_hook(of), frozenset if is_frozenset(kind) else tuple
    return lambda values, _: whole([element(value, of) for value in checked(values, list)])


def _is_text(kind: Any) -> bool:
    return kind is str or (get_origin(kind) is Literal and isinstance(get_args(kind)[0], str))


def _mapping_to_json(kind: Any) -> ToJson:
    key, value = map(CONVERTER.get_unstructure_hook, get_args(kind))
    container = dict if _is_text(get_args(kind)[0]) else Pairs
    return lambda items: container((key(k), value(v)) for k, v in items.items())


def _mapping_from_json(kind: Any) -> FromJson:
    keys, values = get_args(kind)
    key, value = map(CONVERTER.get_structure_hook, (keys, values))

    def from_json(content: Any, _: Any) -> dict[Any, Any]:
        pairs = checked(content, dict).items() if _is_text(keys) else checked(content, list)
        return {key(k, keys): value(v, values) for k, v in pairs}

    return from_json


def _is_model(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _converter() -> Converter:
    """A converter that never accepts a value of another type than the declared one."""
    made = Converter(forbid_extra_keys=True)
    for kind in (bool, int, str):
        made.register_structure_hook(kind, _exactly(kind))
        made.register_unstructure_hook(kind, kind)
    made.register_structure_hook(float, _float_from_json)
    made.register_unstructure_hook(float, _float_to_json)
    for chosen, to_json, from_json in (
        (is_dataclass, _dataclass_to_json, _dataclass_from_json),
        (is_namedtuple, namedtuple_dict_unstructure_factory, namedtuple_dict_structure_factory),
        (_is_array, _array_to_json, _array_from_json),
        (_is_list, _list_to_json, _list_from_json),
        (is_mapping, _mapping_to_json, _mapping_from_json),
    ):
        made.register_unstructure_hook_factory(chosen, to_json)
        made.register_structure_hook_factory(chosen, from_json)
    made.register_unstructure_hook_func(_is_model, lambda model: model.model_dump(mode="json"))
    made.register_structure_hook_func(_is_model, lambda sheet, model: model.model_validate(sheet))
    return made


CONVERTER = _converter()
