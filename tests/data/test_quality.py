"""Doubtful rows, and only those, are flagged with a reason."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.quality import FLAGS, Quantities, check, counts, row_weights, shifted_groups

DEVICES = ("p", "q", "r", "s", "t")


def _groups(throttled=None, slow_device=None):
    """60 rows of each device, class and part; levels differ, spreads do not."""
    rng = np.random.default_rng(0)
    rows, utilisation = [], []
    for i, device in enumerate(DEVICES):
        for j, op_class in enumerate(("gemm", "vector", "norm")):
            for part in ("train", "test"):
                level = 0.5 + 0.05 * i - 0.1 * j + (0.1 if part == "test" else 0)
                if (device, op_class, part) == throttled:
                    level /= 3
                if device == slow_device:
                    level /= 3
                rows += [(device, op_class, part)] * 60
                utilisation += list(level * np.exp(rng.normal(0, 0.2, 60)))
    return pd.DataFrame(rows, columns=["device", "op_class", "part"]), np.array(utilisation)


def _rows_of(frame, device, op_class, part):
    return (
        (frame["device"] == device) & (frame["op_class"] == op_class) & (frame["part"] == part)
    ).to_numpy()


def test_a_clean_table_has_no_findings():
    frame, utilisation = _groups()
    quantities = Quantities(time_ms=1 / utilisation, utilisation=utilisation)
    assert check(frame, quantities, groups=("device", "op_class", "part")).empty


def test_a_throttled_group_is_flagged_row_by_row():
    frame, utilisation = _groups(throttled=("q", "gemm", "train"))
    found = check(frame, Quantities(utilisation=utilisation), groups=("device", "op_class", "part"))
    mine = _rows_of(frame, "q", "gemm", "train")
    assert found["row"].tolist() == np.flatnonzero(mine).tolist()
    assert set(found["flag"]) == {"shifted"}
    assert "q gemm (train) runs at 0.3" in found["why"][0]


def test_a_group_is_found_without_a_second_part():
    frame, utilisation = _groups(throttled=("q", "gemm", "train"))
    train = (frame["part"] == "train").to_numpy()
    assert set(shifted_groups(frame[train], utilisation[train])) == {("q", "gemm", "train")}


def test_a_device_that_is_slow_at_everything_is_not_flagged():
    frame, utilisation = _groups(slow_device="r")
    assert shifted_groups(frame, utilisation) == {}


def test_a_fast_group_is_not_flagged():
    frame, utilisation = _groups(throttled=("q", "gemm", "train"))
    assert shifted_groups(frame, 1 / utilisation).get(("q", "gemm", "train")) is None


def test_few_rows_or_few_devices_flag_nothing():
    frame, utilisation = _groups(throttled=("q", "gemm", "train"))
    few = frame["device"].isin(["p", "q", "r"]).to_numpy()
    assert shifted_groups(frame[few], utilisation[few]) == {}
    assert shifted_groups(frame[::3], utilisation[::3]) == {}


def test_launch_bound_rows_are_left_out():
    frame, utilisation = _groups(throttled=("q", "gemm", "train"))
    hidden = np.where(_rows_of(frame, "q", "gemm", "train"), np.nan, utilisation)
    assert shifted_groups(frame, hidden) == {}


def test_duplicates_are_flagged_from_the_second_on():
    frame = pd.DataFrame({"op": ["a", "a", "b", "a"], "ms": [1.0, 1.0, 1.0, 2.0]})
    found = check(frame, Quantities(), same=("op", "ms"))
    assert found[["row", "flag"]].to_numpy().tolist() == [[1, "duplicate"]]


@pytest.mark.parametrize(
    ("row", "flag"),
    [
        ({"time_ms": 0.0}, "impossible"),
        ({"time_ms": -1.0}, "impossible"),
        ({"time_ms": np.nan}, "unmeasured"),
        ({"time_ms": 1.0, "bound_ms": 1.2}, "impossible"),
        ({"time_ms": 1.0, "bound_ms": 1.05}, None),
        ({"time_ms": 1.0, "bound_ms": np.nan}, None),
        ({"power_w": 140.0, "tdp_w": 100.0}, "over_power"),
        ({"power_w": 120.0, "tdp_w": 100.0}, None),
        ({"power_w": np.nan, "tdp_w": 100.0}, None),
        ({"power_w": -5.0}, "impossible"),
        ({"time_ms": 10.0, "power_w": 100.0, "energy_j": 1.0}, None),
        ({"time_ms": 10.0, "power_w": 100.0, "energy_j": 1.3}, "energy_gap"),
        ({"time_ms": 10.0, "power_w": 100.0, "energy_j": np.nan}, None),
    ],
)
def test_one_row(row, flag):
    quantities = Quantities(**{name: np.array([value]) for name, value in row.items()})
    found = check(pd.DataFrame({"row": [0]}), quantities)
    assert found["flag"].tolist() == ([flag] if flag else [])
    assert all(found["why"])


def test_counts_name_every_flag():
    found = check(
        pd.DataFrame({"a": [1, 1]}), Quantities(time_ms=np.array([0.0, 1.0])), same=("a",)
    )
    assert counts(found) == dict.fromkeys(FLAGS, 0) | {"duplicate": 1, "impossible": 1}


def test_weights_multiply_and_unflagged_rows_weigh_one():
    time = np.array([1.0, 1.0, 0.0])
    found = check(pd.DataFrame({"a": [1, 1, 1]}), Quantities(time_ms=time), same=("a",))
    expected = [1.0, FLAGS["duplicate"], FLAGS["duplicate"] * FLAGS["impossible"]]
    assert row_weights(found, 3).tolist() == expected
