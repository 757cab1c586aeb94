"""The table of metrics: units stand in the names."""

import pytest

from forerun.data.metrics import METRICS, metric

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
