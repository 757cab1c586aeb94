"""A release that is fitted again for a fold knows nothing of what the fold holds out."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.bundle import find
from forerun.data.split import LeakedRows
from forerun.models.artifact.sealed_folder import seal
from forerun.training.evaluation.evaluate import run_protocols
from forerun.training.evaluation.refit import Refits, digest
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, held_out_rows
from tests.devices import CATALOG
from tests.training.toy_bundles import NOT_IN_TOYS


@pytest.fixture(scope="module")
def refits(home, nothing_bundled):
    """Refits of a release without any stored predictor: every part is fitted."""
    return Refits(nothing_bundled)


@cache
def folds_of(dataset):
    protocols = protocols_of_dataset(dataset)
    try:
        return protocols, list(protocols.checked_folds(find(dataset, None), CATALOG))
    except NOT_IN_TOYS as error:
        pytest.skip(f"made-up rows of {dataset}: {error}")


def parts_of(parts):
    for part in parts:
        yield part
        yield from parts_of(part.parts)


def leaks(refit, fold, keys):
    """Part and value of each training row of a refit with a held-out value of a key."""
    held = held_out_rows(fold.tasks) if fold.held_out is None else fold.held_out
    for part in parts_of(refit.parts):
        for key in keys:
            values = {str(name).lower() for name in column(held, key)} - {""}
            for name in column(part.rows, key):
                if str(name).lower() in values:
                    yield part.recipe.predictor, str(name)


def column(rows, key):
    if key == "device":
        return [query.device.name for query in rows.queries]
    return rows.groups.get(key, np.array([])).tolist()


@pytest.mark.slow
@pytest.mark.parametrize("dataset", [cls.dataset for cls in DATASET_PROTOCOLS])
def test_no_part_of_a_refit_is_fitted_on_a_row_of_a_held_out_group(dataset, refits, monkeypatch):
    monkeypatch.setattr("forerun.training.evaluation.refit.digest", lambda rows: "not stored")
    protocols, folds = folds_of(dataset)
    bundle = find(dataset, None)
    for fold in folds:
        refit = refits.of(protocols, bundle, fold)
        assert not list(leaks(refit, fold, fold.without)), fold.protocol


@pytest.mark.parametrize(
    ("dataset", "protocol", "key"),
    [
        ("torch_gpu", "unseen_device", "device"),
        ("neusight", "leave_one_gpu_out", "device"),
        ("mlenergy", "unseen_device", "device"),
        ("timm_bench", "unseen_family", "family"),
    ],
)
def test_what_protocols_name_is_held_out(dataset, protocol, key, refits):
    _, folds = folds_of(dataset)
    own = [fold for fold in folds if fold.protocol.split("/")[0] == protocol]
    assert own
    assert all(fold.without[key] for fold in own)


def test_rows_of_other_sources_would_leak_if_they_were_kept(refits, monkeypatch):
    """The check above notices it: the GPUs of torch_gpu train the power of other datasets too."""
    monkeypatch.setattr(Refits, "_held_out", lambda self, *a: np.zeros(len(a[1]), dtype=bool))
    protocols, folds = folds_of("torch_gpu")
    fold = next(fold for fold in folds if fold.protocol == "unseen_device")
    assert list(leaks(refits.of(protocols, find("torch_gpu", None), fold), fold, fold.without))


def test_the_record_of_a_refit_is_that_of_its_rows(refits):
    protocols, folds = folds_of("ncpp")
    fold = folds[0]
    record = refits.of(protocols, find("ncpp", None), fold).record
    assert record.rows["ncpp"] == len(fold.train)
    assert set(fold.without["part"]).isdisjoint(map(str.lower, record.seen("ncpp")["part"]))


def test_a_stored_fit_equals_a_fresh_one_and_nothing_is_fitted_twice(home, refits):
    protocols, folds = folds_of("wa_hls4ml")
    bundle, fold = find("wa_hls4ml", None), folds[0]
    metrics = sorted({task.metric for task in fold.tasks})
    refit = refits.of(protocols, bundle, fold)
    assert "benchmark_boost" in refit.text()
    queries = held_out_rows(fold.tasks).queries
    fresh = refit.answers(metrics).predict(queries)
    again = refits.of(protocols, bundle, fold)
    assert again.text() == "all fits are stored"
    stored = again.answers(metrics).predict(queries)
    for name in metrics:
        np.testing.assert_array_equal(stored.values[name], fresh.values[name])
        np.testing.assert_array_equal(stored.high[name], fresh.high[name])
    assert refits.of(protocols, bundle, fold, seed=1).text() != "all fits are stored"


def test_a_damaged_stored_fit_is_fitted_again(home, refits, fits):
    protocols, folds = folds_of("wa_hls4ml")
    refit = refits.of(protocols, find("wa_hls4ml", None), folds[0])
    whole = refit.answers(["lut"])
    for file in (fits / refit.parts[0].key).glob("predictor.json*"):
        file.write_text("{")
    again = refit.answers(["lut"])
    queries = folds[0].tasks[0].held_out.queries
    np.testing.assert_array_equal(
        again.predict(queries).values["lut"], whole.predict(queries).values["lut"]
    )


def test_a_part_without_a_held_out_row_is_that_of_the_release(home, refits, tmp_path):
    """The predictors of a release whose bundles are the same need no fit."""
    protocols, folds = folds_of("wa_hls4ml")
    bundle, fold = find("wa_hls4ml", None), folds[0]
    released = refits.of(protocols, bundle, fold).answers(["lut"]).in_use.loaded
    folder = tmp_path / "released"
    released.predictor.save(folder)
    record = released.record
    for name in ("wa_hls4ml", "ncpp"):
        own = protocols_of_dataset(name)
        rows = own.training_rows(find(name, None), CATALOG)
        record = record.with_rows(find(name, None), rows)
    record.write(folder)
    seal(folder, "2000-01-01")
    other = replace(fold, source="elsewhere", without={})
    (part,) = Refits(folder).of(protocols, bundle, other).parts
    assert part.stored is not None and part.rows is None
    assert Refits(folder).of(protocols, bundle, fold).parts[0].stored is None


def test_digests_tell_queries_values_and_groups_apart(home):
    rows = protocols_of_dataset("wa_hls4ml").training_rows(find("wa_hls4ml", None), CATALOG)
    turned = rows.take(np.arange(len(rows))[::-1])
    others = (
        replace(rows, queries=turned.queries),
        replace(rows, values=turned.values),
        replace(rows, groups=turned.groups),
        replace(rows, weights=np.full(len(rows), 0.5)),
    )
    assert digest(rows.take(np.arange(len(rows)))) == digest(rows)
    assert len({digest(rows), *map(digest, others)}) == 1 + len(others)


def test_whole_answers_are_scored_where_no_predictor_is_named(home, refits):
    protocols = protocols_of_dataset("wa_hls4ml")
    bundle = find("wa_hls4ml", None)
    options = {"protocols": ["unseen_width"], "refits": refits}
    found = list(run_protocols(protocols, bundle, **options))
    assert {one.predictor for one in found} == {"answers"}
    assert {grade for one in found for grade in one.grades} <= {"A", "B", "C", ""}
    part = list(run_protocols(protocols, bundle, predictors=["benchmark_boost"], **options))
    assert {one.predictor for one in part} == {"benchmark_boost"}
    assert all(one.grades is None for one in part)


class _Misspelt(DatasetProtocols):
    """Trained on the group `b`, evaluated on `B`: the same one in another spelling."""

    dataset = "wa_hls4ml"

    def training_rows(self, bundle, catalog):
        return protocols_of_dataset("wa_hls4ml").training_rows(bundle, catalog)

    def folds(self, bundle, catalog):
        rows = self.training_rows(bundle, catalog)
        half = np.arange(len(rows)) < len(rows) // 2
        train, held_out = rows.take(half), rows.take(~half)
        train = replace(train, groups={"board": np.full(len(train), "Board b")})
        held_out = replace(held_out, groups={"board": np.full(len(held_out), "board_B")})
        yield Fold("unseen_board", train, [Task("unseen_board", "lut", held_out)])

    def evaluation_tasks(self, bundle, catalog, seen):
        yield from ()


def test_a_group_in_another_spelling_is_no_unseen_group(home):
    with pytest.raises(LeakedRows, match="board board-b is trained on and held out"):
        list(_Misspelt().checked_folds(find("wa_hls4ml", None), CATALOG))
