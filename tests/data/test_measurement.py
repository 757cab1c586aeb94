"""Measurements survive a round trip through files; invalid tables are refused in one line."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from forerun.data.errors import BadTable, MissingData
from forerun.data.measurement import (
    COLUMNS,
    METRIC_COLUMNS,
    read_measurements,
    tidy_measurements,
    write_measurements,
)
from forerun.data.schema import check_table, number, text

GOOD = {"workload": "resnet50", "device": "t4", "latency_ms": 1.5, "status": "ok"}


def _table(*changes):
    return pd.DataFrame([GOOD | change for change in changes] or [GOOD])


names = st.text(
    st.characters(codec="utf-8", categories=("L", "N", "P", "S"), include_characters=' ,"'),
    min_size=1,
    max_size=8,
)
positive = st.none() | st.floats(min_value=1e-300, max_value=1e300)
counts = st.none() | st.integers(1, 2**31)
rows = st.fixed_dictionaries(
    {
        "workload": names,
        "device": names,
        "framework_version": st.none() | names,
        "precision": st.sampled_from([None, "fp16", "amp"]),
        "batch_size": counts,
        "latency_ms": st.floats(min_value=1e-300, max_value=1e300),
        "energy_j": positive,
        "spread": st.none() | st.floats(0, 10),
        "repeats": counts,
        "status": st.sampled_from(["ok", "throttled"]),
    }
)


@pytest.mark.slow
@given(rows=st.lists(rows, min_size=1, max_size=5), suffix=st.sampled_from([".csv", ".parquet"]))
@settings(max_examples=8)
def test_a_file_gives_back_what_was_written(rows, suffix, tmp_path_factory):
    frame = pd.DataFrame(rows)
    path = tmp_path_factory.mktemp("round") / f"measured{suffix}"
    write_measurements(frame, path)
    expected = tidy_measurements(frame, "frame")
    pd.testing.assert_frame_equal(read_measurements(path), expected, check_exact=True)
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_all_columns_are_there_in_order_and_others_are_kept(tmp_path):
    path = tmp_path / "m.csv"
    write_measurements(_table().assign(site="lab"), path)
    frame = read_measurements(path)
    assert tuple(frame.columns) == (*COLUMNS, "site")


def test_not_measured_is_null_never_zero():
    frame = tidy_measurements(_table(), "t")
    assert frame["power_w"].isna().all()
    with pytest.raises(BadTable, match=r"column 'power_w', row 1: 0\.0"):
        tidy_measurements(_table({"power_w": 0.0}), "t")


@pytest.mark.parametrize("status", ["oom", "failed"])
def test_a_censored_run_has_no_metrics(status):
    censored = {"status": status, "latency_ms": None}
    frame = tidy_measurements(_table({}, censored), "t")
    assert frame.loc[1, list(METRIC_COLUMNS)].isna().all()
    with pytest.raises(BadTable, match=f"'latency_ms', row 2: a run that is {status} has no"):
        tidy_measurements(_table({}, {"status": status}), "t")


def test_a_successful_run_has_a_metric():
    with pytest.raises(BadTable, match="row 2: the run is ok but nothing was measured"):
        tidy_measurements(_table({}, {"latency_ms": None}), "t")


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"latency_ms": -1.0}, r"'latency_ms', row 2: -1\.0"),
        ({"latency_ms": "fast"}, "'latency_ms', row 2: 'fast' is not a number"),
        ({"latency_ms": np.inf}, "'latency_ms', row 2: inf"),
        ({"utilisation": 1.5}, r"'utilisation', row 2: 1\.5"),
        ({"batch_size": 2.5}, r"'batch_size', row 2: 2\.5 is not a whole number"),
        ({"batch_size": 0}, "'batch_size', row 2: 0"),
        ({"status": "fine"}, "'status', row 2: 'fine'"),
        ({"status": None}, "'status', row 2"),
        ({"device": ""}, "'device', row 2"),
        ({"device": "two\nlines"}, "'device', row 2"),
        ({"precision": "fp17"}, "'precision', row 2: 'fp17'"),
        ({"phase": "both"}, "'phase', row 2: 'both'"),
    ],
)
def test_a_bad_cell_is_named_by_column_and_row(change, place):
    with pytest.raises(BadTable, match=f"m.csv: column {place}"):
        tidy_measurements(_table({}, change), "m.csv")


@pytest.mark.parametrize("column", ["workload", "device"])
def test_a_missing_column_is_named(column):
    with pytest.raises(BadTable, match=f"no column '{column}'"):
        tidy_measurements(_table().drop(columns=column), "m.csv")


def test_all_missing_and_all_unknown_columns_are_named_at_once():
    renamed = _table().rename(columns={"workload": "network", "device": "gpu"})
    wanted = "no column 'workload' and no column 'device'.*; not read: network, gpu"
    with pytest.raises(BadTable, match=wanted):
        tidy_measurements(renamed, "m.csv")


def test_without_a_status_a_row_with_a_metric_is_ok_and_one_without_failed():
    frame = _table({}, {"latency_ms": None}).drop(columns="status")
    assert tidy_measurements(frame, "m.csv")["status"].tolist() == ["ok", "failed"]


def test_a_table_whose_metric_has_another_name_says_which_columns_are_not_read():
    frame = _table().drop(columns="status").rename(columns={"latency_ms": "seconds"})
    with pytest.raises(BadTable, match=r"no column is a metric; give .*; not read: seconds"):
        tidy_measurements(frame, "m.csv")


def test_text_that_looks_like_a_number_stays_text(tmp_path):
    path = tmp_path / "m.csv"
    write_measurements(_table({"framework_version": "2.10", "workload": "NA"}), path)
    frame = read_measurements(path)
    assert frame["framework_version"].tolist() == ["2.10"]
    assert frame["workload"].tolist() == ["NA"]


def test_an_invalid_table_is_not_written(tmp_path):
    path = tmp_path / "m.parquet"
    write_measurements(_table(), path)
    with pytest.raises(BadTable):
        write_measurements(_table({"latency_ms": -1.0}), path)
    assert len(read_measurements(path)) == 1


@pytest.mark.parametrize(
    ("name", "content", "why"),
    [
        ("m.parquet", b"no parquet", "Cannot read"),
        ("m.csv", b"", "Cannot read"),
        ("m.csv", b"\xff\xfe\x00", "Cannot read"),
        ("m.txt", b"", "ends in .parquet or .csv"),
    ],
)
def test_a_file_that_is_not_a_table_is_refused(tmp_path, name, content, why):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BadTable, match=why):
        read_measurements(path)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(MissingData, match="No file"):
        read_measurements(tmp_path / "m.csv")
    with pytest.raises(BadTable, match="ends in"):
        write_measurements(_table(), tmp_path / "m.json")


def test_an_empty_table_is_a_table(tmp_path):
    path = tmp_path / "m.csv"
    write_measurements(_table().head(0), path)
    assert len(read_measurements(path)) == 0


SOUND = pd.DataFrame({"op": ["a", "b"], "note": ["x", None], "ms": [0.5, 9.0]})


@pytest.fixture
def schema():
    import pandera.pandas as pa

    return pa.DataFrameSchema(
        {"op": text(values=("a", "b")), "note": text(nullable=True), "ms": number(above=0, high=9)}
    )


def _changed(column, value):
    frame = SOUND.astype({column: "object"})
    frame.loc[1, column] = value
    return frame.infer_objects()


@pytest.mark.parametrize("kind", ["str", "string", "object", "category"])
def test_text_may_be_stored_in_any_way(schema, kind):
    frame = SOUND.astype({"op": kind, "note": kind})
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


def test_a_wrong_type_is_reported_before_wrong_values(schema):
    with pytest.raises(BadTable, match=r"column 'ms': 'int64' fails dtype\('float64'\)"):
        check_table(SOUND.assign(ms=[-1, 2]), schema, "t")


def test_a_missing_column_is_reported_first(schema):
    with pytest.raises(BadTable, match="t: no column 'op'"):
        check_table(_changed("ms", -1.0).drop(columns="op"), schema, "t")
