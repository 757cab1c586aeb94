"""Limits of designs: directives outside the measured ones, and more than the chip has."""

import numpy as np
import pytest

from forerun.data.workload import Design
from forerun.models.hls_designs.features import METRICS
from forerun.models.hls_designs.limits import RESOURCES, DirectiveRange, chip_limits
from tests.programs import nested

MEASURED = [
    (("__PARA__L0", "1"), ("__PARA__L1", "4"), ("__PIPE__L0", "off"), ("__TILE__L0", "1")),
    (("__PARA__L0", "16"), ("__PARA__L1", "8"), ("__PIPE__L0", ""), ("__TILE__L0", "1")),
]
OF_PROGRAM = DirectiveRange.of_program(MEASURED)


def design(**directives):
    return Design(nested([16, 32]), tuple(sorted(directives.items())))


def test_a_factor_outside_the_measured_ones_is_a_limit_with_slot_value_and_range():
    (limit,) = OF_PROGRAM.outside(design(__PARA__L0="1000", __PARA__L1="4"))
    assert limit.severity == "outside"
    assert limit.metric is None
    assert (limit.feature, limit.value, limit.low, limit.high) == ("__PARA__L0", 1000.0, 1.0, 16.0)
    assert str(limit) == "__PARA__L0 is 1,000, measured designs of this program have 1 to 16"


@pytest.mark.parametrize("factor", ["1", "3", "16"])
def test_a_factor_between_the_smallest_and_the_largest_is_no_limit(factor):
    assert OF_PROGRAM.outside(design(__PARA__L0=factor)) == ()


def test_a_pipeline_that_was_not_measured_is_a_limit_that_names_those_that_were():
    (limit,) = OF_PROGRAM.outside(design(__PIPE__L0="flatten"))
    assert limit.severity == "outside"
    assert str(limit) == (
        "__PIPE__L0 is 'flatten', measured designs of this program have '' or 'off'"
    )
    assert OF_PROGRAM.outside(design(__PIPE__L0="")) == ()


def test_a_slot_of_which_nothing_is_known_takes_only_what_changes_nothing():
    assert OF_PROGRAM.outside(design(__PARA__L7="1", __PIPE__L7="off")) == ()
    assert len(OF_PROGRAM.outside(design(__PARA__L7="2", __PIPE__L7="flatten"))) == 2


def test_over_all_programs_slots_of_one_kind_have_one_range():
    every = DirectiveRange.of_programs(MEASURED)
    assert every.outside(design(__PARA__L7="16", __PIPE__L7="", __TILE__L7="1")) == ()
    (limit,) = every.outside(design(__PARA__L7="17"))
    assert "measured designs of all programs have 1 to 16" in str(limit)


def of_chip(value, low=None, high=None):
    """Limits of a design with these shares of the chip and ends; all others are small."""
    rows = [np.full(len(METRICS), 0.1) for _ in range(3)]
    for row, shares in zip(rows, (value, low or value, high or value), strict=True):
        row[METRICS.index("latency_cycles")] = 1e6
        for metric, share in shares.items():
            row[METRICS.index(metric)] = share
    return chip_limits(*rows)


def test_a_design_within_the_chip_has_no_limit():
    assert of_chip({"util_dsp": 0.99}) == ()


@pytest.mark.parametrize(("metric", "resource"), RESOURCES.items())
def test_a_design_that_needs_more_than_the_chip_has_is_refused_by_resource(metric, resource):
    (limit,) = of_chip({metric: 22.0})
    assert limit.severity == "refusal"
    assert str(limit) == f"it needs 22 times the {resource} of the chip: it does not fit"


def test_one_refusal_names_all_resources_that_the_chip_lacks():
    (limit,) = of_chip({"util_dsp": 1234.0, "util_lut": 9.004, "util_ff": 1.5})
    needed = "1,234 times the DSP blocks, 9 times the LUTs and 1.5 times the flip-flops"
    assert needed in str(limit)


def test_where_the_interval_reaches_down_to_the_chip_it_only_probably_does_not_fit():
    (limit,) = of_chip({"util_dsp": 1.2}, low={"util_dsp": 0.9}, high={"util_dsp": 1.6})
    assert limit.severity == "refusal"
    assert str(limit).endswith("it probably does not fit")


def test_an_upper_end_beyond_the_chip_is_a_note():
    (limit,) = of_chip({"util_bram": 0.8}, high={"util_bram": 1.25})
    assert limit.severity == "note"
    assert str(limit) == (
        "it needs up to 1.25 times the block RAMs of the chip by the upper end of the interval: "
        "it may not fit"
    )
