"""Commands in the README do what it says: those that ask about `model.onnx` are run."""

import re
import shlex
import shutil
import sys
from pathlib import Path

import onnx
import pytest

from forerun.service import cli
from tests.house.sources import REPOSITORY

BLOCKS = re.findall(r"```sh\n(.*?)```", (REPOSITORY / "README.md").read_text(), re.DOTALL)
LINES = [line for block in BLOCKS for line in block.replace("\\\n", " ").splitlines()]
# Questions about `my-cpu` need a collection on this machine first.
ASKED = [
    line
    for line in LINES
    if re.match(r"forerun (predict|rank|sweep) model\.onnx(?!.*my-cpu)", line)
]
MODEL = Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"


def test_there_are_commands_of_each_kind():
    assert {line.split()[1] for line in ASKED} == {"predict", "rank", "sweep"}


@pytest.mark.parametrize("line", ASKED)
def test_a_command_runs(line, tmp_path, monkeypatch, capsys):
    shutil.copy(MODEL, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FORERUN_PREDICTOR_FOLDER", raising=False)
    monkeypatch.delenv("FORERUN_REGISTRY_URI", raising=False)
    monkeypatch.setattr(sys, "argv", shlex.split(line, comments=True))
    with pytest.raises(SystemExit) as left:
        cli.main()
    shown = capsys.readouterr()
    assert not left.value.code, shown.err
    assert shown.out
    if "--picture" in line:
        assert (tmp_path / "sweep.svg").read_text().startswith("<svg")
