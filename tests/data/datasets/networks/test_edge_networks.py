"""ncnn's benchmark: which rows teach how networks scale with threads."""

import numpy as np

from forerun.data.datasets.networks.edge_networks import EdgeNetworks
from forerun.features.tables.edge_networks import ncnn_measurements
from forerun.training.protocols.networks.edge_networks import shared_equally
from tests.contracts.tiny_upstream import tiny_upstream
from tests.data.datasets.packaged_contract import PackagedContract


class TestEdgeNetworks(PackagedContract):
    cls = EdgeNetworks
    reference_table = "ncnn"

    def test_each_processor_has_one_thread_and_two_other_numbers(self, packaged):
        rows = packaged["ncnn"]
        found = ncnn_measurements(rows[EdgeNetworks().parts(rows)["scaling"]])
        devices = {query.device.name for query in found.queries}
        assert devices == set(EdgeNetworks.facts["of_one_kind"])
        for name in devices:
            threads = {q.software.threads for q in found.queries if q.device.name == name}
            assert 1 in threads
            assert len(threads) >= 3


def made_up(tmp_path):
    raw = tiny_upstream("edge_networks", tmp_path)
    rows = EdgeNetworks().tidy(raw)["ncnn"]
    return ncnn_measurements(rows[EdgeNetworks().parts(rows)["scaling"]])


def test_the_fastest_runs_on_equal_cores_take_part(tmp_path):
    found = made_up(tmp_path)
    assert len(found) == 2 * 2 * 3
    assert not {99.0, 9.0, 5.0, 8.0, 40.0, 7.0} & set(found.values["latency_ms"])


def test_the_baseline_shares_one_threads_time_equally(tmp_path):
    found = made_up(tmp_path)
    board = found.take(np.flatnonzero(found.groups["device"] == "jetson-agx-orin"))
    alone = board.take(np.flatnonzero(board.groups["threads"] == "1"))
    shares = shared_equally(alone, board.queries)
    threads = np.array([query.software.threads for query in board.queries])
    assert np.allclose(shares * threads**0.2, board.values["latency_ms"])
