"""Recorded runs: what a graph reads lives as long as it does, on one stream for all."""

import gc
import weakref

import pytest

pytest.importorskip("torch")

from forerun.data.collectors.latency.gpu_run import WARM_UP_RUNS, RecordingFailed, recorded
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


def test_an_error_before_the_recording_is_the_error_of_the_run(monkeypatch):
    fake_graphs(monkeypatch)

    def impossible():
        raise ValueError("Expected more than 1 value per channel when training")

    with pytest.raises(ValueError, match="more than 1 value"):
        recorded(impossible, "cuda:0")


def test_an_error_while_it_records_is_a_failed_recording(monkeypatch):
    fake_graphs(monkeypatch)
    runs = []

    def reads_in_the_fourth_run():
        runs.append(1)
        if len(runs) > WARM_UP_RUNS:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RecordingFailed, match="capturing"):
        recorded(reads_in_the_fourth_run, "cuda:0")
