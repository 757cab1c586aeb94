"""From a CSV to a row of the leaderboard in four commands, and entries that others bring."""

import json
import re
import shutil

import pandas as pd
import pytest
import yaml

from forerun.data.bundle import Bundle
from tests.service.own_tables.tables import networks_table, settings_table

HELD_OUT = ("--protocol", "unseen_device")


@pytest.fixture
def mine(forerun, tmp_path):
    """The imported table `mine`, of plain columns."""
    file = settings_table(tmp_path)
    forerun.ok("data", "import", file, "--name", "mine", "--rest", "setting")
    return Bundle.open(tmp_path / "home" / "bundles" / "mine")


@pytest.mark.slow
def test_four_commands_lead_from_a_csv_to_the_leaderboard(forerun, tmp_path):
    file, artifact = networks_table(tmp_path), tmp_path / "artifact"
    commands = (
        ("data", "import", file, "--name", "mine"),
        (*("train", "--table", "mine", "--alone", "--no-track"), *HELD_OUT, "--output", artifact),
        ("evaluate", "mine"),
        ("leaderboard", "--dataset", "mine", "--json"),
    )
    for words in commands:
        out = forerun.ok(*words)
    entries = json.loads(out)["entries"]
    ours = {e["task"]: e for e in entries if e["kind"] == "ours"}
    protocols = ("random_groups", "unseen_device", "unseen_model")
    assert set(ours) == {f"{protocol}/latency_ms" for protocol in protocols}
    rules = {e["predictor"] for e in entries if e["kind"] == "baseline"}
    assert rules == {"roofline", "median", "device_offset", "constant"}
    row = ours["unseen_model/latency_ms"]
    assert row["command"] == "forerun evaluate mine --protocol unseen_model --predictor table_boost"
    assert row["commit"]
    assert row["environment"]["python"]
    assert row["n"] == 16
    assert row["mape"] < 50
    scores = json.loads((artifact / "scores.json").read_text())
    assert [evaluation["dataset"] for evaluation in scores] == ["mine"]


def test_columns_whose_names_do_not_say_what_they_hold_are_listed(forerun, tmp_path):
    code, _, err = forerun("data", "import", settings_table(tmp_path), "--name", "mine")
    assert code == 2
    assert "2 columns do not say what they hold: channels, kernel" in err
    assert "--map 'channels=" in err and "--rest setting" in err


def test_a_terminal_is_asked_for_them(forerun, tmp_path, monkeypatch):
    answers = {"channels": "setting", "kernel": ""}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("forerun.service.cli.data._ask", lambda name, examples: answers[name])
    out = forerun.ok("data", "import", settings_table(tmp_path), "--name", "mine")
    assert "channels: setting" in out
    assert "kernel: ignored" in out


def test_an_imported_table_is_listed_and_described(forerun, mine):
    assert "mine (here" in forerun("data", "list")[1]
    out = forerun("data", "describe", "mine")[1]
    assert "| time_us | latency_ms, times 0.001 |" in out
    assert "device: 3 (a30, l4, t4)" in out
    assert mine.table("runs")["peak_memory_mib"].min() == pytest.approx(1024 * 0.516)


@pytest.fixture
def entry(forerun, mine, tmp_path):
    """An entry of `table_boost` under `unseen_device`, of two metrics."""
    folder = tmp_path / "entry"
    words = ("evaluate", "mine", "--protocol", "unseen_device", "--entry", folder)
    forerun.ok(*words)
    return folder


