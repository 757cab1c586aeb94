"""No held-out row is trained on: every split of every dataset, on made-up and on real rows."""

from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets import DATASETS
from forerun.data.datasets.language_models.llm_traces import LlmTraces
from forerun.data.datasets.language_models.llmd_traces import LlmdTraces
from forerun.data.datasets.language_models.vidur import Vidur
from forerun.data.datasets.networks.neusight import NeuSight
from forerun.data.datasets.packaged import PackagedDataset, PackedTables
from forerun.data.errors import MissingData
from forerun.data.split import LeakedRows, _row_hashes
from tests.contracts.tiny_upstream import tiny_upstream

PREDICTED = [cls for cls in DATASETS if cls not in (LlmTraces, LlmdTraces)]
"""Traces of requests are no measurements."""
MOST_ROWS = 2_000
"""Rows of a reference table that are checked: of larger tables, a random sample."""
MOST_COPIED = 100
"""Training rows among which a copy of a held-out row is looked for."""
ROWS = ("tiny", pytest.param("reference", marks=pytest.mark.reference))


@pytest.fixture(params=ROWS, scope="module")
def rows(request):
    """The folder of reference bundles, or None for made-up rows."""
    return request.getfixturevalue("reference") if request.param == "reference" else None


@pytest.fixture(params=PREDICTED, scope="module")
def checked(request, rows, tmp_path_factory):
    """All splits of one dataset with their tables, checked; read once for all tests of it."""
    dataset, folder = request.param(), tmp_path_factory.mktemp("rows")
    if rows is not None:
        return checked_splits(dataset, thinned(real_bundle(dataset, rows), dataset, folder))
    tables = dataset.tidy(tiny_upstream(dataset.name, folder / "upstream"))
    bundle = Bundle.write(folder / "bundle", dataset.name, tables, as_csv=dataset.csv_tables)
    return checked_splits(dataset, bundle)


def real_bundle(dataset, root):
    """The reference bundle of a dataset, or the rows that come with the package."""
    if not isinstance(dataset, PackagedDataset):
        return Bundle.open(root / dataset.name)
    try:
        return Bundle.open(dataset.packaged().folder, dataset.name)
    except MissingData as error:
        pytest.skip(str(error))


def thinned(bundle, dataset, folder):
    """A bundle of few rows of each large table of timed operators; others as they are."""
    if not isinstance(dataset, PackedTables | Vidur):
        return bundle
    tables = {name: bundle.table(name) for name in bundle.tables()}
    few = {n: t.sample(min(len(t), MOST_ROWS), random_state=0) for n, t in tables.items()}
    return Bundle.write(folder, bundle.name, {n: t.reset_index(drop=True) for n, t in few.items()})


def checked_splits(dataset, bundle):
    """All splits with their tables, after checking them."""
    splits = dataset.splits(bundle)
    assert splits, f"{dataset.name} has no split"
    assert any(split.train.any() for split in splits), f"nothing trains in {dataset.name}"
    assert len({split.protocol for split in splits}) == len(splits), "each has a name of its own"
    tables = {name: bundle.table(name) for name in {split.table for split in splits}}
    hashes = {}

    def hashed_once(frame, columns):
        """Hashes of the queries of a table, which all of its splits have in common."""
        if (id(frame), columns) not in hashes:
            hashes[id(frame), columns] = _row_hashes(frame, columns)
        return hashes[id(frame), columns]

    for split in splits:
        with patch("forerun.data.split._row_hashes", hashed_once):
            split.check(tables[split.table])
        assert split.held_out.any(), f"{split.protocol} holds nothing out"
        assert split.disjoint_keys or split.query_columns or not split.train.any(), (
            f"{split.protocol} does not say what must be disjoint"
        )
    return [(split, tables[split.table]) for split in splits]


def test_no_split_trains_on_what_it_holds_out(checked):
    assert checked


def test_a_held_out_row_put_into_training_is_found(checked):
    for split, frame in checked:
        train = split.train.copy()
        train[np.flatnonzero(split.held_out)[-1]] = True
        with pytest.raises(LeakedRows, match="held-out rows are trained on"):
            replace(split, train=train).check(frame)


def test_a_held_out_row_copied_into_training_is_found_by_its_content(checked):
    """Flags alone would not show it: the copy is a training row, the row is held out."""
    for split, frame in checked:
        if not split.train.any():
            continue
        row = np.flatnonzero(split.held_out)[0]
        kept = np.array([*np.flatnonzero(split.train)[:MOST_COPIED], row, row])
        copy = np.arange(len(kept)) == len(kept) - 1
        copied = replace(
            split,
            train=split.train[kept] | copy,
            held_out=split.held_out[kept] & ~copy,
            derived={key: values[kept] for key, values in split.derived.items()},
        )
        with pytest.raises(LeakedRows, match=r"is trained on and held out|queries are trained on"):
            copied.check(frame.iloc[kept].reset_index(drop=True))


def test_a_dataset_without_a_split_fails(tmp_path):
    class Forgetful(NeuSight):
        def splits(self, bundle):
            return []

    tables = NeuSight().tidy(tiny_upstream("neusight", tmp_path / "upstream"))
    bundle = Bundle.write(tmp_path / "bundle", "neusight", tables)
    with pytest.raises(AssertionError, match="has no split"):
        checked_splits(Forgetful(), bundle)
