"""Protocols of hlsyn: training programs, support sets, and tasks on an unseen folder."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.hls_designs.hlsyn import INDUCTIVE, HLSyn
from forerun.data.device import DeviceCatalog
from forerun.models.hls_designs.features import METRICS
from forerun.training.protocols.hls_designs.hlsyn import SHOTS, HLSynProtocols, performance, share
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hlsyn")
    tables = HLSyn().tidy(tiny_upstream("hlsyn", folder / "upstream"))
    return Bundle.write(folder / "bundle", "hlsyn", tables)


def test_the_published_scale_of_cycles():
    """10 million cycles are 0, every factor of four less is one more."""
    assert performance(np.array([1e7, 2.5e6])) == pytest.approx([0.0, 1.0])
    assert share(np.array([0.5])) == pytest.approx([0.5])


def test_each_program_is_a_part_of_its_own_in_each_of_five_targets(bundle):
    for fold in HLSynProtocols().folds(bundle, CATALOG):
        tool = fold.protocol.split("/")[1]
        for task in fold.tasks:
            assert task.metric in METRICS
            assert task.scale is not None
            assert len(np.unique(task.held_out.groups["kernel"])) == 1
        if fold.protocol.startswith("inductive"):
            held_out = {str(t.held_out.groups["kernel"][0]) for t in fold.tasks}
            assert held_out <= set(INDUCTIVE[tool])
            assert not held_out & set(fold.train.groups["kernel"])
            names = {t.name for t in fold.tasks}
            assert names == {f"inductive_{shots}_shot/{tool}" for shots in (0, SHOTS)}


def test_shots_are_twenty_of_the_same_program_and_chosen_by_the_predictor(bundle):
    tasks = [t for e in HLSynProtocols().folds(bundle, CATALOG) for t in e.tasks]
    for task in tasks:
        assert task.support.shots == (SHOTS if "_20_shot" in task.name else 0)
        assert task.support.suggested == bool(task.support.shots)
        assert task.support.pool is None


def test_an_unseen_folder_is_evaluated_on_unseen_programs(bundle):
    seen = {"kernel": ["atax", "gemm-p"]}
    tasks = list(HLSynProtocols().evaluation_tasks(bundle, CATALOG, seen))
    assert {str(t.held_out.groups["kernel"][0]) for t in tasks} == {"fdtd-2d", "symm", "trmm-opt"}
    assert {t.name.split("/")[1] for t in tasks} == {"v18", "v20"}


def test_held_out_programs_are_no_training_rows(bundle):
    train = HLSynProtocols().training_rows(bundle, CATALOG)
    assert set(train.groups["kernel"]) == {"atax", "gemm-p"}
    assert set(train.groups["tool"]) == {"v18", "v20"}
    assert (train.values["latency_cycles"] > 0).all()
