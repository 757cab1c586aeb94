"""Tables of columns, grouping by key, array types, and columns of measurements."""

import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from forerun.data.columns import Columns, finite_log, groups_of, rows_by
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.shapes import Bool, Float64, Int, Shaped, Text, elements_of
from forerun.data.workload import Benchmark
from tests.devices import HOST


@dataclass(frozen=True)
class Inner(Columns):
    number: np.ndarray


@dataclass(frozen=True)
class Table(Columns):
    kind: str
    matrix: np.ndarray
    names: tuple[str, ...]
    inner: Inner
    numbers: Mapping[str, np.ndarray]


TABLE = Table(
    "kind",
    np.arange(6).reshape(3, 2),
    ("a", "b", "c"),
    Inner(np.arange(3)),
    {"squares": np.arange(3) ** 2},
)


def test_a_mask_positions_and_a_slice_take_the_same_rows_of_every_column():
    for rows in (np.array([True, False, True]), np.array([0, 2]), slice(0, 3, 2)):
        found = TABLE.take(rows)
        assert found.matrix.tolist() == [[0, 1], [4, 5]]
        assert list(found.names) == ["a", "c"]
        assert found.inner.number.tolist() == [0, 2]
        assert found.numbers["squares"].tolist() == [0, 4]


def test_fields_that_are_not_columns_are_kept():
    assert TABLE.take(np.array([1])).kind == "kind"


def test_positions_may_repeat_and_change_the_order():
    assert TABLE.take(np.array([2, 0, 2])).inner.number.tolist() == [2, 0, 2]


def test_tables_are_joined_in_their_order():
    joined = Inner.concatenate([Inner(np.array([2, 1])), Inner(np.array([5]))])
    assert joined.number.tolist() == [2, 1, 5]


def test_groups_are_in_order_of_appearance_and_hold_every_row_once():
    assert list(groups_of("banana").items()) == [("b", [0]), ("a", [1, 3, 5]), ("n", [2, 4])]
    assert groups_of([]) == {}


def test_keys_and_the_rows_of_each_key_are_ascending():
    rows = rows_by(["b", "a", "b"])
    assert list(rows) == ["a", "b"]
    assert [own.tolist() for own in rows.values()] == [[1], [0, 2]]
    assert all(own.dtype == np.intp for own in rows.values())


def test_nothing_has_no_keys():
    assert rows_by([]) == {}


def test_values_without_a_logarithm_give_nan():
    logs = finite_log(np.array([0.5, 0.0, -1.0, np.inf, np.nan]))
    assert logs[0] == pytest.approx(np.log(0.5))
    assert np.isnan(logs[1:]).all()


PLAIN = """
import sys
import numpy as np
from numpy.typing import NDArray
from forerun.data.shapes import Bool, Float64, Int, Shaped, Text, elements_of

assert Float64[np.ndarray, "n d"] == NDArray[np.float64]
assert elements_of(Text[np.ndarray, " n"]) is np.str_
assert elements_of(Int[np.ndarray, " n"] | None) is None
assert "jaxtyping" not in sys.modules
"""


def test_elements_are_those_of_the_annotation():
    assert elements_of(Float64[np.ndarray, "n d"]) is np.float64
    assert elements_of(Bool[np.ndarray, " n"]) is np.bool_
    assert elements_of(Int[np.ndarray, " n"]) is np.integer
    assert elements_of(Text[np.ndarray, " n"]) is np.str_
    assert elements_of(Shaped[np.ndarray, " n"]) is Any
    assert elements_of(NDArray[np.float64]) is np.float64
    assert elements_of(float) is None


def test_texts_are_texts():
    assert isinstance(np.array(["a", "bcd"]), Text[np.ndarray, " n"])
    assert not isinstance(np.array([1.0]), Text[np.ndarray, " n"])


def test_commands_use_plain_types_even_when_started_by_tests():
    done = subprocess.run([sys.executable, "-c", PLAIN], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TWO = Measurements(
    [Query(Benchmark("suite", ()), HOST)] * 2,
    {"score": np.array([1.0, np.nan])},
    {"family": np.array(["x", "x"])},
)


def test_a_metric_that_was_not_measured_is_nan_in_every_row():
    np.testing.assert_array_equal(TWO.column("score"), [1.0, np.nan])
    np.testing.assert_array_equal(TWO.column("latency_ms"), [np.nan, np.nan])


def test_without_a_key_every_row_is_its_own_group():
    assert TWO.group("family").tolist() == ["x", "x"]
    assert TWO.group("device").tolist() == ["0", "1"]


def test_a_sum_has_every_column_of_either_side():
    whole = TWO + Measurements(TWO.queries, {"area": np.array([3.0, 4.0])})
    np.testing.assert_array_equal(whole.values["score"], [1.0, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(whole.values["area"], [np.nan, np.nan, 3.0, 4.0])
