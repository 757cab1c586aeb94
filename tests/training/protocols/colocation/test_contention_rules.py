"""Rules that a trained predictor of relative speed must beat, on hand-made rows."""

import numpy as np
import pytest

from forerun.data.device import Device
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.training.protocols.colocation.contention import (
    fair_share,
    neighbour_median,
    reference_ratio,
    rules,
)

GUEST = Device(name="guest", vendor="nobody", kind="vm")


def runs(*rows):
    """Measurements of (neighbour, CPUs shared, CPU share alone, relative speed, reference)."""
    queries = [
        Query(
            Colocation(
                ProgramProfile("mine", cpu_share=share), HostWindow(), reference_ratio=reference
            ),
            GUEST,
        )
        for _, _, share, _, reference in rows
    ]
    speed = np.array([row[3] for row in rows], dtype=np.float64)
    groups = {
        "neighbour": np.array([row[0] for row in rows], dtype=np.str_),
        "cpus_shared": np.array([row[1] for row in rows], dtype=np.str_),
    }
    return Measurements(queries, {"p_cpu": speed, "p_wall": speed}, groups)


TRAIN = runs(
    ("none", "2", 1.0, 5.0, None),
    ("cache", "1", 1.0, 0.4, None),
    ("cache", "1", 1.0, 0.5, None),
    ("cache", "1", 1.0, 0.9, None),
    ("cache", "2", 1.0, 0.8, None),
    ("cpu", "1", 1.0, 0.3, None),
)


@pytest.mark.parametrize(
    ("wanted", "cpus", "expected"),
    [(1.0, "1", 0.5), (0.8, "1", 0.625), (0.5, "1", 1.0), (0.2, "1", 1.0), (1.0, "2", 1.0)],
)
def test_a_program_gets_no_more_than_an_equal_part_of_a_shared_cpu(wanted, cpus, expected):
    held_out = runs(("cache", cpus, wanted, 0.0, None))
    assert fair_share(held_out, "p_wall") == pytest.approx([expected])
    assert fair_share(held_out, "p_cpu") == pytest.approx([1.0])


def test_a_program_of_unknown_share_is_taken_to_want_a_whole_cpu():
    assert fair_share(runs(("cache", "1", None, 0.0, None)), "p_wall") == pytest.approx([0.5])


def test_medians_are_by_neighbour_and_placement_then_by_placement_then_of_all():
    held_out = runs(
        ("cache", "1", 1.0, 0.0, None),
        ("cache", "2", 1.0, 0.0, None),
        ("disk", "1", 1.0, 0.0, None),
        ("disk", "3", 1.0, 0.0, None),
    )
    # Isolated runs are no part of any median.
    expected = [0.5, 0.8, np.median([0.4, 0.5, 0.9, 0.3]), np.median([0.4, 0.5, 0.9, 0.8, 0.3])]
    np.testing.assert_allclose(neighbour_median(TRAIN, held_out, "p_wall"), expected)


def test_a_slower_reference_multiplies_the_fair_share():
    held_out = runs(("cache", "1", 1.0, 0.0, 1.2), ("cache", "1", 1.0, 0.0, None))
    np.testing.assert_allclose(reference_ratio(held_out), [1.2, 1.0])
    found = rules(TRAIN, held_out, "p_wall")
    np.testing.assert_allclose(found["rule_fair_share_of_reference"], [0.6, 0.5])
    np.testing.assert_allclose(found["rule_unslowed"], 1.0)


def test_no_rule_reads_the_measured_values_of_held_out_rows():
    held_out = runs(("cache", "1", 1.0, 0.1, None), ("cpu", "2", 0.7, 0.2, 1.1))
    other = runs(("cache", "1", 1.0, 9.0, None), ("cpu", "2", 0.7, 8.0, 1.1))
    for metric in ("p_cpu", "p_wall"):
        one, two = rules(TRAIN, held_out, metric), rules(TRAIN, other, metric)
        for name in one:
            np.testing.assert_array_equal(one[name], two[name])
