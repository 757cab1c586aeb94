"""Protocols of wa_hls4ml and ncpp: training rows, held-out rows, and tasks on a new folder."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.benchmark_suites.ncpp import Ncpp
from forerun.data.datasets.hls_designs.wa_hls4ml import WaHls4ml
from forerun.data.device import DeviceCatalog
from forerun.models.benchmark_suites.scores import GROUP
from forerun.training.protocols.benchmark_suites.ncpp import NcppProtocols
from forerun.training.protocols.hls_designs.wa_hls4ml import LABELS, WaHls4mlProtocols
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


def tiny(dataset, folder) -> Bundle:
    tables = dataset.tidy(tiny_upstream(dataset.name, folder / "upstream"))
    return Bundle.write(folder / "bundle", dataset.name, tables)


@pytest.fixture(scope="module")
def layers(tmp_path_factory):
    return tiny(WaHls4ml(), tmp_path_factory.mktemp("wa_hls4ml"))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return tiny(Ncpp(), tmp_path_factory.mktemp("ncpp"))


def test_each_width_is_held_out_once_in_five_targets(layers):
    folds = [e for e in WaHls4mlProtocols().folds(layers, CATALOG) if e.protocol == "unseen_width"]
    assert len(folds) == 3
    for fold in folds:
        assert [t.name for t in fold.tasks] == [f"unseen_width/{m}" for m in LABELS]
        held_out = fold.tasks[0].held_out
        assert len(np.unique(held_out.groups["d_out"])) == 1
        assert not set(held_out.groups["d_out"]) & set(fold.train.groups["d_out"])
        assert list(fold.train.groups[GROUP]) == list(fold.train.groups["d_out"])


def test_held_out_settings_have_widths_in_the_training_set(layers):
    folds = [e for e in WaHls4mlProtocols().folds(layers, CATALOG) if e.protocol != "unseen_width"]
    held_out = [w for e in folds for w in e.tasks[0].held_out.groups["setting"]]
    assert len(held_out) == len(set(held_out)) == 15
    for fold in folds:
        assert not set(fold.tasks[0].held_out.groups["setting"]) & set(fold.train.groups["setting"])


def test_failed_layers_are_no_training_rows_and_labels_are_not_settings(layers):
    train = WaHls4mlProtocols().training_rows(layers, CATALOG)
    assert len(train) == 15
    names = {name for q in train.queries for name, _ in q.workload.settings}
    assert names == {
        *("d_in", "d_out", "precision_bits", "reuse_factor", "strategy", "multipliers")
    }


def test_a_folder_of_layers_is_evaluated_on_unseen_widths(layers):
    tasks = list(WaHls4mlProtocols().evaluation_tasks(layers, CATALOG, {"d_out": ["32", "96"]}))
    assert {w for t in tasks for w in t.held_out.groups["d_out"]} == {"64"}
    everything = {"d_out": ["32", "64", "96"]}
    assert not list(WaHls4mlProtocols().evaluation_tasks(layers, CATALOG, everything))


def test_no_held_out_part_is_in_the_training_set(runs):
    folds = list(NcppProtocols().folds(runs, CATALOG))
    assert {e.protocol for e in folds} == {"unseen_part_of_train", "unseen_part_of_test"}
    for fold in folds:
        for task in fold.tasks:
            assert not set(task.held_out.groups["part"]) & set(fold.train.groups["part"])
            assert set(task.held_out.groups["suite"]) <= set(fold.train.groups["suite"])


def test_a_folder_of_runs_is_evaluated_on_unseen_parts(runs):
    tasks = list(NcppProtocols().evaluation_tasks(runs, CATALOG, {"part": ["Q1", "Q2"]}))
    assert [t.name for t in tasks] == ["unseen_part_of_test/Stream"]
