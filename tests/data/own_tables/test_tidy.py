"""User tables: columns are recognised by name and unit, cells converted, doubtful rows flagged."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.errors import BadTable, InputError, MissingData
from forerun.data.own_tables.tidy import (
    IGNORED,
    KEYS,
    METRIC_NAMES,
    SETTING,
    Description,
    Hardware,
    Meaning,
    check_roles,
    findings_of,
    given_meaning,
    mapped,
    meaning_of,
    read_table,
    text_keys,
    tidy_runs,
)
from tests.every import for_every


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


def test_rows_with_graphs_get_the_schema_of_measurements_and_common_synonyms():
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
        ({"n": ["1"], "latency_ms": ["fast"]}, "'latency_ms', row 1: 'fast' is not a number"),
        ({"n": ["1", "2"], "time_s": ["1", "0"]}, "'time_s', row 2: latency_ms is 0;"),
        ({"n": ["1"], "latency_ms": ["inf"]}, "row 1: latency_ms is inf;"),
        ({"n": ["1"]}, "no column is a measured metric"),
        ({"gpu": ["l4"], "latency_ms": ["1"]}, "no column describes what was run"),
        ({"graph": ["g"], "latency_ms": ["1"]}, "no column names the device"),
    ],
)
def test_unreadable_cells_are_named(frame, said):
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
    with pytest.raises(BadTable, match=r"ends in \.parquet or \.csv"):
        read_table(tmp_path / "t.txt")
    (tmp_path / "empty.csv").write_text("a,b\n")
    with pytest.raises(BadTable, match="has no row"):
        read_table(tmp_path / "empty.csv")


def test_equal_rows_share_a_key_and_others_do_not():
    frame = pd.DataFrame({"a": [1.0, 1.0, 1.0], "b": ["x", "x", None]})
    keys = text_keys(frame, ["a", "b", "absent"])
    assert len(np.unique(keys)) == 2
    assert keys[0] == keys[1]


TABLE = Description("mine", "settings", ("latency_ms", "power_w", "peak_memory_mib"), ("n",))


def found(latency_ms, n=None, power_w=50.0, memory_mib=100.0, **more):
    rows = len(latency_ms)
    frame = pd.DataFrame(
        {"device": "l4", "model": "", "n": n or range(rows), "latency_ms": latency_ms}
    ).assign(power_w=power_w, peak_memory_mib=memory_mib, **more)
    hardware = Hardware(np.full(rows, 1.0), np.full(rows, 72.0), np.full(rows, 24_000.0))
    findings = findings_of(frame, TABLE, hardware)
    return sorted(zip(findings["row"], findings["flag"], strict=True))


def test_plausible_rows_carry_no_flag():
    assert found([1.0, 2.0, 3.0]) == []


def test_a_time_below_the_bound_is_impossible():
    assert found([0.5, 2.0, 3.0]) == [(0, "impossible")]


def test_a_wrong_unit_is_reported_if_most_times_are_below_the_bound():
    with pytest.raises(BadTable, match=r"2 of 3 times .*row 1: 0\.001 ms, at least 1 ms"):
        found([0.001, 0.002, 3.0])


def test_repeats_and_contradictions_of_one_question():
    assert found([2.0, 2.0, 3.0], n=[1, 1, 2]) == [(1, "duplicate")]
    assert found([2.0, 3.9], n=[1, 1]) == [], "up to a factor of 2 is noise"
    assert found([2.0, 4.1, 9.0], n=[1, 1, 2]) == [(0, "conflict"), (1, "conflict")]


def test_rows_without_a_time_or_above_the_power_or_memory_of_the_device_are_flagged():
    assert found([np.nan, 2.0]) == [(0, "unmeasured")]
    assert found([2.0], power_w=100.0) == [(0, "over_power")]
    assert found([2.0], memory_mib=25_000.0) == [(0, "impossible")]


def test_a_share_in_percent_is_refused():
    with pytest.raises(BadTable, match="utilization_percent"):
        found([2.0], utilisation=87.0)


@for_every("name", [*KEYS, *METRIC_NAMES])
def test_the_names_of_forerun_s_own_tables_mean_themselves(name):
    assert meaning_of(name) == Meaning(name)


@pytest.mark.parametrize(
    ("name", "role", "factor"),
    [
        ("GPU", "device", 1.0),
        ("batch", "batch_size", 1.0),
        ("dtype", "precision", 1.0),
        ("model_file", "workload", 1.0),
        ("network", "model", 1.0),
        ("latency", "latency_ms", 1.0),
        ("time_s", "latency_ms", 1e3),
        ("Latency (us)", "latency_ms", 1e-3),
        ("inference time [ns]", "latency_ms", 1e-6),
        ("peak_memory_gib", "peak_memory_mib", 1024.0),
        ("memory MB", "peak_memory_mib", 1e6 / 2**20),
        ("avg_power_mw", "power_w", 1e-3),
        ("energy_kwh", "energy_j", 3.6e6),
        ("images_per_s", "samples_per_s", 1.0),
        ("utilization_percent", "utilisation", 0.01),
    ],
)
def test_common_names_are_recognised_and_units_converted(name, role, factor):
    assert meaning_of(name) == Meaning(role, pytest.approx(factor))


@pytest.mark.parametrize("name", ["time", "memory", "cores", "tile_size", "latency_parsec", ""])
def test_a_name_without_a_unit_or_meaning_is_left_open(name):
    assert meaning_of(name) is None


def test_the_user_overrides_names_and_decides_about_the_rest():
    names = ["gpu", "latency_ms", "cores", "note"]
    given = {"latency_ms": "latency_us", "note": IGNORED}
    assert mapped(names, given) == {
        "gpu": Meaning("device"),
        "latency_ms": Meaning("latency_ms", 1e-3),
        "cores": None,
        "note": Meaning(IGNORED),
    }
    assert mapped(names, given, SETTING)["cores"] == Meaning(SETTING)


def test_an_unknown_meaning_is_refused_with_close_ones():
    with pytest.raises(InputError, match=r"'latencyms'\. Did you mean latency_ms"):
        given_meaning("latencyms")


def test_an_unknown_column_is_refused_with_close_ones():
    with pytest.raises(InputError, match=r"core=\.\.\.: no such column\. Did you mean 'cores'"):
        mapped(["cores", "time_ms"], {"core": SETTING})


def test_two_columns_with_the_same_meaning_are_refused():
    with pytest.raises(BadTable, match="'latency' and 'time_ms' are both read as latency_ms"):
        check_roles(mapped(["latency", "time_ms"], {}))
    check_roles(mapped(["latency", "time_ms"], {"latency": IGNORED}))
    check_roles({"a": Meaning(SETTING), "b": Meaning(SETTING), "c": None, "d": None})
