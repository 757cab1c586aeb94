"""The unit of `deploy/systemd` is one that systemd takes, and names what exists."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from forerun.service.cli import app
from forerun.service.settings import Settings

UNIT = Path(__file__).parents[2] / "deploy/systemd/forerun.service"
SLURM = Path(__file__).parents[2] / "deploy/slurm/job_submit.lua"
PROGRAM = "/opt/forerun/bin/forerun"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze")
def test_systemd_takes_it(tmp_path):
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace(PROGRAM, str(shutil.which("true"))))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_its_settings_and_options_exist():
    text = UNIT.read_text()
    named = set(re.findall(r"\b(FORERUN_\w+)=", text))
    assert named
    assert named <= {f"FORERUN_{name.upper()}" for name in Settings.model_fields}
    options = set(re.findall(r"--[\w-]+", re.search(r"ExecStart=(.*)", text)[1]))
    shown = CliRunner().invoke(app, ["serve", "--help"], env={"COLUMNS": "200"}).output
    assert options == {"--workers", "--unix-socket"}
    assert all(option in shown for option in options)


def test_the_plugin_of_slurm_asks_where_it_listens():
    (path,) = re.findall(r"--unix-socket (\S+)", UNIT.read_text())
    assert f'socket = "{path}"' in SLURM.read_text()
