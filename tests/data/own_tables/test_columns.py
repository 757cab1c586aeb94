"""Columns are recognised by name and unit; what a name does not say is asked for or stated."""

import pytest

from forerun.data.errors import BadTable, InputError
from forerun.data.own_tables.tidy import (
    IGNORED,
    KEYS,
    METRIC_NAMES,
    SETTING,
    Meaning,
    check_roles,
    given_meaning,
    mapped,
    meaning_of,
)
from tests.every import for_every


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
def test_usual_names_are_recognised_and_units_converted(name, role, factor):
    assert meaning_of(name) == Meaning(role, pytest.approx(factor))


@pytest.mark.parametrize("name", ["time", "memory", "cores", "tile_size", "latency_parsec", ""])
def test_a_name_without_a_unit_or_meaning_is_left_open(name):
    assert meaning_of(name) is None


def test_what_the_user_states_counts_before_the_name_and_the_rest_as_requested():
    names = ["gpu", "latency_ms", "cores", "note"]
    given = {"latency_ms": "latency_us", "note": IGNORED}
    assert mapped(names, given) == {
        "gpu": Meaning("device"),
        "latency_ms": Meaning("latency_ms", 1e-3),
        "cores": None,
        "note": Meaning(IGNORED),
    }
    assert mapped(names, given, SETTING)["cores"] == Meaning(SETTING)


def test_a_meaning_that_there_is_not_is_refused_with_close_ones():
    with pytest.raises(InputError, match=r"'latencyms'\. Did you mean latency_ms"):
        given_meaning("latencyms")


def test_a_column_that_there_is_not_is_refused_with_close_ones():
    with pytest.raises(InputError, match=r"core=\.\.\.: no such column\. Did you mean 'cores'"):
        mapped(["cores", "time_ms"], {"core": SETTING})


def test_two_columns_of_one_meaning_are_refused():
    with pytest.raises(BadTable, match="'latency' and 'time_ms' are both read as latency_ms"):
        check_roles(mapped(["latency", "time_ms"], {}))
    check_roles(mapped(["latency", "time_ms"], {"latency": IGNORED}))
    check_roles({"a": Meaning(SETTING), "b": Meaning(SETTING), "c": None, "d": None})
