"""Features of architectures: counts that add up, edges that lead nowhere, published arithmetic."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import BadArchitecture
from forerun.data.workload import Architecture
from forerun.features.nas_cells import (
    CONV3,
    FBNET_FEATURES,
    NB201_FEATURES,
    NONE,
    OFA_FEATURES,
    PLACES,
    SKIP,
    codes_of,
    fbnet_launches,
    features_of,
    live_edges,
    random_codes,
)

CELLS = st.tuples(*[st.integers(0, 4)] * 6)
NAMES = {"nb201": NB201_FEATURES, "fbnet": FBNET_FEATURES, "ofa": OFA_FEATURES}


def feature(space, codes, name):
    return features_of(space, np.array([codes]))[0, NAMES[space].index(name)]


@pytest.mark.parametrize("space", PLACES)
def test_every_architecture_of_a_space_has_finite_features_of_its_own_alone(space):
    codes = random_codes(space, 200)
    together = features_of(space, codes)
    assert together.shape == (200, len(NAMES[space]))
    assert np.isfinite(together).all()
    np.testing.assert_allclose(features_of(space, codes[7:8]), together[7:8], rtol=1e-12)


@given(CELLS)
def test_an_edge_is_live_exactly_where_a_path_uses_it(cell):
    edges = ((0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3))
    paths = [(3,), (0, 4), (1, 5), (0, 2, 5)]
    used = {e for path in paths if all(cell[e] != NONE for e in path) for e in path}
    assert set(np.flatnonzero(live_edges(np.array([cell]))[0])) == used
    assert len(edges) == 6


@given(CELLS)
def test_what_leads_nowhere_changes_counts_of_all_edges_but_not_of_live_ones(cell):
    live = live_edges(np.array([cell]))[0]
    pruned = tuple(c if alive else NONE for c, alive in zip(cell, live, strict=True))
    for name in ("live_conv3x3", "log_live_macs", "deepest_path", "heaviest_path", "has_path"):
        assert feature("nb201", cell, name) == pytest.approx(feature("nb201", pruned, name))


@given(CELLS, st.integers(0, 5))
def test_a_convolution_for_a_skip_adds_arithmetic(cell, edge):
    with_skip = (*cell[:edge], SKIP, *cell[edge + 1 :])
    with_conv = (*cell[:edge], CONV3, *cell[edge + 1 :])
    assert feature("nb201", with_conv, "log_macs") > feature("nb201", with_skip, "log_macs")


def test_the_largest_cell_is_the_published_extreme():
    assert np.exp(feature("nb201", [CONV3] * 6, "log_macs")) == pytest.approx(220.11, rel=1e-3)


@given(st.lists(st.integers(0, 8), min_size=22, max_size=22))
def test_the_parts_of_an_fbnet_add_up(codes):
    stages = sum(feature("fbnet", codes, f"macs_at_{side}") for side in (32, 16, 8, 4))
    kinds = sum(feature("fbnet", codes, f"{kind}_macs") for kind in ("pointwise", "depthwise"))
    assert stages == pytest.approx(kinds)
    blocks = sum(feature("fbnet", codes, f"blocks_at_{side}") for side in (32, 16, 8, 4))
    assert blocks == feature("fbnet", codes, "blocks") == sum(code != 8 for code in codes)


def test_blocks_beyond_a_stages_depth_do_not_count():
    codes = random_codes("ofa", 1)[0]
    codes[40:45] = 2
    other = codes.copy()
    other[2:4], other[22:24] = 7, 6
    one, same = (features_of("ofa", np.array([c]))[0] for c in (codes, other))
    np.testing.assert_array_equal(one, same)


def test_a_wrong_number_of_choices_is_refused():
    with pytest.raises(BadArchitecture, match="nb201 has 6 choices, this one 2"):
        codes_of([Architecture("nb201", (1, 2))])


@pytest.mark.reference
def test_arithmetic_of_all_networks_is_what_the_reference_counts(reference):
    folder = reference / "nas_latency"
    cells = pd.read_parquet(folder / "nb201_archs.parquet")
    codes = cells[[c for c in cells if c.startswith("op_")]].to_numpy(dtype=np.int64)
    found = features_of("nb201", codes)
    for name, column in (("log_macs", "macs_m"), ("log_live_macs", "macs_live_m")):
        macs = np.exp(found[:, NB201_FEATURES.index(name)])
        compared = cells["has_path"] if name == "log_live_macs" else np.ones(len(cells), dtype=bool)
        np.testing.assert_allclose(macs[compared], cells[column][compared], atol=0.005)
    assert (found[:, NB201_FEATURES.index("has_path")] == cells["has_path"]).all()
    nets = pd.read_parquet(folder / "fbnet_archs.parquet")
    codes = nets[[c for c in nets if c.startswith("op_")]].to_numpy(dtype=np.int64)
    macs = np.exp(features_of("fbnet", codes)[:, FBNET_FEATURES.index("log_macs")]) - 2.5

    np.testing.assert_allclose(macs, nets["macs_m"], atol=0.001)


def test_a_skip_launches_nothing_except_where_a_stage_begins():
    skips = np.full((1, PLACES["fbnet"]), 8)
    assert fbnet_launches(skips).tolist() == [[7.0, 7.0]]
    within, begins = skips.copy(), skips.copy()
    within[0, 2] = begins[0, 1] = 0
    assert fbnet_launches(within).tolist() == [[7.0, 10.0]]
    assert fbnet_launches(begins).tolist() == [[6.0, 9.0]]
    grouped = skips.copy()
    grouped[0, 2] = 1
    assert fbnet_launches(grouped).tolist() == [[7.0, 12.0]]
