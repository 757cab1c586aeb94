"""Commands and Python of README and docs: what is marked `run` is run, all else is understood.

The blocks of a page run in their order in one scratch folder, in which `model.onnx` is a network
of the onnx package. Commands of forerun run in this process, blocks with anything else in bash;
where a block asks port 8080, a service answers in its place.
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import typer

from forerun.service import cli
from forerun.service.http.app import create_app
from tests.docs.documents import ALL, Block
from tests.every import for_every
from tests.house.sources import REPOSITORY
from tests.service.real_server import real_server

MODEL = Path(onnx.__file__).parent / "backend/test/data/light/light_resnet50.onnx"
ADDRESS = "http://127.0.0.1:8080"
PROGRAMS = {
    "apt-get",
    "cp",
    "curl",
    "export",
    "git",
    "kubectl",
    "pip",
    "podman",
    "python",
    "sbatch",
    "serve",
    "source",
    "yosys",
}
RUN = {
    b.page: [other for other in ALL if other.page == b.page and other.runs] for b in ALL if b.runs
}
FORERUN = [
    words for b in ALL if b.language == "sh" for words in b.commands if words[0] == "forerun"
]


@pytest.fixture
def page(request, if_changed):
    """A page with blocks that run, if it changed; the tests of this module run all of them."""
    if_changed(request.param, "tests/docs/")
    return request.param


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """An environment and the address of a service for all pages."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("FORERUN_")}
    clean["FORERUN_CHECK_SHAPES"] = ""
    clean["PATH"] = f"{Path(sys.executable).parent}:{clean['PATH']}"
    environment = {name: clean[name] for name in ("FORERUN_CHECK_SHAPES", "PATH")}
    with real_server(tmp_path_factory.mktemp("home"), environment=environment) as server:
        yield clean, server.url


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, indirect=True)
def test_blocks_run(page, scratch, tmp_path, monkeypatch, capsys):
    environment, address = scratch
    shutil.copy(MODEL, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    for name in ("FORERUN_PREDICTOR_FOLDER", "FORERUN_REGISTRY_URI"):
        monkeypatch.delenv(name, raising=False)
    names: dict[str, object] = {}
    for block in RUN[page]:
        if block.language == "python":
            exec(compile(block.code, block.page, "exec"), names)
        elif all(words[0] == "forerun" and ">" not in words for words in block.commands):
            for words in block.commands:
                in_process(words, monkeypatch, capsys)
        else:
            in_bash(block, environment | {"FORERUN_HOME": str(tmp_path / "home")}, address)


def in_process(words, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as left:
        cli.main()
    shown = capsys.readouterr()
    assert not left.value.code, f"{shlex.join(words)}: {shown.err}"
    assert shown.out, shlex.join(words)


def in_bash(block: Block, environment, address):
    code = block.code.replace(ADDRESS, address).replace(
        "curl ", "curl --fail-with-body -sS --retry 60 --retry-delay 1 "
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], env=environment, capture_output=True, text=True
    )
    assert not done.returncode, f"{block.code}\n{done.stdout}{done.stderr}"


@for_every("words", FORERUN)
def test_a_command_of_forerun_has_options_that_there_are(words):
    command = typer.main.get_command(cli.app)
    words = words[1 : words.index(">")] if ">" in words else words[1:]
    with command.make_context("forerun", [], resilient_parsing=True) as context:
        while hasattr(command, "commands"):
            name, command, words = command.resolve_command(context, words)
            if hasattr(command, "commands") and not (words and words[0] in command.commands):
                return  # a group that answers by itself, such as `forerun devices l4`
        command.make_context(name, list(words), parent=context)


def others():
    for block in ALL:
        for words in block.commands if block.language == "sh" else ():
            if re.match(r"\w+=\$\(", words[0]):
                continue  # the output of a command that runs
            while re.match(r"\w+=", words[0]):
                words = words[1:]
            if words[0] != "forerun":
                yield words


def test_other_commands_name_what_there_is():
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for words in others():
        program = words[0]
        if program == "make":
            assert words[1] in targets, words
        elif program.startswith("scripts/"):
            assert os.access(REPOSITORY / program, os.X_OK), words
        elif program == "python" and words[1] == "-m":
            assert importlib.util.find_spec(words[2]), words
        else:
            assert program in PROGRAMS, words


def test_every_address_that_is_asked_is_answered():
    paths = set(create_app().openapi()["paths"]) | {"/", "/leaderboard"}
    asked = {p for b in ALL for p in re.findall(re.escape(ADDRESS) + r"(/[\w/:.-]*)", b.code)}
    assert asked
    for path in asked:
        pattern = re.compile(
            r"^(?:" + "|".join(re.sub(r"\{\w+\}", "[^/]+", p) for p in paths) + ")$"
        )
        assert pattern.match(path), path
