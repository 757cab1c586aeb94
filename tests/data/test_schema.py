"""A table that breaks its schema is refused in one line that names column and row."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.errors import BadTable
from forerun.data.schema import check_table, number, text

GOOD = pd.DataFrame({"op": ["a", "b"], "note": ["x", None], "ms": [0.5, 9.0]})


@pytest.fixture
def schema():
    import pandera.pandas as pa

    return pa.DataFrameSchema(
        {"op": text(values=("a", "b")), "note": text(nullable=True), "ms": number(above=0, high=9)}
    )


def _changed(column, value):
    frame = GOOD.astype({column: "object"})
    frame.loc[1, column] = value
    return frame.infer_objects()


@pytest.mark.parametrize("kind", ["str", "string", "object", "category"])
def test_text_may_be_stored_in_any_way(schema, kind):
    frame = GOOD.astype({"op": kind, "note": kind})
    assert check_table(frame, schema, "t")["op"].tolist() == ["a", "b"]


def test_rows_are_counted_from_one_whatever_the_index(schema):
    frame = _changed("ms", -1.0).set_index(pd.Index([40, 50]))
    with pytest.raises(BadTable, match=r"^t: column 'ms', row 2: -1\.0 fails greater_than\(0\)\.$"):
        check_table(frame, schema, "t")


@pytest.mark.parametrize(
    ("column", "value", "why"),
    [
        ("op", "c", "'c' fails isin"),
        ("op", None, "not_nullable"),
        ("note", "two\nlines", "is printable text"),
        ("note", 5, "5 fails is printable text"),
        ("ms", 9.5, r"9\.5 fails less_than_or_equal_to\(9\)"),
        ("ms", np.inf, "inf fails"),
        ("ms", np.nan, "not_nullable"),
    ],
)
def test_a_bad_value_is_named(schema, column, value, why):
    with pytest.raises(BadTable, match=f"column '{column}', row 2: .*{why}"):
        check_table(_changed(column, value), schema, "t")


def test_a_wrong_type_goes_before_wrong_values(schema):
    with pytest.raises(BadTable, match=r"column 'ms': 'int64' fails dtype\('float64'\)"):
        check_table(GOOD.assign(ms=[-1, 2]), schema, "t")


def test_a_missing_column_goes_before_everything(schema):
    with pytest.raises(BadTable, match="t: no column 'op'"):
        check_table(_changed("ms", -1.0).drop(columns="op"), schema, "t")
