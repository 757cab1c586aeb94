"""Evaluations by protocol, on rows that the release was not fitted on."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle, find
from forerun.data.errors import InputError
from forerun.data.measurements import Measurements
from forerun.data.split import LeakedRows
from forerun.models.artifact.sealed_folder import LoadedPredictor, seal
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.baselines.constant import Constant
from forerun.training.evaluation import evaluate as module
from forerun.training.evaluation import stored
from forerun.training.evaluation.evaluate import (
    evaluate,
    root_mean_squares,
    rows,
    run_protocols,
    summed_rows,
)
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.evaluation.refit import Refits, digest
from forerun.training.evaluation.stored import evaluations_text, read_evaluations, stored_with
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.protocols.protocol import DatasetProtocols, Fold, Task, held_out_rows
from tests.devices import CATALOG
from tests.training.leaderboard.toy_protocols import ToyProtocols, measured
from tests.training.toy_bundles import NOT_IN_TOYS, toy_folds

# Evaluation: folds pooled, seeds averaged, seen rows left out, shots never scored.
#
# What is stored of an evaluation is the same everywhere, and is read from one place.
#
# Root mean square errors: pooled, by part, summed over targets.


class Toy(ToyProtocols):
    """Two folds trained on 1 ms and 2 ms and evaluated on 2 ms; one unseen device."""

    def predictor(self, seed=0):
        return Constant()

    def predictors(self, seed=0):
        return (Constant(),)

    def folds(self, bundle, catalog):
        yield from (fold for fold in super().folds(bundle, catalog) if fold.protocol == "folds")

    def evaluation_tasks(self, bundle, catalog, seen):
        rows = [("a10", [1.0]), ("t4", [4.0] * 10)]
        for device, values in rows:
            if device not in seen.get("device", ()):
                yield Task("unseen_device/x", "latency_ms", measured(values, device), device)


@pytest.fixture
def toy(monkeypatch, tmp_path) -> Bundle:
    monkeypatch.setattr(module, "protocols_of_dataset", lambda name: Toy())
    return Bundle.write(tmp_path / "toy", "toy", {"rows": pd.DataFrame({"x": [1.0]})})


def run(toy, record=None, **options):
    current = LoadedPredictor(Constant({"latency_ms": 2.0}), "v1", "2026-01-01", "")
    return evaluate(
        "toy", current=current, record=record or TrainingRecord(), data_dir=toy.folder, **options
    )


ALONE = {"predictors": ["constant"]}


def test_folds_are_pooled_and_have_baselines(toy):
    record = TrainingRecord({"toy": toy.digest})
    result = run(toy, record, **ALONE)
    (task,) = result["tasks"]
    assert result["predictor"] is None
    assert task["n"] == 16
    assert task["mape"] == pytest.approx(25.0)  # 1 ms for 2 ms, and 2 ms for 2 ms
    assert task["baselines"]["published_them"] == pytest.approx(50.0)
    assert {"roofline", "constant"} <= set(task["baselines"])


def test_every_seed_is_a_fit_and_gives_a_standard_error(toy):
    result = run(toy, TrainingRecord({"toy": toy.digest}), seeds=3, **ALONE)
    (task,) = result["tasks"]
    assert task["n"] == 16
    assert task["mape_standard_error"] == pytest.approx(0.0)


def test_nothing_is_fitted_on_a_dataset_that_trains_no_predictor(toy, monkeypatch):
    monkeypatch.setattr(Toy, "zero_shot", True)
    result = run(toy, TrainingRecord({"toy": toy.digest}))
    assert result["predictor"] == "v1"
    assert result["fitted_on"] is None
    assert {task["task"] for task in result["tasks"]} == {"unseen_device/x"}


def test_on_an_unknown_folder_the_predictor_in_use_is_evaluated(toy):
    result = run(toy)
    assert result["fitted_on"] is None
    assert result["predictor"] == "v1"
    errors = {task["device"]: task["mape"] for task in result["tasks"]}
    assert errors == {"a10": pytest.approx(100.0), "t4": pytest.approx(50.0)}


def test_training_rows_of_the_current_predictor_are_left_out(toy):
    record = TrainingRecord(keys={"toy": {"device": ["a10"]}})
    assert [task["device"] for task in run(toy, record)["tasks"]] == ["t4"]


def test_shots_adapt_and_are_not_scored(toy):
    record = TrainingRecord(keys={"toy": {"device": ["a10"]}})
    (task,) = run(toy, record, shots=4, seeds=2)["tasks"]
    assert task["n"] == 6
    assert task["mape"] == pytest.approx(0.0)


def test_only_the_requested_protocols_are_run(toy):
    assert list(run_protocols(Toy(), toy, protocols=["other"])) == []


def test_an_unknown_protocol_is_refused_with_the_known_names(toy):
    record = TrainingRecord({"toy": toy.digest})
    assert run(toy, record, protocols=["folds"], **ALONE)["tasks"]
    with pytest.raises(InputError, match=r"No protocol 'nope' in toy; there are folds\."):
        run(toy, record, protocols=["folds", "nope"])


def test_a_record_survives_its_file(tmp_path, toy):
    record = TrainingRecord().with_rows(toy, measured([1.0]))
    record.write(tmp_path)
    again = TrainingRecord.read(tmp_path)
    assert again.knows(toy)
    assert again.seen("toy") == {"device": ["a10"]}
    assert again == record
    assert TrainingRecord.read(tmp_path / "nowhere").seen("toy") == {}


MADE = [{"dataset": "toy", "seeds": 1, "tasks": [{"task": "a/x"}, {"task": "b/x"}], "cells": []}]


@pytest.fixture
def released(tmp_path, monkeypatch):
    """A released predictor with scores of its own, and a scoreboard."""
    folder = tmp_path / "released"
    folder.mkdir()
    (folder / "scores.json").write_text("[1]")
    (tmp_path / "board.json").write_text(evaluations_text(MADE))
    monkeypatch.setattr(stored, "released_artifact", lambda: folder)
    monkeypatch.setattr(stored, "scoreboard_file", lambda: tmp_path / "board.json")
    return folder


def test_stored_evaluations_are_read_back_and_have_a_line_per_task(tmp_path):
    file = tmp_path / "board.json"
    file.write_text(evaluations_text(MADE))
    assert read_evaluations(file) == MADE
    assert '{"task": "a/x"},\n{"task": "b/x"}' in file.read_text()
    assert read_evaluations(tmp_path / "none.json") == []


def test_the_scoreboard_holds_the_scores_of_the_released_predictor_and_of_its_copies(
    released, tmp_path
):
    copy = tmp_path / "retrained"
    copy.mkdir()
    assert stored_with(copy) == []
    (copy / "scores.json").write_bytes((released / "scores.json").read_bytes())
    assert stored_with(released) == stored_with(copy) == MADE
    (copy / "scores.json").write_text(json.dumps([{"dataset": "other"}]))
    assert stored_with(copy) == [{"dataset": "other"}]


NOTHING = Measurements([], {})


def task_predictions(measured, error, metric="a", seed=0, scale=np.asarray):
    task = Task("protocol/part", metric, NOTHING, scale=scale)
    truth = np.array(measured, dtype=float)
    nothing = np.full(len(truth), np.nan)
    columns = {"measured": truth, "predicted": truth + error, "low": nothing, "high": nothing}
    return TaskPredictions(task, seed, columns, {"constant": truth + 2 * error}, "mine", 0)


def test_a_large_part_weighs_more_when_rows_are_pooled():
    parts = [task_predictions([1.0] * 9, 0.0), task_predictions([1.0], 1.0)]
    found = root_mean_squares(parts)
    assert found["rmse"] == pytest.approx(np.sqrt(0.1))
    assert found["rmse_part_mean"] == pytest.approx(0.5)
    assert found["baselines_rmse"] == {"constant": pytest.approx(2 * np.sqrt(0.1))}


def test_errors_are_taken_on_the_tasks_scale():
    (found,) = (root_mean_squares([task_predictions([100.0], 900.0, scale=np.log10)]),)
    assert found["rmse"] == pytest.approx(1.0)


def test_a_task_without_a_scale_has_no_such_fields():
    assert root_mean_squares([task_predictions([1.0], 1.0, scale=None)]) == {}
    (row,) = rows([task_predictions([1.0], 1.0, scale=None)])
    assert "rmse" not in row


def test_errors_of_targets_are_summed_and_seeds_averaged():
    predictions = [
        task_predictions([1.0, 2.0], error, metric, seed)
        for seed, more in ((0, 0.0), (1, 2.0))
        for metric, error in (("a", 1.0 + more), ("b", 3.0 + more))
    ]
    (total,) = summed_rows(predictions)
    assert total["rmse_sum"] == pytest.approx((4.0 + 8.0) / 2)
    assert total["rmse_sum_standard_error"] == pytest.approx(2.0)
    assert (total["metric"], total["n"]) == ("sum", 2)
    assert total["baselines_rmse_sum"]["constant"] == pytest.approx(12.0)


def test_a_single_target_has_no_sum():
    assert summed_rows([task_predictions([1.0], 1.0)]) == []


# A release that is fitted again for a fold knows nothing of what the fold holds out.


@pytest.fixture(scope="module")
def refits(home, nothing_bundled):
    """Refits of a release without any stored predictor: every part is fitted."""
    return Refits(nothing_bundled)


def folds_of(dataset):
    try:
        return protocols_of_dataset(dataset), toy_folds(dataset)
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
def test_keys_named_by_protocols_are_held_out(dataset, protocol, key, refits):
    _, folds = folds_of(dataset)
    own = [fold for fold in folds if fold.protocol.split("/")[0] == protocol]
    assert own
    assert all(fold.without[key] for fold in own)


def test_rows_of_other_sources_would_leak_if_they_were_kept(refits, monkeypatch):
    """The check above detects it: the GPUs of torch_gpu also occur in other datasets."""
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
    """Predictors of a release with the same bundles need no fit."""
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


def test_digests_depend_on_queries_values_and_groups(home):
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


def test_whole_answers_are_scored_if_no_predictor_is_named(home, refits):
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
    """Trained on the group `b`, evaluated on `B`: the same group in another spelling."""

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


def test_a_group_in_another_spelling_is_not_unseen(home):
    with pytest.raises(LeakedRows, match="board board-b is trained on and held out"):
        list(_Misspelt().checked_folds(find("wa_hls4ml", None), CATALOG))
