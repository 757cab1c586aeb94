"""Protocols of hlsyn: training programs, support sets, and tasks on an unseen folder."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.hls_designs.hlsyn import HLSyn
from forerun.data.device import DeviceCatalog
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


def test_shots_are_twenty_of_the_same_program_and_chosen_by_the_predictor(bundle):
    tasks = [t for e in HLSynProtocols().folds(bundle, CATALOG) for t in e.tasks]
    for task in tasks:
        assert task.support.shots == (SHOTS if "_20_shot" in task.name else 0)
        assert task.support.suggested == bool(task.support.shots)
        assert task.support.pool is None
