"""Arrays come back from strict JSON as they were, to the last bit."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from forerun.models.artifact.codec import FEW, array_from_json, array_to_json
from tests.models.artifact.test_codec import same

DTYPES = st.sampled_from(
    [*("float64", "float32", "float16", "int64", "int32", "int16", "uint8", "bool"), "<U3", ">f8"]
)
"""Texts are those that numpy can hold: without zeros at the end."""


def again(array):
    return array_from_json(json.loads(json.dumps(array_to_json(array), allow_nan=False)))


@given(arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=3, min_side=0)))
def test_an_array_of_any_type_and_shape_comes_back_to_the_last_bit(array):
    same(again(array), array)


@given(
    arrays.arrays(DTYPES, arrays.array_shapes(min_dims=1, max_dims=2, max_side=4)),
    st.integers(FEW, 3 * FEW),
    st.integers(0, 2**32 - 1),
)
def test_so_does_a_long_array_whose_rows_repeat(few, length, seed):
    array = few[np.random.default_rng(seed).integers(0, len(few), length)]
    same(again(array), array)


def test_short_arrays_are_lists_that_people_can_read():
    assert array_to_json(np.array([[0.1, 0.2], [0.3, -0.0]])) == [[0.1, 0.2], [0.3, -0.0]]
    assert array_to_json(np.array(["conv", "gemm"])) == ["conv", "gemm"]


def test_long_arrays_take_little_room():
    rng = np.random.default_rng(0)
    for array, most in (
        (rng.normal(size=2000), 16.1 * 2000),
        (rng.normal(size=2000).round(3), 8 * 2000),
        (rng.integers(0, 9, 2000), 2.1 * 2000),
        (rng.normal(size=(4, 50))[rng.integers(0, 4, 2000)], 3.5 * 2000),
        (np.array(["a long text that repeats", "another"])[rng.integers(0, 2, 2000)], 2.5 * 2000),
    ):
        assert len(json.dumps(array_to_json(array))) < most + 500


def test_an_array_can_be_written_to_after_loading():
    for array in (np.arange(5.0), np.random.default_rng(0).normal(size=500)):
        again(array)[0] = 7.0


def test_python_objects_are_not_stored():
    with pytest.raises(TypeError, match="Python objects"):
        array_to_json(np.array([{}, []], dtype=object))


@pytest.mark.parametrize(
    "content",
    [
        {"dtype": "<f8", "shape": [2]},
        {"dtype": "<f8", "shape": [2], "hex": "00"},
        {"dtype": "<f8", "shape": [3], "hex": "00" * 16},
        {"dtype": "<f8", "shape": [2], "hex": "zz" * 16},
        {"dtype": "O", "shape": [2], "hex": "00" * 16},
        {"dtype": "no type", "shape": [1], "values": [1]},
        {"rows": [1.0, 2.0], "index": [0, 2]},
        [[1.0], [2.0, 3.0]],
    ],
)
def test_damaged_content_is_refused(content):
    with pytest.raises(ValueError):
        array_from_json(content)