@pytest.mark.slow
def test_an_entry_of_another_system_is_verified_added_and_ranked(forerun, entry):
    claim(entry, system="theirs", citation="A paper", error=0.5)
    out = forerun.ok("leaderboard", "verify", entry)
    assert "unseen_device/latency_ms latency_ms: mape 0.5 % of 54 rows" in out
    assert "theirs" not in forerun("leaderboard", "--dataset", "mine")[1], "verifying adds nothing"
    assert forerun("leaderboard", "add", entry)[0] == 0
    board = json.loads(forerun("leaderboard", "--dataset", "mine", "--json")[1])["entries"]
    (theirs,) = (e for e in board if e["predictor"] == "theirs" and e["metric"] == "latency_ms")
    assert (theirs["rank"], theirs["kind"], theirs["citation"]) == (1, "published", "A paper")
    assert theirs["environment"] == {"theirs": "1.0"}
    assert theirs["command"] == "make theirs"
    assert {"table_boost", "device_offset"} <= {e["predictor"] for e in board}, "others remain"


def claim(entry, system, citation, error):
    """Change an entry into one of another system whose predictions are off by `error` percent."""
    table = pd.read_csv(entry / "predictions.csv", keep_default_na=False, na_values=["nan"])
    table["predicted"] = table["measured"] * (1 + error / 100)
    table.drop(columns=["low", "high"]).to_csv(entry / "predictions.csv", index=False)
    facts = yaml.safe_load((entry / "entry.yaml").read_text())
    facts |= {"system": system, "citation": citation, "command": "make theirs", "commit": "abc"}
    facts["environment"] = {"theirs": "1.0"}
    for score in facts["scores"]:
        score["value"] = error
    (entry / "entry.yaml").write_text(yaml.safe_dump(facts))


def _facts(entry, **changes):
    facts = yaml.safe_load((entry / "entry.yaml").read_text()) | changes
    (entry / "entry.yaml").write_text(yaml.safe_dump(facts))


def _rows(entry, change):
    table = pd.read_csv(entry / "predictions.csv")
    change(table).to_csv(entry / "predictions.csv", index=False)


def _better(entry):
    facts = yaml.safe_load((entry / "entry.yaml").read_text())
    facts["scores"][0]["value"] *= 0.9
    _facts(entry, scores=facts["scores"])


DAMAGES = {
    "has no entry.yaml": lambda e: (e / "entry.yaml").unlink(),
    "needs one of predictions.csv": lambda e: (e / "predictions.csv").unlink(),
    "digest 000000000000": lambda e: _facts(e, digest="0" * 64),
    "command: .*at least 1": lambda e: _facts(e, command=""),
    "colour: Extra inputs": lambda e: _facts(e, colour="red"),
    "no protocol 'other'": lambda e: _facts(e, protocols=["unseen_device", "other"]),
    "1 held-out rows are missing, the first is 7": lambda e: _rows(e, lambda t: t.drop(index=7)),
    "row 3 has no prediction": lambda e: _rows(e, lambda t: _set(t, 3, "predicted", None)),
    "row 3 is not the held-out row": lambda e: _rows(e, lambda t: _set(t, 3, "measured", 1e6)),
    "row 5 is there twice": lambda e: _rows(e, lambda t: pd.concat([t, t.iloc[[5]]])),
    "has 55 rows; 54 are held out": lambda e: _rows(
        e, lambda t: pd.concat([t, t.iloc[[5]].assign(row=54)])
    ),
    "lacks predicted": lambda e: _rows(e, lambda t: t.drop(columns="predicted")),
    "the predictions give": _better,
    "claims no score of unseen_device/peak": lambda e: _facts(
        e, scores=yaml.safe_load((e / "entry.yaml").read_text())["scores"][:1]
    ),
}


def _set(table, row, column, value):
    table.loc[row, column] = value
    return table


@pytest.mark.slow
def test_an_entry_that_is_not_what_it_claims_is_refused_with_the_reason(forerun, entry, tmp_path):
    assert forerun("leaderboard", "verify", entry)[0] == 0
    for said, damage in DAMAGES.items():
        broken = tmp_path / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(entry, broken)
        damage(broken)
        code, _, err = forerun("leaderboard", "add", broken)
        assert code == 2, said
        assert re.search(said, err), f"{said!r} is not in {err!r}"
