"""JSON within bounds: the values and the mistakes of the standard library, and further refusals."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from forerun.service.http.limits import MOST_DEPTH, MOST_KEYS, MOST_VALUES, parsed
from forerun.service.problems import WrongField

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_values_are_those_of_the_standard_library(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parsed(text.encode("utf-8", "surrogatepass")) == value


@pytest.mark.parametrize("many", ["", "[],"])
def test_a_mistake_is_located_in_the_text(many):
    text = f"[{many * MOST_DEPTH}{json.dumps([[n, n] for n in range(9)])[:-1].replace('7', '7x')}"
    with pytest.raises(json.JSONDecodeError) as located:
        parsed(text.encode())
    with pytest.raises(json.JSONDecodeError) as known:
        json.loads(text)
    assert located.value.pos == known.value.pos


def test_nesting_is_bounded_outside_of_strings():
    deepest = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    assert parsed(deepest) == json.loads(deepest)
    object_around = b'{"a": ' + deepest + b"}"
    for inner in (deepest, rb'"\"", ' + deepest, b'"[", ' + deepest, object_around):
        with pytest.raises(HTTPException, match="deeper than 64"):
            parsed(b"[" + inner + b"]")
    for text in ("[" * 1000, "\\" + '"[{' * 1000):
        assert parsed(json.dumps(text).encode()) == text


def test_values_and_keys_are_bounded():
    with pytest.raises(HTTPException, match="values"):
        parsed(b"[" + b"0," * (MOST_VALUES + 1) + b"0]")
    commas = "," * (MOST_VALUES + 1)
    assert parsed(json.dumps(commas).encode()) == commas
    keys = {str(n): 0 for n in range(MOST_KEYS + 1)}
    with pytest.raises(HTTPException, match="keys"):
        parsed(json.dumps(keys).encode())


@pytest.mark.parametrize("content", [b'["\xff"]', b"[" + b"1" * 5000 + b"]", b'["a', b"[1,]"])
def test_what_python_cannot_read_is_refused(content):
    with pytest.raises((json.JSONDecodeError, HTTPException)):
        parsed(content)


@pytest.mark.parametrize("fields", [0, 2_000])
def test_a_field_with_two_values_is_refused_and_one_that_is_repeated_is_not(fields):
    between = b"".join(b'"k%d": {"x": [1, 2]}, ' % number for number in range(fields))
    same = b'{"a": {"n": 1}, %s"b": {"a": 2}, "a": {"n": 1}}' % between
    assert parsed(same) == json.loads(same)
    load = b'{"concurrency": 8, %s"concurrency": 9}' % between
    for content, place in (
        (load, ()),
        (b'{"load": %s}' % load, ("load",)),
        (b'[0, {"loads": [%s]}]' % load, (1, "loads", 0)),
        (b'[0, {%s"loads": [1, 2, %s]}]' % (between, load), (1, "loads", 2)),
    ):
        with pytest.raises(WrongField, match="given several times, as 8 and 9") as raised:
            parsed(content)
        assert raised.value.status_code == 400
        assert raised.value.field == (*place, "concurrency")


def test_an_object_that_a_second_value_hides_is_refused_by_the_field_that_hides_it():
    """The values are equal by their last fields."""
    content = b'{"load": {"n": 1, "n": 2}, "load": {"n": 2}, "end": 0}'
    with pytest.raises(WrongField) as raised:
        parsed(content)
    assert raised.value.field[0] == "load"
