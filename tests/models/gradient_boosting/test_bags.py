"""Bags of boosters: stored ones are decompressed when they are asked, and kept as they are."""

import lzma

import numpy as np
import pytest

from forerun.data.errors import BadArtifact
from forerun.models.gradient_boosting import BoosterBag, bags, load_together

MATRIX = np.random.default_rng(0).normal(size=(200, 3))


@pytest.fixture(scope="module")
def fitted():
    settings = {"num_leaves": 5, "min_data_in_leaf": 5}
    target = MATRIX[:, 0] * MATRIX[:, 1]
    return BoosterBag.fit(MATRIX, target, parameters=settings, trees=5, seeds=(0, 1))


@pytest.fixture
def decompressed(monkeypatch):
    """Files that were decompressed, in turn."""
    files, decompress = [], lzma.decompress

    def noted(file):
        files.append(file)
        return decompress(file)

    monkeypatch.setattr(bags.lzma, "decompress", noted)
    return files


def test_a_stored_bag_predicts_as_the_fitted_one_and_is_stored_as_it_was(fitted):
    files = fitted.to_files()
    stored = BoosterBag.from_files(files)
    assert stored.predict(MATRIX).tobytes() == fitted.predict(MATRIX).tobytes()
    assert stored.tree_outputs(MATRIX).tobytes() == fitted.tree_outputs(MATRIX).tobytes()
    assert stored == fitted
    assert hash(stored) == hash(fitted)
    assert stored.to_files() is files


def test_a_stored_bag_is_decompressed_once_and_only_when_it_is_asked(fitted, decompressed):
    files = fitted.to_files()
    stored = BoosterBag.from_files(files)
    assert decompressed == []
    stored.predict(MATRIX)
    stored.predict(MATRIX[:3])
    assert decompressed == list(files)


def test_bags_that_are_loaded_together_are_not_loaded_again(fitted, decompressed):
    bags = [BoosterBag.from_files(fitted.to_files()) for _ in range(3)]
    load_together(bags)
    load_together(bags)
    values = [bag.predict(MATRIX).tobytes() for bag in bags]
    assert values == [fitted.predict(MATRIX).tobytes()] * 3
    assert len(decompressed) == 6


def test_an_incomplete_file_is_refused_at_once(fitted):
    for damaged in (b"", fitted.to_files()[0][:-5], b"text"):
        with pytest.raises(ValueError, match="booster is damaged"):
            BoosterBag.from_files((damaged,))


def test_a_damaged_file_is_refused_when_it_is_asked(fitted):
    file = bytearray(fitted.to_files()[0])
    file[len(file) // 2] ^= 0xFF
    stored = BoosterBag.from_files((bytes(file),))
    with pytest.raises(BadArtifact, match="booster is damaged"):
        stored.predict(MATRIX)
