"""Rows that have a key in common, and logarithms where there are some."""

import numpy as np
import pytest

from forerun.data.arrays import finite_log, rows_by


def test_keys_rise_and_so_do_the_rows_of_each():
    rows = rows_by(["b", "a", "b"])
    assert list(rows) == ["a", "b"]
    assert [own.tolist() for own in rows.values()] == [[1], [0, 2]]
    assert all(own.dtype == np.intp for own in rows.values())


def test_nothing_has_no_keys():
    assert rows_by([]) == {}


def test_what_has_no_logarithm_is_nan():
    logs = finite_log(np.array([0.5, 0.0, -1.0, np.inf, np.nan]))
    assert logs[0] == pytest.approx(np.log(0.5))
    assert np.isnan(logs[1:]).all()
