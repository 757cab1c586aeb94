"""The table of metrics: units stand in the names, energy agrees with power and time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.metrics import METRICS, energy_disagreement, metric

UNITS = {"ms": "ms", "mib": "MiB", "w": "W", "j": "J"}


def test_names_are_unique_and_end_in_their_unit():
    assert len({m.name for m in METRICS}) == len(METRICS)
    for m in METRICS:
        suffix = m.name.rsplit("_", 1)[-1]
        assert UNITS.get(suffix, "") == m.unit


def test_an_unknown_name_is_a_key_error():
    with pytest.raises(KeyError):
        metric("speed")


def test_a_value_that_is_not_known_says_so():
    assert metric("power_w").text(None) == "not known"
    assert metric("latency_ms").text(1234.5) == "1,234 ms"


@given(st.floats(0.1, 1e3), st.floats(0.1, 1e3))
def test_energy_is_power_times_time(power_w, latency_ms):
    energy_j = power_w * latency_ms / 1e3
    row = {"power_w": power_w, "latency_ms": latency_ms, "energy_j": energy_j}
    assert energy_disagreement(row) == pytest.approx(0.0, abs=1e-9)
    assert energy_disagreement({**row, "energy_j": energy_j * 2}) == pytest.approx(0.5)
    assert energy_disagreement({**row, "energy_j": None}) is None
