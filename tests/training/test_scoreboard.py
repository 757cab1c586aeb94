"""The scoreboard shows every dataset, keeps scores that were not renewed, and reports changes."""

import json
from dataclasses import replace

import numpy as np
import pytest

from forerun.data.errors import InputError, MissingData
from forerun.data.measurements import Measurements
from forerun.data.query import Operation
from forerun.training import scoreboard
from forerun.training.engines.jobs import Local
from forerun.training.evaluation.cells import cells_of, changes, settings_judged
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.protocols.protocol import Task
from forerun.training.release.promotion import in_slices
from forerun.training.scoreboard import moved, names_of_tables, page, renew
from tests.training.leaderboard.toy_protocols import measured

FAMILIES = ("convolutional",) * 40 + ("transformer",) * 8 + ("recurrent",) * 2


def predictions(correction=1.0, seed=0):
    """Answers about networks, with a correction of transformers that is right at 1."""
    rng = np.random.default_rng(seed)
    families = np.array(FAMILIES)
    truth = np.full(len(families), 2.0)
    rows = measured(truth)
    rows = Measurements(rows.queries, rows.values, {**rows.groups, "family": families})
    noise = np.exp(rng.normal(0.0, 0.002, len(families)))
    found = 2.1 * noise * np.where(families == "transformer", correction, 1.0)
    columns = {"measured": truth, "predicted": found, "low": found / 1.2, "high": found * 1.2}
    task = Task("unseen/x", "latency_ms", rows)
    grades = np.where(families == "recurrent", "C", "A")
    return TaskPredictions(task, 0, columns, {}, "answers", grades=grades)


def table(name="toy", correction=1.0, seed=0, **more):
    cells = cells_of([predictions(correction, seed)])
    row = {"task": "unseen/x", "device": None, "metric": "latency_ms", "n": 50, "unanswered": 0}
    row |= {"mape": 5.0, "coverage_90": 91.0, "baselines": {"roofline": 4.0}}
    facts = {"commit": "abc", "date": "2026-01-01", "seeds": 1, "cpu_minutes": 2.0}
    return {"dataset": name, **facts, "tasks": [row], "cells": cells, **more}


def test_cells_are_the_errors_by_group():
    (own,) = cells_of([predictions()])
    found = {cell[1]: cell[4:] for cell in own["cells"]}
    assert found.keys() == {"convolutional", "transformer", "recurrent"}
    assert found["convolutional"] == [40.0, pytest.approx(5.0, abs=0.2)]
    assert json.loads(json.dumps(own)) == own


