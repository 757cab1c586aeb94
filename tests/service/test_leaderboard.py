"""The leaderboard for people and programs: page, endpoint and command line show what is stored."""

import json
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from forerun.service import cli
from forerun.service.http.leaderboard_page import page
from forerun.training.leaderboard import runs as leaderboard_runs
from forerun.training.leaderboard.entries import Entry, Leaderboard
from forerun.training.leaderboard.store import EvaluationRun, ResultStore, shipped
from forerun.training.published.figures import published_for

OURS = Entry(
    dataset="toy",
    task="unseen_device/x",
    metric="latency_ms",
    predictor="mine",
    kind="ours",
    score="mape",
    value=12.5,
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


def call(*words):
    """The verb in this process, so that what it must not run can be watched."""
    return CliRunner().invoke(cli.app, ["leaderboard", *words])


class Seen(HTMLParser):
    """Tags, outside addresses and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.opened, self.addresses, self.text = [], [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.opened.append((tag, dict(attrs)))
        self.addresses += [value for name, value in attrs if name in ("src", "href")]

    def handle_data(self, data):
        self.text += data


def test_the_page_escapes_every_name_and_needs_nothing_from_outside():
    seen = Seen(page(Leaderboard((OURS, ODD))))
    assert [tag for tag, _ in seen.opened].count("script") == 1
    assert not [tag for tag, _ in seen.opened if tag in ("b", "i", "link", "img", "iframe")]
    assert ODD.predictor in seen.text and ODD.citation in seen.text and ODD.over in seen.text
    assert seen.addresses == ["#toy"]


def test_every_row_of_the_page_has_its_command_or_its_citation():
    seen = Seen(page(Leaderboard((OURS, ODD))))
    assert OURS.command in seen.text
    kinds = [attrs.get("class") for tag, attrs in seen.opened if tag == "tr"]
    assert kinds.count("how") == kinds.count("entry ours") + kinds.count("entry published") == 2
    assert "12.5 % ± 0.25" in seen.text and "1,234" in seen.text


def test_the_page_can_be_read_on_a_phone_and_in_the_dark_and_sorted():
    text = page(Leaderboard((OURS,)))
    seen = Seen(text)
    assert ("meta", "viewport") in [(tag, attrs.get("name")) for tag, attrs in seen.opened]
    assert "prefers-color-scheme:dark" in text and "max-width:40rem" in text
    heads = [tag for tag, _ in seen.opened if tag == "button"]
    values = [attrs["data-value"] for tag, attrs in seen.opened if "data-value" in attrs]
    assert len(heads) == len(values) == 10, "a value to sort by in every column"
    assert values[:3] == ["1", "mine", "12.5"]
    assert "" in values, "what was not measured has no value, not zero"


def test_a_page_of_nothing_says_how_to_begin():
    assert "forerun leaderboard --fresh" in page(Leaderboard())


def test_the_endpoint_gives_stored_entries_and_runs_nothing(results, settings, client, monkeypatch):
    monkeypatch.setattr(leaderboard_runs, "run", lambda *_: pytest.fail("it ran"))
    assert settings.home / "leaderboard" == results.folder
    answer = client.get("/v1/leaderboard", params={"dataset": "toy"})
    assert answer.status_code == 200
    mine, theirs = answer.json()["entries"]
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
    for entry in Leaderboard.from_json(json.loads(done.stdout)).entries:
        assert (entry.citation or "") in text
        assert (entry.command or "") in text


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
    assert (plan.datasets, plan.predictors, plan.shots, plan.seeds) == (
        ("toy",),
        ("mine",),
        (0, 5),
        2,
    )
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
