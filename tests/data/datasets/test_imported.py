"""Splits of imported tables leak nothing, and their bundles are found by a fact."""

import json

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import FACTS
from forerun.data.datasets import dataset
from forerun.data.datasets.imported import (
    FOLDS,
    RUNS,
    folds,
    imported_tables,
    model_groups,
    write_bundle,
)
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadTable, MissingData, UnknownDataset
from forerun.data.own_tables.tidy import Description
from forerun.data.split import LeakedRows

NO_FINDINGS = pd.DataFrame(
    {"row": pd.Series(dtype="int64"), "flag": pd.Series(dtype="str"), "why": pd.Series(dtype="str")}
)


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Writes rows as the table `mine`: its dataset and bundle."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))

    def write(**columns):
        runs = pd.DataFrame({"device": "", "model": "", "family": "", **columns})
        runs["latency_ms"] = np.arange(1.0, 1.0 + len(runs))
        settings = tuple(n for n in columns if n not in ("device", "model", "family"))
        described = Description("mine", "settings", ("latency_ms",), settings)
        devices = [DeviceCatalog.load().get("l4")]
        bundle = write_bundle(described, runs, {}, devices, NO_FINDINGS, "sheet", "t.csv")
        return dataset("mine"), bundle

    return write


def checked(source, bundle):
    """Protocol -> its splits, each of which is found to leak when a held-out row trains."""
    runs, found = bundle.table(RUNS), {}
    for split in source.splits(bundle):
        split.check(runs)
        found.setdefault(split.protocol.partition("/")[0], []).append(split)
        row = np.flatnonzero(split.held_out)[0]
        copied = pd.concat([runs, runs.iloc[[row]]], ignore_index=True)
        leaking = type(split)(
            split.protocol,
            split.table,
            np.append(split.train, True),
            np.append(split.held_out, False),
            split.disjoint_keys,
            split.query_columns,
            {key: np.append(values, values[row]) for key, values in split.derived.items()},
        )
        with pytest.raises(LeakedRows):
            leaking.check(copied)
    for splits in found.values():
        assert sum(split.held_out.astype(int) for split in splits).tolist() == [1] * len(runs)
    return found


def test_each_protocol_holds_every_row_out_once_and_leaks_nothing(written):
    n = np.arange(24.0)
    source, bundle = written(
        n=n, device=np.where(n % 2, "l4", "t4"), model=[f"m{i % 3}" for i in n]
    )
    found = checked(source, bundle)
    assert {name: len(splits) for name, splits in found.items()} == {
        "random_groups": FOLDS,
        "unseen_device": 2,
        "unseen_model": 3,
    }


def test_repeats_of_a_question_are_held_out_together(written):
    source, bundle = written(n=np.repeat(np.arange(6.0), 3))
    (name,) = checked(source, bundle)
    assert name == "random_groups"


def test_a_table_without_groups_has_no_group_protocols(written):
    source, bundle = written(n=np.ones(4))
    assert checked(source, bundle) == {}, "one question cannot be held out"


def test_many_values_share_folds_that_differ_by_at_most_one_value():
    values = np.array([f"v{i:02d}" for i in range(23)])
    counts = np.bincount(folds(values, most=8))
    assert sorted(counts) == [4, 4, 5, 5, 5]
    assert folds(values[:8], most=8).tolist() == list(range(8))


def test_a_setting_that_repeats_in_the_order_of_names_is_in_every_fold():
    values = np.array([f"{size:03d} tile {tile}" for size in range(40) for tile in range(5)])
    tile = np.array([text[-1] for text in values])
    fold = folds(values, most=8)
    assert all(len(set(tile[fold == held])) == 5 for held in range(5))


def test_models_that_share_a_graph_are_one_model():
    runs = pd.DataFrame({"model": ["a", "b", "c", ""], "workload": ["g1", "g1", "g2", "g3"]})
    groups = model_groups(runs)
    assert groups[0] == groups[1]
    assert len(set(groups)) == 3


def test_an_imported_table_is_a_dataset_and_others_are_not(written, tmp_path):
    assert imported_tables() == {}
    source, bundle = written(n=np.arange(4.0))
    assert list(imported_tables()) == ["mine"]
    assert source.flags(bundle).empty
    with pytest.raises(MissingData, match="was imported"):
        source.pull()
    with pytest.raises(UnknownDataset, match="mine"):
        dataset("other")
    facts = json.loads((bundle.folder / FACTS).read_text())
    (bundle.folder / FACTS).write_text(json.dumps(facts | {"own_table": {"layout": "settings"}}))
    with pytest.raises(BadTable, match="import it again"):
        imported_tables()
