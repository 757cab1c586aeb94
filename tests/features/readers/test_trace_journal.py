"""What was traced is kept: a killed run goes on where it stood and ends in the same table."""

import os

import pandas as pd
import pytest

from forerun.data.bundle import table_digest
from forerun.data.datasets.networks.timm_bench import TimmBench
from forerun.data.errors import BadTable, MissingData, UnreadableModel
from forerun.features.readers.model_zoo import EagerCall, TraceJournal, eager_calls, trace_missing
from forerun.features.tables.timm_bench import timm_graphs

KEYS = [("net_a", 32), ("net_a", 64), ("net_b", 32), ("net_c.v1", 32)]


def made(model, size):
    """Two rows that name their network by their sizes; `net_b` cannot be traced."""
    if model == "net_b":
        raise UnreadableModel(model, "it is retired.")
    area = size * size
    shape = f"[1,{len(model)},{size},{size}]"
    first = EagerCall(0, "relu", f"[{shape}]", shape, "", 0, area, area, 0, "")
    return [first, first._replace(idx=1, preds="0")]


def killed(model, size):
    os.kill(os.getpid(), 9)


def convolution(model, size):
    """A small torch network; its width is in its name."""
    import torch

    width = int(model.rpartition("_")[2])
    layers = (torch.nn.Conv2d(3, width, 3), torch.nn.BatchNorm2d(width), torch.nn.GELU())
    return eager_calls(torch.nn.Sequential(*layers), [torch.empty(1, 3, size, size)])


@pytest.fixture
def journal(tmp_path):
    return TraceJournal(tmp_path / "traces")


def test_each_network_is_kept_and_failures_say_why(journal):
    tried = dict(trace_missing(KEYS, journal, made))
    assert [key for key, why in tried.items() if why] == [("net_b", 32)]
    assert "retired" in tried["net_b", 32]
    assert [journal.has(key) for key in KEYS] == [True, True, False, True]
    table = journal.table(KEYS)
    assert list(table.columns) == ["model", "img_size", *EagerCall._fields]
    assert [*table["model"][::2]] == ["net_a", "net_a", "net_c.v1"]


def test_a_killed_run_goes_on_where_it_stood(journal, tmp_path):
    whole = TraceJournal(tmp_path / "whole")
    list(trace_missing(KEYS, whole, made))
    traced = []

    def stops(model, size):
        if len(traced) == 2:
            raise KeyboardInterrupt
        traced.append((model, size))
        return made(model, size)

    wanted = [key for key in KEYS if key[0] != "net_b"]
    with pytest.raises(KeyboardInterrupt):
        list(trace_missing(wanted, journal, stops))
    again = [key for key, _ in trace_missing(wanted, journal, made)]
    assert again == wanted[2:], "what was traced is not traced again"
    assert table_digest(journal.table(KEYS)) == table_digest(whole.table(KEYS))


def test_a_network_that_failed_is_tried_again(journal):
    list(trace_missing(KEYS, journal, made))
    assert [key for key, _ in trace_missing(KEYS, journal, made)] == [("net_b", 32)]


def test_a_write_that_is_cut_short_leaves_no_network(journal, monkeypatch):
    def cut(self, path, **_):
        path.write_bytes(b"PAR1")
        raise OSError("no space left")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", cut)
    with pytest.raises(OSError, match="no space"):
        journal.write(KEYS[0], made(*KEYS[0]))
    assert not journal.has(KEYS[0])


def test_a_damaged_file_is_named(journal):
    journal.write(KEYS[0], made(*KEYS[0]))
    journal.path(KEYS[0]).write_bytes(b"PAR1")
    with pytest.raises(BadTable, match=r"net_a@32\.parquet, delete it"):
        journal.table(KEYS)


def test_a_table_of_nothing_is_refused(journal):
    with pytest.raises(MissingData, match="No network is traced"):
        journal.table(KEYS)


@pytest.mark.slow
def test_workers_make_the_same_table(journal, tmp_path):
    alone = TraceJournal(tmp_path / "alone")
    list(trace_missing(KEYS, alone, made))
    tried = dict(trace_missing(KEYS, journal, made, workers=2))
    assert {key: bool(why) for key, why in tried.items()} == {
        key: key[0] == "net_b" for key in KEYS
    }
    pd.testing.assert_frame_equal(journal.table(KEYS), alone.table(KEYS))


@pytest.mark.slow
def test_a_killed_worker_is_one_clear_line(journal):
    with pytest.raises(MissingData, match="run again with fewer workers"):
        list(trace_missing(KEYS, journal, killed, workers=2))


def test_traces_of_torch_modules_satisfy_the_schema_and_read_back(journal):
    pytest.importorskip("torch")
    keys = [("wide_8", 32), ("wide_16", 32), ("wide_16", 64)]
    list(trace_missing(keys, journal, convolution))
    table = journal.table(keys)
    TimmBench().validate({"graphs": table})
    graphs = timm_graphs(table)
    assert list(graphs) == keys
    assert graphs["wide_16", 64].operators[0].output_shapes == ((1, 16, 62, 62),)
