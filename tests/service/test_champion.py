"""The registry has a time limit, and what it said last is kept for the next start."""

import json
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from forerun.models.artifact.sealed_folder import bundled, seal
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.champion import FILE, FOLDER, Champion, ask, keep, kept
from forerun.service.loading import load_at_once, load_predictors
from forerun.service.settings import Settings
from tests.coroutines import run

URI = "http://127.0.0.1:1"


@pytest.fixture
def settings(tmp_path) -> Settings:
    return Settings(home=tmp_path, registry_uri=URI, registry_timeout_seconds=30)


@pytest.fixture
def registry(tmp_path, monkeypatch):
    """Replaces the process that asks the registry by a shell script."""

    def made(script: str) -> None:
        program = tmp_path / "python"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setattr(sys, "executable", str(program))

    return made


def said(version: str | None, uri: str = URI) -> Champion:
    return Champion(uri=uri, version=version, asked=datetime.now(UTC))


def sealed(settings: Settings) -> str:
    """The version of a sealed predictor in the folder of fetched champions."""
    draft = settings.home / FOLDER / "draft"
    draft.mkdir(parents=True)
    Router((Roofline(),)).save(draft)
    version = seal(draft, "2026-01-01").version
    draft.rename(draft.with_name(version))
    return version


def test_a_registry_that_never_answers_is_given_up_and_its_process_ended(
    settings, registry, tmp_path
):
    registry(f"echo $$ > {tmp_path}/pid; exec sleep 1000")
    champion = run(ask(settings.model_copy(update={"registry_timeout_seconds": 0.5})))
    assert champion.version is None
    assert "did not answer within 0.5 s" in str(champion.problem)
    pid = int((tmp_path / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists()


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("echo the registry is closed >&2; exit 2", "the registry is closed"),
        ("echo not JSON", "Expecting value"),
        ("true", "list index"),
        ("echo '{}'", "path"),
    ],
)
def test_a_registry_that_fails_leaves_the_champion_before(settings, registry, script, problem):
    keep(said("0123456789ab"), settings)
    registry(script)
    champion = run(ask(settings))
    assert champion.version == "0123456789ab"
    assert problem in str(champion.problem)


def test_a_champion_and_the_lack_of_one_are_told_apart(settings, registry):
    keep(said("0123456789ab"), settings)
    registry('echo a library prints; echo \'{"path": "registry/ba9876543210"}\'')
    assert run(ask(settings)).version == "ba9876543210"
    registry("echo '{\"path\": null}'")
    champion = run(ask(settings))
    assert (champion.version, champion.problem) == (None, None)


def test_what_is_kept_belongs_to_one_registry_and_damage_is_no_answer(settings):
    assert kept(settings) is None
    champion = said("0123456789ab")
    assert keep(champion, settings)
    assert kept(settings) == champion
    assert kept(settings.model_copy(update={"registry_uri": "http://other.example"})) is None
    (settings.home / FOLDER / FILE).write_text("{")
    assert kept(settings) is None


def test_a_registry_is_asked_again_only_after_a_change_or_for_what_is_not_here(
    settings, registry, tmp_path
):
    database = tmp_path / "mlflow.db"
    database.write_text("one")
    settings = settings.model_copy(update={"registry_uri": f"sqlite:///{database}"})
    version = sealed(settings)
    folder = settings.home / FOLDER / version
    registry(f'echo asked >> {tmp_path}/asked; echo \'{{"path": "{folder}"}}\'')

    def times_asked() -> int:
        champion = run(ask(settings))
        assert (champion.version, champion.problem) == (version, None)
        keep(champion, settings)
        return (tmp_path / "asked").read_text().count("asked")

    assert [times_asked() for _ in range(3)] == [1, 1, 1]
    database.write_text("another")
    assert [times_asked() for _ in range(2)] == [2, 2]
    next(folder.rglob("predictor.json")).write_text("{}")
    assert times_asked() == 3, "it would be fetched again"


def test_a_problem_is_asked_about_again_though_nothing_changed(settings, registry, tmp_path):
    database = tmp_path / "mlflow.db"
    database.write_text("one")
    settings = settings.model_copy(update={"registry_uri": f"sqlite:///{database}"})
    registry("echo '{\"path\": null}'")
    keep(run(ask(settings)), settings)
    keep(kept(settings).model_copy(update={"problem": "it is damaged"}), settings)
    assert run(ask(settings)).problem is None


def test_a_home_that_takes_no_file_is_no_fault(settings, tmp_path):
    (tmp_path / "file").touch()
    assert not keep(said(None), settings.model_copy(update={"home": tmp_path / "file"}))


def test_the_champion_fetched_last_is_loaded_without_asking(settings, registry):
    registry("exec sleep 1000")
    version = sealed(settings)
    keep(said(version), settings)
    assert load_at_once(settings).version == version


def test_the_bundled_predictor_answers_before_the_first_champion_and_for_a_damaged_one(settings):
    ours = bundled().version
    assert load_at_once(settings).version == ours
    version = sealed(settings)
    keep(said(version), settings)
    file = next(path for path in (settings.home / FOLDER / version).rglob("*.json"))
    file.write_text(json.dumps({}))
    assert load_at_once(settings).version == ours


def test_a_command_asks_first(settings, registry):
    version = sealed(settings)
    registry(f'echo \'{{"path": "{settings.home / FOLDER / version}"}}\'')
    assert load_predictors(settings).version == version
    kept_now = kept(settings)
    assert kept_now is not None and kept_now.version == version
    registry("exit 2")
    assert load_predictors(settings).version == version
