"""The leaderboard for people and programs: page, endpoint and command line show what is stored."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from forerun.service import cli
from forerun.service.http.pages.leaderboard import leaderboard_file
from forerun.training.leaderboard import runs as leaderboard_runs
from forerun.training.leaderboard.entries import Entry, Leaderboard
from forerun.training.leaderboard.store import EvaluationRun, ResultStore, shipped
from forerun.training.published.figures import published_for
from tests.service.answered import content_of
from tests.training.leaderboard.test_comparison import OURS as ENTRY

OURS = replace(
    ENTRY,
    value=12.5,
    mape=None,
    standard_error=0.25,
    device="t4",
    protocol="unseen_device",
    seeds=3,
    n=1234,
    command="forerun evaluate toy --predictor mine --seeds 3",
    date="2026-01-02T03:04:05",
    commit="c" * 40,
    digest="d" * 64,
)
ODD = replace(
    OURS,
    predictor='<script>alert("x")</script>',
    task="a&b/<i>",
    kind="published",
    citation="Li & <b>others</b>, $1 2025",
    over="rows < 5",
    digest=None,
)


@pytest.fixture
def results(tmp_path, monkeypatch) -> ResultStore:
    """FORERUN_HOME with one finished sitting of a made-up dataset."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    store = ResultStore.default()
    store.keep(EvaluationRun("toy", "unseen_device", "mine", 0, 3, "d" * 64, "", None), [OURS, ODD])
    return store


def said(entries):
    """Each citation and each command of entries, once."""
    return {entry.citation or "" for entry in entries} | {entry.command or "" for entry in entries}


def call(*words):
    """The verb in this process, so that what it must not run can be watched."""
    return CliRunner().invoke(cli.app, ["leaderboard", *words])


