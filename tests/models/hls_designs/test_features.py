"""Metrics of designs as logarithms over a bound, and back; matrices by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.device import Device
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Design
from forerun.features.hls.directives import PLACE_COLUMNS
from forerun.features.hls.loop_factors import FACTOR_FEATURES, FACTOR_TOTALS
from forerun.models.hls_designs.features import (
    FEATURES,
    LOOPS,
    METRICS,
    feature_matrix,
    from_logarithms,
    log_bounds,
    log_values,
    place_matrix,
    unit_rows,
)
from tests.programs import nested

DEVICE = Device(name="fpga", vendor="amd", kind="fpga")


def design(trips=(16, 64), version="2018.3", **values):
    directives = tuple(sorted((f"__{name}", str(v)) for name, v in values.items()))
    return Query(
        Design(nested(list(trips)), directives), DEVICE, Software(framework="sdx", version=version)
    )


def with_share(share):
    """A matrix of one design that takes this share of all DSP blocks."""
    matrix = feature_matrix([design()])
    matrix[0, FEATURES.index("dsp_near")] = np.log2(share + 1e-3)
    return matrix


@given(st.floats(0.01, 0.9), st.lists(st.floats(1e-4, 1.0), min_size=5, max_size=5))
def test_metrics_come_back_from_their_logarithms(share, values):
    bounds = log_bounds(with_share(share))
    again = from_logarithms(log_values(np.array([values])) - bounds + bounds)
    assert again[0] == pytest.approx(values, abs=1e-9)


def test_values_are_never_negative_and_finite():
    assert from_logarithms(np.full((1, len(METRICS)), -50.0))[0, 1:].tolist() == [0.0] * 4
    assert np.isfinite(from_logarithms(np.full((1, len(METRICS)), 1e9))).all()


@pytest.mark.parametrize(
    ("metric", "per_share", "floor"),
    [("util_dsp", 1.0, 0.02), ("util_lut", 0.48, 0.02), ("util_ff", 0.36, 0.01)],
)
def test_a_design_of_floating_point_pipelines_lies_on_its_bound(metric, per_share, floor):
    """A tenth of the DSP blocks, with the logic that their pipelines take."""
    bounds, at = log_bounds(with_share(0.1)), METRICS.index(metric)
    assert 2 ** bounds[0, at] == pytest.approx(per_share * 0.1 + floor)
    assert log_values(np.full((1, 5), per_share * 0.1))[0, at] == pytest.approx(bounds[0, at])


@pytest.mark.parametrize("metric", ["latency_cycles", "util_bram"])
def test_cycles_and_block_memory_have_no_bound(metric):
    assert log_bounds(with_share(0.1))[0, METRICS.index(metric)] == 0.0


def test_places_are_padded_with_zeros_and_cut_at_ten_loops():
    matrix = place_matrix([design(PARA__L0=2), design((2,) * 12, PARA__L0=2)])
    width, of_factors = LOOPS * len(PLACE_COLUMNS), LOOPS * len(FACTOR_FEATURES)
    assert matrix.shape == (2, width + of_factors + len(FACTOR_TOTALS))
    places, factors = matrix[:, :width], matrix[:, width : width + of_factors]
    for values, columns in ((places, PLACE_COLUMNS), (factors, FACTOR_FEATURES)):
        assert values[0, : len(columns)].any()
        assert (values[0, 2 * len(columns) :] == 0).all()
        assert values[1, -len(columns) :].any()


@given(st.floats(0.1, 100.0), st.floats(-50.0, 50.0))
def test_rows_of_unit_length_know_no_scale_and_no_origin(scale, shift):
    matrix = np.random.default_rng(0).normal(size=(20, 3))
    found = unit_rows(matrix)
    assert (found**2).sum(axis=1).mean() == pytest.approx(1.0)
    assert found.mean(axis=0) == pytest.approx(0.0, abs=1e-12)
    np.testing.assert_allclose(unit_rows(scale * matrix + shift), found, atol=1e-9)
    assert unit_rows(np.ones((4, 2))).tolist() == [[0.0, 0.0]] * 4
