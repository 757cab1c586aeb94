"""Versions can be registered, promoted, rolled back and fetched; fetched files are checked."""

import json
import shutil
import subprocess
import sys

import pytest

from forerun.data.errors import BadArtifact, UnknownModelVersion
from forerun.models.artifact.sealed_folder import check, seal
from forerun.service.cli import app
from forerun.training.release.registry import (
    MODEL,
    candidate,
    champion,
    main,
    promote,
    register,
    rollback,
    try_out,
    withdraw,
)
from forerun.training.tracking.runs import connect, tracked

pytestmark = pytest.mark.slow


@pytest.fixture
def versions(store, tmp_path):
    """Three registered versions: their numbers and hashes."""
    found = {}
    for text in ("one", "two", "three"):
        folder = tmp_path / text
        (folder / "latency").mkdir(parents=True)
        (folder / "predictor.json").write_text(json.dumps({"text": text}))
        (folder / "latency" / "trees.txt").write_text(text)
        (folder / "card.md").write_text(f"# {text}\n")
        version = seal(folder, "2000-01-01").version
        with tracked(text) as run:
            found[register(run, folder)] = version
    return found


def forged(store):
    """Forget what was fetched and change a stored file of version 3."""
    shutil.rmtree(store / "registry")
    (stored,) = (p for p in (store / "mlartifacts").rglob("trees.txt") if p.read_text() == "three")
    stored.write_text("forged")
    return stored


def test_registering_moves_no_alias_and_describes_the_version(versions):
    assert sorted(versions) == [1, 2, 3]
    assert champion() is None
    two = connect().get_model_version(MODEL, "2")
    assert two.description == "# two\n"
    assert two.tags["predictor.version"] == versions[2]


def test_the_champion_is_fetched_whole_and_named_by_its_hash(versions, store):
    promote(2)
    folder = champion()
    assert folder == store / "registry" / versions[2]
    assert check(folder).version == versions[2]
    assert (folder / "latency" / "trees.txt").read_text() == "two"
    assert [p.name for p in (store / "registry").iterdir()] == [versions[2]], "nothing left over"


def test_a_cached_champion_is_not_fetched_again(versions, store):
    promote(1)
    before = (champion() / "predictor.json").stat().st_mtime_ns
    assert (champion() / "predictor.json").stat().st_mtime_ns == before


def test_a_damaged_copy_is_fetched_again(versions):
    promote(1)
    (champion() / "predictor.json").write_text("{}")
    assert json.loads((champion() / "predictor.json").read_text()) == {"text": "one"}


def test_rollback_walks_back_through_earlier_champions(versions):
    for version in (1, 3, 2):
        promote(version)
    promote(2)
    assert rollback() == 3
    assert champion().name == versions[3]
    assert rollback() == 1
    assert rollback() is None
    assert champion() is None, "the bundled predictors answered before the first champion"
    with pytest.raises(UnknownModelVersion):
        rollback()
    promote(2)
    assert champion().name == versions[2]
    assert rollback() is None


def test_promotion_after_a_rollback_goes_on_from_there(versions):
    promote(1)
    promote(2)
    rollback()
    promote(3)
    assert rollback() == 1


def test_an_unknown_version_cannot_be_promoted(versions):
    with pytest.raises(UnknownModelVersion, match="no version 9; it holds 1, 2, 3"):
        promote(9)


def test_without_a_registry_or_a_champion_there_is_none(store, tmp_path, monkeypatch):
    assert champion() is None, "an empty registry"
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "fresh"))
    assert champion() is None, "no registry"
    assert not (tmp_path / "fresh").exists(), "asking makes nothing"
    with pytest.raises(UnknownModelVersion):
        rollback(f"sqlite:///{store}/mlflow.db")


def test_an_artifact_changed_after_registration_is_refused(versions, store):
    promote(3)
    forged(store)
    with pytest.raises(BadArtifact):
        champion()
    assert list((store / "registry").iterdir()) == []


def test_another_predictor_in_place_of_the_registered_one_is_refused(versions, store):
    promote(3)
    seal(forged(store).parent.parent, "2000-01-01")
    with pytest.raises(BadArtifact, match=f"{versions[3]} was registered"):
        champion()


@pytest.mark.parametrize("name", ["../../elsewhere", "", "/etc"])
def test_a_forged_hash_names_no_folder(versions, name):
    promote(1)
    connect().set_model_version_tag(MODEL, "1", "predictor.version", name)
    with pytest.raises(BadArtifact, match="not registered by forerun"):
        champion()


def test_fetch_prints_one_json_object(versions, store, capsys):
    assert main(["fetch"]) == 0
    nothing = {"path": None, "candidate": None, "problem": None}
    assert json.loads(capsys.readouterr().out) == nothing
    promote(2)
    try_out(3)
    assert main(["fetch", "--uri", f"sqlite:///{store}/mlflow.db"]) == 0
    names = {"path": versions[2], "candidate": versions[3]}
    paths = {name: str(store / "registry" / own) for name, own in names.items()}
    assert json.loads(capsys.readouterr().out) == {**paths, "problem": None}


def test_a_damaged_candidate_is_named_and_the_champion_is_still_fetched(versions, store, capsys):
    promote(2)
    try_out(3)
    forged(store)
    assert main(["fetch"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["path"] == str(store / "registry" / versions[2])
    assert found["candidate"] is None
    assert "trees.txt" in found["problem"]


def test_a_trial_leaves_the_champion_and_ends_by_promotion_or_withdrawal(versions):
    promote(1)
    try_out(2)
    assert (champion().name, candidate().name) == (versions[1], versions[2])
    promote(2, reason="fewer files are no loss here")
    assert (champion().name, candidate()) == (versions[2], None)
    try_out(3)
    promote(1)
    assert candidate().name == versions[3], "the trial goes on with another champion"
    withdraw()
    assert candidate() is None
    with pytest.raises(UnknownModelVersion, match="no version on trial"):
        withdraw()
    with pytest.raises(UnknownModelVersion, match="no version 9"):
        try_out(9)


def test_mlflow_shows_when_a_trial_began_and_how_it_ended(versions):
    def trial_of(number):
        return json.loads(connect().get_model_version(MODEL, number).tags["trial"])

    promote(1)
    try_out(2)
    assert [*trial_of("2")] == ["began"]
    try_out(3)
    assert trial_of("2")["how"] == "replaced"
    assert trial_of("2")["began"] <= trial_of("2")["ended"]
    began = trial_of("3")["began"]
    try_out(3)
    assert trial_of("3") == {"began": began}
    promote(3, reason="fewer files are no loss here")
    assert trial_of("3")["how"] == "promoted"
    try_out(2)
    withdraw()
    assert trial_of("2")["how"] == "withdrawn"


def test_fetch_runs_as_a_separate_process(versions, store):
    promote(1)
    done = subprocess.run(
        [sys.executable, "-m", "forerun.training.release.registry", "fetch"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["path"] == str(store / "registry" / versions[1])


def test_input_errors_are_one_line_with_exit_code_2(versions, store, capsys):
    promote(3)
    forged(store)
    assert main(["fetch"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert len(printed.err.splitlines()) == 1


@pytest.mark.parametrize("words", [("7",), ("--rollback",)])
def test_a_call_that_cannot_succeed_creates_no_registry(tmp_path, monkeypatch, words):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    monkeypatch.delenv("FORERUN_TRACKING_URI", raising=False)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(UnknownModelVersion, match="`forerun train` registers one"):
        app(["promote", *words], standalone_mode=False)
    assert not list(tmp_path.iterdir())
