"""Power features are ratios: they know no units, no names, and stay finite at the edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network
from forerun.features.power.operator_features import POWER_FEATURES, gather_power, waiting_w
from tests.devices import A30, CATALOG


def linear(m, k=1024, n=1024):
    return Operator("linear", "fc", ((m, k),), ((m, n),), k * n)


def relu(n):
    return Operator("elementwise", "relu", ((n,),), ((n,),))


def column(features, name):
    return features.matrix[:, POWER_FEATURES.index(name)]


@given(st.integers(0, 10**9), st.sampled_from(["a30", "t4", "p100-pcie-16gb", "mi250x", "h200"]))
def test_every_feature_is_finite(size, name):
    features = gather_power([Query(Kernel(relu(size)), CATALOG.get(name))])
    assert np.isfinite(features.matrix).all()
    assert (features.base_w > 0).all()
    assert (features.base_w <= features.headroom_w).all()


def test_a_device_of_twice_everything_has_the_same_ratios():
    double = A30.model_copy(
        update={
            "memory_bandwidth_gbs": A30.memory_bandwidth_gbs * 2,
            "peak_tflops": {p: 2 * v for p, v in A30.peak_tflops.items()},
            "tdp_w": A30.tdp_w * 2,
            "compute_units": A30.compute_units * 2,
            "l2_mib": A30.l2_mib * 2,
        }
    )
    one = gather_power([Query(Kernel(linear(512)), A30), Query(Kernel(relu(1 << 20)), A30)])
    two = gather_power([Query(Kernel(linear(512)), double), Query(Kernel(relu(1 << 20)), double)])
    for name in (
        "log_intensity_over_ridge",
        "log_demand_over_headroom",
        "log_memory_over_headroom",
    ):
        np.testing.assert_allclose(column(one, name), column(two, name))


def test_rows_stand_in_the_order_of_the_queries():
    t4 = CATALOG.get("t4")
    graph = OperatorGraph((linear(8), relu(4096), linear(64)), batch_size=8)
    queries = [
        Query(Kernel(relu(10)), t4),
        Query(Network(graph, 8), A30),
        Query(Kernel(linear(16)), A30),
        Query(Kernel(relu(20)), t4),
    ]
    features = gather_power(queries)
    np.testing.assert_array_equal(features.owner, [0, 1, 1, 1, 2, 3])
    for row, query in enumerate(queries):
        alone = gather_power([query])
        np.testing.assert_array_equal(alone.matrix, features.matrix[features.owner == row])


def test_the_mean_is_weighted_by_time():
    graph = OperatorGraph((linear(8), relu(1 << 24)), batch_size=8)
    features = gather_power([Query(Network(graph, 8), A30)])
    mean = features.mean_over_time(np.array([100.0, 10.0]), 1)[0]
    share = features.time_ms[0] / features.time_ms.sum()
    assert mean == pytest.approx(share * 100 + (1 - share) * 10)


def test_a_waiting_device_draws_what_its_sheet_says_or_a_fifth():
    assert waiting_w(A30) == pytest.approx(33.0)
    assert waiting_w(A30.model_copy(update={"idle_w": 26.0})) == 26.0
    with pytest.raises(ValueError, match="no TDP"):
        waiting_w(A30.model_copy(update={"tdp_w": None}))


def test_reading_memory_at_full_rate_draws_what_was_measured():
    """ReLU on large tensors draws 120 W (A30) and 55 W (RTX 2080 Ti) more than waiting."""
    for name, watts, error in (("a30", 120.0, 0.3), ("rtx-2080-ti", 55.0, 0.75)):
        features = gather_power([Query(Kernel(relu(2**28)), CATALOG.get(name))])
        assert features.base_w[0] == pytest.approx(watts, rel=error)


def test_tensor_cores_gain_and_rows_are_marked():
    half = gather_power([Query(Kernel(linear(64), "fp16"), A30)])
    assert column(half, "log_matrix_gain")[0] == pytest.approx(np.log(165 / 10.3))
    softmax = Operator("softmax", "softmax", ((64, 32),), ((64, 32),))
    both = gather_power([Query(Kernel(softmax), A30), Query(Kernel(relu(64)), A30)])
    assert column(both, "is_rows").tolist() == [1.0, 0.0]
    assert column(both, "is_product").tolist() == [0.0, 0.0]


def test_typical_units_and_cache_stand_in_for_what_a_sheet_lacks():
    """80 units and 6 MiB: those of a V100."""
    v100 = CATALOG.get("v100-pcie-32gb")
    bare = v100.model_copy(update={"compute_units": None, "l2_mib": None})
    one, other = (gather_power([Query(Kernel(linear(64)), d)]).matrix for d in (v100, bare))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("elements", [1, 2, 2048 * 56])
def test_a_share_of_the_resident_threads_from_a_single_one_on(elements):
    """An A30 holds 56 x 2,048 threads, one for each output element."""
    found = column(gather_power([Query(Kernel(relu(elements)), A30)]), "log_outputs_over_threads")
    assert np.exp(found[0]) == pytest.approx(elements / (56 * 2048))
