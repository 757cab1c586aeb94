"""Leaderboard runs are stored, resume after an interruption, and are reproducible."""

import shlex

import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.errors import InputError, MissingData
from forerun.training.evaluation.evaluate import rows, run_protocols
from forerun.training.leaderboard import runs as module
from forerun.training.leaderboard.entries import Leaderboard
from forerun.training.leaderboard.runs import Plan, run, track
from forerun.training.leaderboard.store import ResultStore, stored
from tests.training.leaderboard.toy_protocols import Mean, ToyProtocols

ALONE = {"predictors": ("mean", "seeded")}


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A folder of bundles with the made-up dataset, and no fits yet."""
    monkeypatch.setattr(module, "protocols_of_dataset", lambda name: ToyProtocols())
    monkeypatch.setattr(module, "DATASET_PROTOCOLS", (ToyProtocols,))
    monkeypatch.setattr(module.tracking, "code_state", lambda: "c" * 40)
    Mean.fits.clear()
    Bundle.write(tmp_path / "data" / "toy", "toy", {"rows": pd.DataFrame({"x": [1.0]})})
    return tmp_path / "data"


@pytest.fixture
def results(tmp_path) -> ResultStore:
    return ResultStore(tmp_path / "leaderboard")


def of(entries, predictor, task="folds/x", shots=0):
    (found,) = {
        entry.key: entry
        for entry in entries
        if (entry.predictor, entry.task, entry.shots) == (predictor, task, shots)
    }.values()
    return found


def test_every_predictor_is_listed_with_baselines_and_published_systems(data, results):
    found = run(Plan(**ALONE, data=data), results)
    kinds = {entry.predictor: entry.kind for entry in found}
    assert kinds == {
        "mean": "ours", "seeded": "ours", "constant": "baseline", "roofline": "baseline",
        "them": "published",
    }  # fmt: skip
    assert of(found, "mean").value == pytest.approx(25.0)  # 1 ms for 2 ms, and 2 ms for 2 ms
    assert of(found, "constant").value == pytest.approx(25.0)
    assert of(found, "them").value == pytest.approx(50.0)
    assert of(found, "them").citation
    assert of(found, "mean").n == 16
    assert {len(e.digest) for e in found} == {64} and {e.commit for e in found} == {"c" * 40}


def test_whole_answers_are_evaluated_if_no_predictor_is_named(data, results, monkeypatch):
    asked = []
    monkeypatch.setattr(module, "fold_jobs", lambda *given: asked.append(given) or iter(()))
    run(Plan(data=data), results)
    assert [fold.protocol for _, fold, *_ in asked] == ["whole", "folds", "folds"]
    assert [names for *_, names, _ in asked] == [[]] * 3
    assert Mean.fits == []


def test_seeds_have_a_standard_error_and_one_seed_has_none(data, results):
    one = of(run(Plan(**ALONE, data=data), results), "seeded", "whole/x")
    assert (one.value, one.standard_error, one.seeds) == (pytest.approx(10.0), None, 1)
    three = run(Plan(**ALONE, data=data, seeds=3), results)
    ours = of(three, "seeded", "whole/x")
    assert (ours.value, ours.seeds) == (pytest.approx(11.0), 3)
    assert ours.standard_error == pytest.approx(1 / 3**0.5)
    baseline = of(three, "roofline", "whole/x")
    assert (baseline.seeds, baseline.standard_error) == (1, None), "it has no seeds to differ by"


def test_shots_adapt_one_fit_and_are_not_scored(data, results):
    found = run(Plan(data=data, protocols=["folds"], predictors=["mean"], shots=(0, 2)), results)
    assert of(found, "mean", shots=2).value == pytest.approx(0.0)
    assert of(found, "mean", shots=2).n == 12
    assert Mean.fits == ["mean 2"] * 2, "one a fold, whatever the number of shots"


def test_finished_parts_of_an_interrupted_run_are_not_fitted_again(data, results, monkeypatch):
    kept = []

    def cut(self, evaluation_run, entries):
        if len(kept) == 2:
            raise KeyboardInterrupt
        kept.append(evaluation_run)
        return keep(self, evaluation_run, entries)

    keep = ResultStore.keep
    monkeypatch.setattr(ResultStore, "keep", cut)
    with pytest.raises(KeyboardInterrupt):
        run(Plan(**ALONE, data=data), results)
    assert {evaluation_run.protocol for evaluation_run in kept} == {"whole"}
    monkeypatch.setattr(ResultStore, "keep", keep)
    Mean.fits.clear()
    lines = []
    found = run(Plan(**ALONE, data=data), results, lines.append)
    assert len(Mean.fits) == 4, "two predictors in two folds; nothing of `whole`"
    assert len([line for line in lines if "finished before" in line]) == 2
    Mean.fits.clear()
    assert run(Plan(**ALONE, data=data), results) == found
    assert Mean.fits == []


@pytest.mark.parametrize("change", ["digest", "seeds", "commit", "file"])
def test_results_of_other_data_settings_or_code_are_evaluated_again(
    data, results, monkeypatch, change
):
    plan = Plan(data=data, protocols=["whole"], predictors=["mean"])
    run(plan, results)
    Mean.fits.clear()
    if change == "digest":
        Bundle.write(data / "toy", "toy", {"rows": pd.DataFrame({"x": [2.0]})})
    elif change == "seeds":
        plan = Plan(data=data, protocols=["whole"], predictors=["mean"], seeds=2)
    elif change == "commit":
        monkeypatch.setattr(module.tracking, "code_state", lambda: "d" * 40)
    else:
        (file,) = results.folder.iterdir()
        file.write_text(file.read_text()[:100])
    run(plan, results)
    assert Mean.fits


@pytest.mark.slow
def test_the_command_of_a_row_gives_the_row(data, results, monkeypatch):
    found = run(Plan(**ALONE, data=data, shots=(0, 2), seeds=2), results)
    bundle = Bundle.open(data / "toy", "toy")
    for entry in found:
        words = shlex.split(entry.command)
        assert words[:3] == ["forerun", "evaluate", "toy"]
        given = dict(zip(words[3::2], words[4::2], strict=True))
        predictions = run_protocols(
            ToyProtocols(),
            bundle,
            int(given.get("--shots", 0)),
            int(given.get("--seeds", 1)),
            [given["--protocol"]],
            [given["--predictor"]],
        )
        (row,) = (r for r in rows(list(predictions)) if r["task"] == entry.task)
        others = {**row["baselines"], "them": row["baselines"]["published_them"]}
        value = row["mape"] if entry.kind == "ours" else others[entry.predictor]
        assert value == pytest.approx(entry.value, nan_ok=True)


def test_wrong_names_are_reported_and_absent_datasets_are_skipped(data, results, tmp_path):
    with pytest.raises(InputError, match=r"No predictor 'oracle'.* mean, seeded"):
        run(Plan(data=data, predictors=["oracle"]), results)
    with pytest.raises(InputError, match="No protocol other in"):
        run(Plan(**ALONE, data=data, protocols=["other"]), results)
    with pytest.raises(MissingData):
        run(Plan(data=tmp_path / "nowhere", datasets=["toy"]), results)
    lines = []
    assert run(Plan(data=tmp_path / "nowhere"), results, lines.append) == []
    assert lines and lines[0].startswith("left out")


def test_a_damaged_result_is_left_out(data, results):
    run(Plan(**ALONE, data=data, protocols=["whole"]), results)
    (results.folder / "toy--damaged.json").write_text("{")
    (results.folder / "toy--strange.json").write_text("[]")
    assert {entry.task for entry in results.entries()} == {"whole/x"}
    assert "toy" in stored(results).datasets()


@pytest.mark.slow
def test_a_run_is_logged_with_its_scores_and_files(data, results, store):
    from forerun.training.tracking.runs import connect

    board = Leaderboard().with_entries(run(Plan(**ALONE, data=data, shots=(0, 2)), results))
    page, picture = store / "page.html", store / "curve.png"
    page.write_text("page")
    picture.write_bytes(b"png")
    client = connect()
    logged = client.get_run(track(board, [page, picture]))
    assert logged.data.metrics["toy/folds/x/all/mean/0-shots/mape"] == pytest.approx(25.0)
    assert logged.data.metrics["toy/folds/x/all/mean/2-shots/mape"] == pytest.approx(0.0)
    assert not [m for m in logged.data.metrics if m.endswith("mape_standard_error")]
    assert logged.data.tags["dataset.toy"] == Bundle.open(data / "toy", "toy").digest
    paths = {a.path for a in client.list_artifacts(logged.info.run_id)}
    assert paths == {"page.html", "figures", "leaderboard.json"}
