"""`scripts/install` takes torch and torchvision from one place, and says if they do not match."""

import shutil
import subprocess
import sys

import pytest

from tests.house.sources import REPOSITORY

RECORDS = """#!/usr/bin/env bash
printf '%s\\n' "$*" >> "{log}"
case "$*" in
*--index-url*) exit {index} ;;
*"import torchvision"*) exit {imported} ;;
esac
"""


@pytest.fixture
def install(tmp_path):
    """Runs the script with a Python that records what it is asked; returns that and the errors."""
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    shutil.copy(REPOSITORY / "scripts" / "install", tmp_path / "scripts")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "dirname", "touch", "env"):
        (tools / name).symlink_to(shutil.which(name))
    (tools / "python3").symlink_to(sys.executable)  # a version manager's shim needs more than this
    log = tmp_path / "asked.txt"

    def run(extra, *, index=0, imported=0, wheels=None):
        python = tmp_path / ".venv" / "bin" / "python"
        python.write_text(RECORDS.format(log=log, index=index, imported=imported))
        python.chmod(0o755)
        given = {"PATH": str(tools), "HOME": str(tmp_path)}
        given |= {} if wheels is None else {"PIP_FIND_LINKS": str(wheels)}
        done = subprocess.run(
            [tmp_path / "scripts" / "install", extra],
            env=given,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return [line for line in log.read_text().splitlines() if "pip install" in line], done.stderr

    return run


def from_index(asked):
    return [line.partition("--index-url")[0].split()[-2:] for line in asked if "--index" in line]


@pytest.mark.parametrize("extra", ["zoo", "all"])
def test_torch_and_torchvision_come_from_the_same_index(install, extra):
    asked, errors = install(extra)
    assert from_index(asked) == [["torch", "torchvision"]]
    assert asked[-1].endswith(f"-e .[{extra}]")
    assert errors == ""


def test_without_that_index_both_come_from_the_usual_one(install):
    asked, errors = install("all", index=1)
    assert asked[-1].endswith("-e .[all]")
    assert "No CPU build of torch torchvision to be had" in errors


def test_what_needs_no_torchvision_gets_none(install):
    assert from_index(install("train")[0])[0][-1] == "torch"


def test_the_base_asks_for_no_torch(install):
    asked, _ = install("base")
    assert len(asked) == 1
    assert asked[0].endswith("-e .")


def test_a_torchvision_for_another_torch_is_said_with_what_does_not_work(install, tmp_path):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    (wheels / "torch-2.13.0-py3-none-any.whl").touch()
    asked, errors = install("all", imported=1, wheels=wheels)
    assert from_index(asked) == []
    assert "`import torchvision` fails" in errors
    assert "nms, roi_align" in errors
