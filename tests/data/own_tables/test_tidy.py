"""Rows become canonical: texts, numbers and units; a bad cell is named by column and row."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.errors import BadTable, MissingData
from forerun.data.own_tables.tidy import mapped, read_table, text_keys, tidy_runs


def tidied(frame, given=None, rest="setting"):
    frame = pd.DataFrame(frame).astype(object)
    return tidy_runs(frame, mapped(list(frame), given or {}, rest), "mine", "t.csv")


def test_plain_columns_are_settings_and_keys_are_not():
    runs, described = tidied(
        {"gpu": ["l4"], "model": ["m"], "bs": ["8"], "kernel": ["direct"], "time_s": ["0.5"]}
    )
    assert described.layout == "settings"
    assert described.settings == ("bs", "kernel"), "names of devices and models are no features"
    assert described.metrics == ("latency_ms",)
    assert runs[["latency_ms", "bs", "kernel"]].values.tolist() == [[500.0, 8.0, "direct"]]
    assert runs[["device", "model", "family"]].values.tolist() == [["l4", "m", ""]]


def test_rows_with_graphs_take_the_schema_of_measurements_and_usual_words():
    runs, described = tidied(
        {"graph": ["a.onnx"], "gpu": ["l4"], "dtype": ["Float16"], "phase": ["train"],
         "latency": ["2"], "note": ["x"]},
        rest="ignored",
    )  # fmt: skip
    assert (described.layout, described.settings) == ("networks", ())
    row = runs.iloc[0]
    assert (row["precision"], row["phase"], row["status"]) == ("fp16", "training", "ok")
    assert "note" not in runs


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ({"n": ["1"], "latency_ms": ["fast"]}, "'latency_ms', row 1: 'fast' is no number"),
        ({"n": ["1", "2"], "time_s": ["1", "0"]}, "'time_s', row 2: latency_ms is 0;"),
        ({"n": ["1"], "latency_ms": ["inf"]}, "row 1: latency_ms is inf;"),
        ({"n": ["1"]}, "no column is a measured metric"),
        ({"gpu": ["l4"], "latency_ms": ["1"]}, "no column describes what was run"),
        ({"graph": ["g"], "latency_ms": ["1"]}, "no column names the device"),
    ],
)
def test_what_cannot_be_read_is_named(frame, said):
    with pytest.raises(BadTable, match=said):
        tidied(frame)


def test_a_missing_cell_stays_missing():
    runs, _ = tidied({"n": ["1", None], "word": ["a", None], "latency_ms": [None, "2"]})
    assert runs["n"].isna().tolist() == runs["word"].isna().tolist() == [False, True]
    assert runs["latency_ms"].isna().tolist() == [True, False]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_files_are_read_and_bad_ones_refused(tmp_path, suffix):
    file = tmp_path / f"t{suffix}"
    frame = pd.DataFrame({"a": ["1", "NA"]})
    frame.to_csv(file, index=False) if suffix == ".csv" else frame.to_parquet(file)
    assert len(read_table(file)) == 2
    with pytest.raises(MissingData, match="No file"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "t.txt").write_text("a")
    with pytest.raises(BadTable, match=r"ends in \.csv or \.parquet"):
        read_table(tmp_path / "t.txt")
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(BadTable, match="has no row"):
        read_table(tmp_path / "empty.csv")


def test_equal_rows_share_a_key_and_others_do_not():
    frame = pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": ["x", "x", None]})
    keys = text_keys(frame, ["a", "b", "absent"])
    assert len(np.unique(keys)) == 2
    assert keys[0] == keys[1]