def test_only_answers_as_served_count_as_judged_rows():
    one = predictions()
    rows = one.task.held_out
    runs = [Operation(1 + at // 2) for at in range(50)]
    queries = [replace(rows.queries[0], operation=run) for run in runs]
    one = replace(one, task=replace(one.task, held_out=replace(rows, queries=queries)))
    missed = {**one.columns, "high": np.where(np.arange(50) < 15, 1.9, 3.0)}
    (found,) = settings_judged([replace(one, columns=missed)]).items()
    assert found[0].metric == "latency_ms" and found[1] == (25, 17.5), "rows of a run count once"
    assert settings_judged([one, one])[found[0]] == (25, 25.0), "in all tasks together"
    inside = replace(one, columns=missed, in_domain=np.arange(50) < 20)
    assert settings_judged([inside])[found[0]] == (10, 2.5)
    assert settings_judged([replace(one, shots=5), replace(one, seed=1)]) == {}
    assert settings_judged([replace(one, task=replace(one.task, device_only=True))]) == {}
    silent = {**one.columns, "low": np.full(50, np.nan)}
    assert settings_judged([replace(one, columns=silent)]) == {}


def test_a_correction_that_is_off_by_a_fifth_is_named_with_its_slice():
    (worst, *_) = moved([table()], [table(correction=1.2)])
    assert worst.lost
    assert worst.what == "toy unseen/x latency_ms transformer"
    assert worst.after > 20.0
    assert "toy unseen/x latency_ms transformer" in worst.text()
    assert not [one for one in moved([table(correction=1.2)], [table()]) if one.lost]


def test_the_difference_between_two_seeds_is_not_a_change():
    assert list(moved([table()], [table(seed=1)])) == []


def test_unintended_changes_in_other_tables_are_found():
    before = [table("meant"), table("other")]
    after = [table("meant"), table("other", correction=1.2)]
    assert {one.what.split()[0] for one in in_slices(before, after)} == {"other"}


def test_a_missing_table_is_a_loss():
    (gone,) = moved([table("a"), table("b")], [table("b")])
    assert gone.lost and gone.what == "a"


def test_only_shared_tasks_are_compared():
    assert list(changes([table("a")], [table("b")])) == []
    assert list(changes([table("a")], [table("a")])) == [], "nothing differs"


def test_the_page_lists_the_worst_first_and_what_is_missing():
    worse = table("contention")
    worse["tasks"] = [{**worse["tasks"][0], "mape": 80.0}]
    silent = table("ncpp")
    silent["tasks"] = [{**silent["tasks"][0], "mape": None, "n": 0, "unanswered": 50}]
    text = page([table("neusight"), worse, silent])
    places = [text.index(f"## {name}") for name in ("ncpp", "contention", "neusight")]
    assert places == sorted(places), "tables without an answer come first"
    line = "|unseen/x|latency_ms|1|50|80||91|**4** roofline|1|"
    assert line in text, "the baseline is ahead"
    assert "|unseen/x|latency_ms|1|no answer|" in text
    assert "2026-01-01, commit `abc`, 1 seed, 2 CPU minutes" in text
    assert "|aiconfigurator|not scored|" in text


def test_a_line_pools_devices_and_long_tables_pool_parts():
    own = table("neusight")
    (base,) = own["tasks"]
    own["tasks"] = [
        {**base, "task": task, "device": device, "n": n, "mape": error, "median_ape": error}
        for task, device, n, error in (("p/x", "a", 10, 2.0), ("p/x", "b", 30, 6.0))
    ]
    line = "|p/x|latency_ms|2|40|5|4|91|**4** roofline|1|"
    assert line in page([own])
    parts = [{**base, "task": f"q/y/{number}"} for number in range(40)]
    whole = [{**base, "task": "q/z", "mape": 3.0}, {**base, "task": "q/z/part"}]
    text = page([{**own, "tasks": [*own["tasks"], *parts, *whole]}])
    assert "|q/y|latency_ms|40|2,000|5||91|**4** roofline|40|" in text
    assert "|q/z|latency_ms|1|50|3||91|4 roofline|0|" in text, "its part is not shown"


def test_every_dataset_has_a_line_before_the_tables_with_its_worst_slice():
    made = table("neusight", correction=1.5)
    made["tasks"] = [{**own, "median_ape": 4.0} for own in made["tasks"]]
    made["cells"] = [{**own, "cells": [[*c[:4], 20.0, c[5]] for c in own["cells"]]}
                     for own in made["cells"]]  # fmt: skip
    text = page([made])
    (line,) = (own for own in text.splitlines() if own.startswith("|neusight|"))
    assert line.startswith("|neusight|1|50|4.0 %|91 %|57")
    assert "unseen/x" in line and "transformer" in line
    assert text.index(line) < text.index("## neusight")
    assert text.count("|not scored|") == len(names_of_tables()) - 1


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Renews the scoreboard of a file; says which tables were evaluated."""
    evaluated = []

    def evaluation(name, *more):
        if name == "vidur":
            raise MissingData("vidur is not on this machine")
        evaluated.append(name)
        return table(name, commit="now")

    monkeypatch.setattr(scoreboard, "_evaluated", evaluation)
    monkeypatch.setattr(scoreboard.tracking, "git_commit", lambda: "now")

    def renewed(*names, **more):
        evaluated.clear()
        left = renew(names, tmp_path / "board.json", **more)
        return list(evaluated), left, json.loads((tmp_path / "board.json").read_text())

    renewed.file = tmp_path / "board.json"
    return renewed


def test_an_interrupted_run_continues_and_nothing_is_dropped(run):
    first, _, stored = run("timm_bench")
    assert first == [one["dataset"] for one in stored] == ["timm_bench"]
    rest, left, stored = run()
    assert set(rest) == set(names_of_tables()) - {"timm_bench", "vidur"}
    assert left == {
        "timm_bench": "evaluated at this commit",
        "vidur": "vidur is not on this machine",
    }
    assert {one["dataset"] for one in stored} == set(names_of_tables()) - {"vidur"}


def test_a_long_table_keeps_its_scores_and_is_evaluated_only_if_named(run):
    run.file.write_text(json.dumps([table("neusight", cpu_minutes=300.0)]))
    evaluated, left, stored = run()
    assert "neusight" not in evaluated
    assert "300 CPU minutes" in left["neusight"] and "--engine ray" in left["neusight"]
    (kept,) = (one for one in stored if one["dataset"] == "neusight")
    assert (kept["commit"], kept["date"]) == ("abc", "2026-01-01")
    assert "neusight" in run("neusight")[0]
    run.file.write_text(json.dumps([table("neusight", cpu_minutes=300.0)]))
    assert "neusight" in run(engine=Local())[0], "another engine takes long tables too"


def test_an_unknown_table_is_refused(run):
    with pytest.raises(InputError, match="No table 'nope'; there are aiconfigurator"):
        run("nope")


def test_public_cases_and_broken_laws_stand_before_the_tables():
    own = {"n": 4, "answered": 3, "inside_share": 75.0, "median_ratio": 1.04, "median_ape": 12.5}
    own["median_interval_ratio"] = 2.0
    cases = {"all": own, "by_group": {"serving": own}, "by_grade": {"A": own}}
    law = {"law": "more_load_is_no_faster", "pairs": 200, "violations": 4, "share": 0.02}
    laws = [{**law, "worst": 0.1, "question": "a server"}, {**law, "violations": 0}]
    text = page([table("ncpp")], {**cases, "outside_with_grade_a": []}, {"laws": laws})
    assert "|serving|4|3|75 %|1.04|12.5 %|2.00|" in text
    assert "grade A: none." in text
    assert "1 of 2 hold in all pairs" in text
    assert "|more load is no faster|200|4 (2.00 %)|10 %: a server|" in text
    assert text.index("Published values") < text.index("Laws of any") < text.index("## ncpp")


def test_protocols_without_a_stored_task_are_named():
    table = {"dataset": "published_networks", "tasks": [{"task": "unseen_model/eager"}]}
    assert scoreboard.not_scored(table) == ["unseen_device"]
    both = [*table["tasks"], {"task": "unseen_device/eager"}]
    assert scoreboard.not_scored({**table, "tasks": both}) == []
