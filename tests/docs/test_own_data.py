"""Every command of docs/own-data.md runs, on tables like those that it shows."""

import re
import shlex

import pytest

from forerun.models.artifact.sealed_folder import seal
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.cli import app
from tests.house.sources import REPOSITORY
from tests.service.own_tables.tables import networks_table, settings_table

TEXT = (REPOSITORY / "docs" / "own-data.md").read_text(encoding="utf-8")


def blocks(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, re.DOTALL)


def test_the_tables_of_the_page_are_those_that_its_commands_are_tried_on(tmp_path):
    files = [settings_table(tmp_path), networks_table(tmp_path, networks=1)]
    for shown, file in zip(blocks("csv"), files, strict=True):
        header, *rows = shown.splitlines()
        lines = file.read_text().splitlines()
        assert header == lines[0]
        for row in rows:
            columns = row.count(",")
            assert any(line.rpartition(",")[0].count(",") == columns - 1 for line in lines)


@pytest.mark.slow
def test_the_commands_run_in_their_order(if_changed, tmp_path, monkeypatch):
    if_changed("docs/own-data.md", "tests/docs/")
    Router((Roofline(),)).save(tmp_path / "in_use")
    seal(tmp_path / "in_use", "2000-01-01")
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FORERUN_PREDICTOR_FOLDER", str(tmp_path / "in_use"))
    monkeypatch.chdir(tmp_path)
    settings_table(tmp_path, gpus={"L4": 1.0, "T4": 2.0})
    networks_table(tmp_path, networks=1)
    commands = [line for block in blocks("sh") for line in block.splitlines()]
    assert len(commands) == 9
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "forerun"
        app(words, standalone_mode=False)


def test_every_name_of_a_protocol_or_flag_on_the_page_is_known():
    from forerun.data.quality import FLAGS

    flags = " ".join(TEXT.split()).split("which weigh less in training:")[1].split("They are")[0]
    assert set(re.findall(r"`(\w+)`", flags)) <= set(FLAGS)
