"""Recorded runs: what a graph reads lives as long as it does, on one stream for all."""

import gc
import weakref

import pytest

pytest.importorskip("torch")

from forerun.data.collectors.latency.cuda_graph import recorded
from tests.data.collectors.fake_gpu import fake_graphs


class Weights:
    pass


def run_with_weights():
    weights = Weights()
    return (lambda: id(weights)), weakref.ref(weights)


def test_a_recorded_graph_keeps_what_it_reads_alive_and_no_longer_than_itself(monkeypatch):
    fake_graphs(monkeypatch)
    run, weights = run_with_weights()
    replay = recorded(run, "cuda:0")
    del run
    gc.collect()
    replay()
    assert weights() is not None
    del replay
    gc.collect()
    assert weights() is None


def test_all_recordings_share_one_stream(monkeypatch):
    made = fake_graphs(monkeypatch)
    for _ in range(3):
        recorded(lambda: None, "cuda:0")
    assert len(made) == 1


def test_a_run_warms_up_before_it_is_recorded_and_runs_no_more(monkeypatch):
    fake_graphs(monkeypatch)
    runs = []
    replay = recorded(lambda: runs.append(1), "cuda:0")
    warm = len(runs)
    assert warm >= 3
    replay()
    assert len(runs) == warm
