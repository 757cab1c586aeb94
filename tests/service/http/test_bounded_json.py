"""JSON in pieces: the same values and the same refusals as in one go, within bounds."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from forerun.service.http.json_bodies import MOST_DEPTH, MOST_KEYS, MOST_VALUES, parsed
from forerun.service.problems import WrongField

SMALL = 12
LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40
)


def refused(content: bytes, piece_bytes: int) -> bool:
    try:
        parsed(content, piece_bytes)
    except (json.JSONDecodeError, HTTPException):
        return True
    return False


@given(VALUES, st.booleans(), st.sampled_from([None, 1]), st.integers(1, 60))
def test_pieces_of_any_size_give_the_same_value(value, ascii_only, indent, piece_bytes):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parsed(text.encode("utf-8", "surrogatepass"), piece_bytes) == value


@given(VALUES, st.data())
def test_a_damaged_text_is_refused_in_pieces_as_it_is_in_one(value, data):
    content = bytearray(json.dumps(value).encode())
    at = data.draw(st.integers(0, len(content) - 1))
    match data.draw(st.sampled_from(["cut", "drop", "insert"])):
        case "cut":
            del content[at:]
        case "drop":
            del content[at]
        case _:
            content.insert(at, data.draw(st.sampled_from(b'[]{},:"\\0 ')))
    whole = bytes(content)
    assert refused(whole, SMALL) == refused(whole, 2**20)
    if not refused(whole, SMALL):
        assert parsed(whole, SMALL) == json.loads(whole)


@pytest.mark.parametrize(
    "text",
    ["[1,2,3,4,5,6,7,]", '{"aaaa":1,"bbbb":2,}', "[1,2,3,4,5] [6,7,8]", '[1,2,3,4,5,"aaaa]',
     '[[1,2,3,4,5,6,7] [1,2,3,4,5,6,7]]', "[1,2,3,4,5,6,7}", '{"a" 5:[1,2,3,4,5,6,7,8]}',
     '[[1,2,3,4,5,6,7]5]', "[1,2,3,4,5,6,7"],
)  # fmt: skip
def test_no_mistake_between_two_pieces_is_overlooked(text):
    with pytest.raises(json.JSONDecodeError):
        parsed(text.encode(), SMALL)


def test_a_mistake_is_located_in_the_whole_text():
    text = json.dumps([[n, n] for n in range(100)]).replace("77", "7x7", 1)
    with pytest.raises(json.JSONDecodeError) as located:
        parsed(text.encode(), SMALL)
    with pytest.raises(json.JSONDecodeError) as whole:
        json.loads(text)
    assert located.value.pos == whole.value.pos


@pytest.mark.parametrize("piece_bytes", [SMALL, 2**20])
def test_nesting_is_bounded(piece_bytes):
    deepest = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    assert parsed(deepest, piece_bytes) == json.loads(deepest)
    with pytest.raises(HTTPException, match="deeper than 64"):
        parsed(b"[" + deepest + b"]", piece_bytes)
    assert parsed(json.dumps("[" * 1000).encode(), piece_bytes) == "[" * 1000


def test_values_and_keys_are_bounded():
    with pytest.raises(HTTPException, match="values"):
        parsed(b"[" + b"0," * (MOST_VALUES + 1) + b"0]")
    keys = {str(n): 0 for n in range(MOST_KEYS + 1)}
    with pytest.raises(HTTPException, match="keys"):
        parsed(json.dumps(keys).encode(), 2**10)


@pytest.mark.parametrize("content", [b'["\xff"]', b"[" + b"1" * 5000 + b"]"])
def test_bytes_and_numbers_that_python_cannot_read_are_refused(content):
    assert refused(content, SMALL)
    assert refused(content, 2**20)


@pytest.mark.parametrize("piece_bytes", [SMALL, 2**10, 2**17])
@pytest.mark.parametrize("fields", [0, 200, 2_000])
def test_a_field_with_two_values_is_refused_and_one_that_is_repeated_is_not(piece_bytes, fields):
    """At any size, in one piece and over several, at the top and in an object that is held."""
    between = b"".join(b'"k%d": {"x": [1, 2]}, ' % number for number in range(fields))
    same = b'{"a": {"n": 1}, %s"b": {"a": 2}, "a": {"n": 1}}' % between
    assert parsed(same, piece_bytes) == json.loads(same)
    load = b'{"concurrency": 8, %s"concurrency": 9}' % between
    for content, place in (
        (load, ()),
        (b'{"load": %s}' % load, ("load",)),
        (b'[0, {"loads": [%s]}]' % load, (1, "loads", 0)),
        (b'[0, {%s"loads": [1, 2, %s]}]' % (between, load), (1, "loads", 2)),
    ):
        with pytest.raises(WrongField, match="given several times, as 8 and 9") as raised:
            parsed(content, piece_bytes)
        assert raised.value.status_code == 400
        assert raised.value.field == (*place, "concurrency")


@pytest.mark.parametrize("piece_bytes", [SMALL, 2**17])
def test_an_object_that_a_second_value_hides_is_refused_by_the_field_that_hides_it(piece_bytes):
    """The values are equal by their last fields."""
    content = b'{"load": {"n": 1, "n": 2}, "load": {"n": 2}, "end": 0}'
    with pytest.raises(WrongField) as raised:
        parsed(content, piece_bytes)
    assert raised.value.field[0] == "load"
