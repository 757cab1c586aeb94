"""One codec between predictors' dataclasses and JSON content, built on cattrs.

Dataclasses, named tuples and mappings with texts as keys become objects, tuples and sets lists, and
arrays what `forerun.models.artifact.arrays` describes. A mapping with other keys is a list of
pairs, and a float that is not finite is a text, since strict JSON has neither. Objects that are
stored in files or folders of their own are leaves of the content
(`forerun.models.artifact.stored_predictor`).
"""

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
from pydantic import BaseModel

from forerun.data.shapes import elements_of
from forerun.models.artifact.arrays import array_from_json, array_to_json

NOT_STORED: Mapping[str, bool] = {"stored": False}
"""Metadata of a dataclass field that artifacts leave out; it has a default."""
NOT_FINITE = ("nan", "inf", "-inf")

ToJson = Callable[[Any], Any]
FromJson = Callable[[Any, Any], Any]
T = TypeVar("T")


class Pairs(list[tuple[Any, Any]]):
    """Content of a mapping whose keys are not texts: a list of keys and values."""


def to_content(value: Any) -> dict[str, Any]:
    """The fields of a dataclass as JSON content.

    Raises:
        TypeError: a field holds an array of other elements than it declares.
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
    own = str(error) if type(error) in (TypeError, ValueError) else ""
    return own or format_exception(error, expected)


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
    """A converter that takes no value of another type for one of the declared type."""
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
