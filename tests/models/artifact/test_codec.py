"""The codec: what comes back is equal and of the same types, and nothing else is taken."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from forerun.data.device import Device
from forerun.data.shapes import Bool, Float64, Int, Text
from forerun.models.artifact.codec import NOT_STORED, from_content, to_content
from tests.devices import L4
from tests.every import for_every


class Effect(NamedTuple):
    mean: float
    known: bool = True


@dataclass(frozen=True)
class Inner:
    values: NDArray[np.float64]
    shape: tuple[int, int] | None = None


@dataclass(frozen=True)
class Outer:
    text: str
    mode: Literal["eager", "compiled"]
    number: float
    count: int
    inner: Inner | None
    effects: tuple[Effect, ...]
    by_name: Mapping[str, tuple[float, ...]]
    by_mode: Mapping[Literal["eager", "compiled"], Inner]
    by_pair: Mapping[tuple[str, int], Effect]
    seen: frozenset[tuple[str, str]]
    sheets: Mapping[str, Device] = field(default_factory=dict)
    threads: int = field(default=1, metadata=NOT_STORED)


TEXT = np.array(["a"])
EXAMPLE = Outer(
    *("a", "eager", 1.5, 2, Inner(np.array([1.0, np.nan]), (1, 2)), (Effect(0.5, False),)),
    {"z": (1.0, -math.inf), "a": ()},
    {"eager": Inner(np.zeros((0, 3)))},
    {("b", 1): Effect(1.0), ("a", 2): Effect(math.inf)},
    frozenset({("x", "y"), ("a", "b")}),
    {"mine": L4},
)
TEXTS, FLOATS = st.text(), st.floats(allow_nan=False)
INNERS = st.builds(
    Inner,
    st.lists(st.floats(), max_size=4).map(lambda values: np.array(values, dtype=np.float64)),
    st.none() | st.tuples(st.integers(), st.integers()),
)
EFFECTS = st.builds(Effect, FLOATS, st.booleans())
MODES = st.sampled_from(["eager", "compiled"])
OUTERS = st.builds(
    Outer,
    *(TEXTS, MODES, FLOATS, st.integers(), st.none() | INNERS, st.lists(EFFECTS).map(tuple)),
    st.dictionaries(TEXTS, st.lists(FLOATS).map(tuple)),
    st.dictionaries(MODES, INNERS),
    st.dictionaries(st.tuples(TEXTS, st.integers()), EFFECTS),
    st.frozensets(st.tuples(TEXTS, TEXTS)),
)


def content_of(value) -> Any:
    return json.loads(json.dumps(to_content(value), allow_nan=False))


def same(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray):
        assert (one.dtype, one.shape, one.tobytes()) == (other.dtype, other.shape, other.tobytes())
    elif hasattr(one, "__dataclass_fields__"):
        for part in fields(one):
            same(getattr(one, part.name), getattr(other, part.name))
    elif isinstance(one, dict):
        assert list(one) == list(other)
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, tuple):
        assert len(one) == len(other)
        for a, b in zip(one, other, strict=True):
            same(a, b)
    else:
        assert one == other


@given(OUTERS)
def test_whatever_the_fields_hold_comes_back(value):
    same(from_content(Outer, content_of(value)), value)


def test_the_example_comes_back_and_settings_of_a_run_do_not():
    same(from_content(Outer, content_of(EXAMPLE)), EXAMPLE)
    assert "threads" not in content_of(Outer(**vars(EXAMPLE) | {"threads": 8}))


def test_the_order_of_mappings_is_kept_and_that_of_sets_is_sorted():
    content = content_of(EXAMPLE)
    assert [*content["by_name"]] == ["z", "a"]
    assert list(EXAMPLE.by_pair) == [("b", 1), ("a", 2)]
    assert [key for key, _ in content["by_pair"]] == [["b", 1], ["a", 2]]
    assert content["seen"] == [["a", "b"], ["x", "y"]]


def test_a_field_with_a_default_may_be_missing():
    content = content_of(EXAMPLE)
    del content["sheets"], content["effects"][0]["known"]
    again = from_content(Outer, content)
    assert again.sheets == {}
    assert again.effects == (Effect(0.5, True),)


@for_every(
    "path, value",
    [
        (("text",), 3),
        (("mode",), "slow"),
        (("number",), "1.5"),
        (("number",), None),
        (("number",), True),
        (("count",), 2.0),
        (("count",), True),
        (("inner",), []),
        (("inner", "values"), [1, 2]),
        (("inner", "values"), [1.0, "x"]),
        (("inner", "shape"), [1]),
        (("effects",), {}),
        (("effects",), "text"),
        (("effects", 0), [0.5, False]),
        (("effects", 0, "known"), 1),
        (("by_name",), []),
        (("by_name", "z"), "ab"),
        (("by_pair",), {"b": 1.0}),
        (("by_pair", 0), [["b", 1]]),
        (("seen",), {"x": "y"}),
        (("sheets", "mine"), {"name": "mine"}),
    ],
)
def test_a_field_of_another_type_is_refused_by_name(path, value):
    content = content_of(EXAMPLE)
    place = content
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=rf"\.{path[0]}") as error:
        from_content(Outer, content)
    assert "\n" not in str(error.value)


def test_missing_and_unknown_fields_are_refused_by_name():
    content = content_of(EXAMPLE)
    without = {key: value for key, value in content.items() if key != "number"}
    with pytest.raises(ValueError, match=r"\.number"):
        from_content(Outer, without)
    with pytest.raises(ValueError, match="surprise"):
        from_content(Outer, content | {"surprise": 1})
    with pytest.raises(ValueError, match="list"):
        from_content(Outer, [])


def test_an_array_of_other_elements_is_not_written():
    with pytest.raises(TypeError, match="int64"):
        to_content(Inner(np.arange(3)))


@dataclass(frozen=True)
class WithShapes:
    matrix: Float64[np.ndarray, "n d"]
    codes: Int[np.ndarray, " n"]
    known: Bool[np.ndarray, " n"]
    names: Text[np.ndarray, " n"]
    weights: Float64[np.ndarray, " n"] | None = None


def test_arrays_whose_types_give_dimensions_are_stored_and_restored():
    arrays = (np.ones((2, 3)), np.arange(2), np.array([True, False]), np.array(["a", "bc"]))
    for value in (WithShapes(*arrays), WithShapes(*arrays, np.array([0.5, np.nan]))):
        same(from_content(WithShapes, content_of(value)), value)


def test_arrays_whose_types_give_dimensions_have_the_declared_elements():
    content = content_of(WithShapes(np.ones((1, 1)), np.zeros(1, int), np.ones(1, bool), TEXT))
    with pytest.raises(ValueError, match=r"float64 are not integer.*\.codes"):
        from_content(WithShapes, content | {"codes": [0.5]})
