"""Slots of programs, and directives that they do not take."""

import pytest

from forerun.data.errors import BadDesign
from forerun.features.hls.directives import check_directives, slots_of
from tests.programs import nested

PROGRAM = nested([16, 32])


def test_slots_are_those_of_the_pragmas():
    assert slots_of(PROGRAM) == (
        *("__PARA__L0", "__PARA__L1", "__PIPE__L0", "__PIPE__L1", "__TILE__L0", "__TILE__L1"),
    )


@pytest.mark.parametrize("value", ["off", "", "flatten"])
def test_pipelines_take_three_values_and_factors_whole_numbers(value):
    check_directives(PROGRAM, {"__PIPE__L1": value, "__PARA__L0": "16", "__TILE__L1": "1"})


@pytest.mark.parametrize(
    ("slot", "value", "said"),
    [
        ("__PARA__L2", "1", "its slots are __PARA__L0"),
        ("__PIPE__L0", "on", "not one of 'off', '', 'flatten'"),
        ("__PARA__L0", "0", "not a whole number from 1"),
        ("__TILE__L0", "2.5", "not a whole number from 1"),
        ("__TILE__L0", "\u0664", "not a whole number from 1"),
    ],
)
def test_other_slots_and_values_are_refused(slot, value, said):
    with pytest.raises(BadDesign, match=said):
        check_directives(PROGRAM, {slot: value})