class Seen(HTMLParser):
    """Tags, outside addresses and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.opened, self.addresses, self._parts = [], [], []
        self.feed(text)
        self.text = "".join(self._parts)

    def updatepos(self, start, end):
        """No positions are asked for, and counting lines takes seconds."""
        return end

    def handle_starttag(self, tag, attrs):
        self.opened.append((tag, dict(attrs)))
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self._parts.append(data)

    def count(self, tag):
        """Number of tags of that name."""
        return [name for name, _ in self.opened].count(tag)


def test_the_file_escapes_every_name_and_needs_nothing_from_outside():
    plain, odd = (Seen(leaderboard_file(Leaderboard(e))) for e in ((OURS,), (OURS, ODD)))
    assert not any(map(odd.count, ("b", "i", "link", "img", "iframe")))
    assert odd.count("script") == plain.count("script")
    assert ODD.predictor in odd.text and ODD.citation in odd.text and ODD.over in odd.text
    assert all(address.startswith(("#", "?")) for address in odd.addresses)


def test_every_entry_of_the_file_has_its_command_or_its_citation():
    seen = Seen(leaderboard_file(Leaderboard((OURS, ODD))))
    assert OURS.command in seen.text
    entries = [attrs["class"] for tag, attrs in seen.opened if tag == "li" and "class" in attrs]
    assert entries == ["entry ours", "entry published"]
    assert "12.5 % ± 0.25" in seen.text and "1,234" in seen.text


def test_what_was_not_measured_has_no_value_to_sort_by():
    seen = Seen(leaderboard_file(Leaderboard((OURS,))))
    values = [attrs["data-value"] for _, attrs in seen.opened if "data-value" in attrs]
    assert len(values) == 10, "a value in every column"
    assert values[0] == OURS.task and "12.5" in values
    assert values[-1] == "", "an empty value, not zero"


def test_a_file_of_nothing_says_how_to_begin():
    assert "forerun leaderboard --fresh" in leaderboard_file(Leaderboard())


def test_the_page_loads_the_tasks_of_a_dataset_on_demand(results, client):
    page = client.get("/leaderboard").text
    assert OURS.command not in page
    assert 'hx-get="/leaderboard/toy"' in page
    part = client.get("/leaderboard/toy", headers={"HX-Request": "true"}).text
    assert OURS.command in part and "<html" not in part
    whole = client.get("/leaderboard/toy").text
    assert OURS.command in whole and "<html" in whole
    assert ODD.predictor not in whole, "it is escaped"


def test_the_page_says_who_is_behind_as_it_says_who_is_ahead(results, client):
    better = replace(OURS, predictor="simple", kind="baseline", value=6.25, standard_error=None)
    results.keep(EvaluationRun("toy", "unseen_device", "b", 0, 3, "d" * 64, "", None), [better])
    seen = Seen(client.get("/leaderboard").text)
    (line,) = seen.text.split("toy")[1:2]
    assert "unseen_device/x, t4, latency_ms" in line
    assert "behind" in line and "100 % more error" in line and "1 behind" in line


def test_a_dataset_without_results_has_no_page(results, client):
    answer = client.get("/leaderboard/abacus")
    assert answer.status_code == 404
    assert "abacus" in answer.text and "<html" in answer.text


def test_the_endpoint_gives_stored_entries_and_runs_nothing(results, settings, client, monkeypatch):
    monkeypatch.setattr(leaderboard_runs, "run", lambda *_: pytest.fail("it ran"))
    assert settings.home / "leaderboard" == results.folder
    mine, theirs = content_of(client.get("/v1/leaderboard", params={"dataset": "toy"}))["entries"]
    assert Entry.from_json(mine) == OURS
    assert Entry.from_json(theirs) == ODD
    assert client.get("/v1/leaderboard", params={"dataset": "none"}).json() == {"entries": []}


def test_the_endpoint_gives_the_shipped_scores_of_a_fresh_install(client):
    if not shipped():
        pytest.skip("no bundled predictors in models/pretrained: `forerun train` makes them")
    entries = client.get("/v1/leaderboard", params={"dataset": "neusight"}).json()["entries"]
    citations = {entry["citation"] for entry in entries}
    assert {figure.citation for figure in published_for("neusight")} <= citations
    assert {entry["dataset"] for entry in entries} == {"neusight"}


def test_the_verb_prints_what_is_stored_without_running(results, monkeypatch):
    monkeypatch.setattr(leaderboard_runs, "run", lambda *_: pytest.fail("it ran"))
    done = call("--dataset", "toy")
    assert done.exit_code == 0, done.output
    assert "12.5 % ± 0.25" in done.stdout and OURS.command in done.stdout
    assert ODD.predictor in done.stdout
    answer = json.loads(call("--dataset", "toy", "--json").stdout)
    assert Leaderboard.from_json(answer).entries == (OURS, ODD)


def test_the_verb_writes_a_page_with_every_citation(results, tmp_path):
    file = tmp_path / "new" / "board.html"
    done = call("--html", str(file), "--json")
    assert done.exit_code == 0, done.output
    text = Seen(file.read_text()).text
    entries = Leaderboard.from_json(json.loads(done.stdout)).entries
    assert not [part for part in said(entries) if part not in text]


def test_the_verb_draws_curves_where_shots_differ(results, tmp_path):
    more = replace(OURS, shots=10, value=5.0)
    results.keep(EvaluationRun("toy", "unseen_device", "mine", 10, 3, "d" * 64, "", None), [more])
    done = call("--dataset", "toy", "--curves", str(tmp_path / "curves"))
    assert done.exit_code == 0, done.output
    assert [p.suffix for p in (tmp_path / "curves").iterdir()] == [".png"]


def test_a_fresh_run_is_planned_as_requested_and_printed(results, monkeypatch):
    plans = []
    monkeypatch.setattr(leaderboard_runs, "run", lambda plan, *_: plans.append(plan))
    words = ["--shots", "0,5", "--seeds", "2", "--predictor", "mine", "--no-track"]
    done = call("--fresh", "--dataset", "toy", *words)
    assert done.exit_code == 0, done.output
    (plan,) = plans
    assert (plan.datasets, plan.predictors) == (("toy",), ("mine",))
    assert (plan.shots, plan.seeds) == ((0, 5), 2)
    assert "12.5 %" in done.stdout


def test_a_fresh_run_is_logged_unless_it_is_asked_not_to_be(results, monkeypatch):
    logged = []
    monkeypatch.setattr(leaderboard_runs, "run", lambda *_: [])
    track = lambda board, files, name: logged.append((files, name)) or "1"  # noqa: E731
    monkeypatch.setattr(leaderboard_runs, "track", track)
    for words in (["--fresh", "--no-track"], []):
        assert call("--dataset", "toy", *words).exit_code == 0
    assert not logged
    assert call("--dataset", "toy", "--fresh").exit_code == 0
    (((file,), name),) = logged
    assert file.name == "leaderboard.html"
    assert name == "leaderboard of toy"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--shots", "a few"], "0,5,10,20"),
        (["--shots", "-1"], "0,5,10,20"),
        (["--dataset", "abacus"], "No result of dataset 'abacus'"),
        (["--predictor", "oracle"], "No result of predictor 'oracle'"),
        (["--protocol", "none"], "No result of protocol 'none'"),
        (["--fresh", "--dataset", "abacus"], "No dataset named 'abacus'"),
    ],
)
def test_wrong_input_says_what_is_wrong(results, words, said):
    done = call(*words)
    assert said in str(done.exception)
    assert done.stdout == ""
