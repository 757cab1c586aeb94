"""`forerun` as verbs are tested: in this process, in a home of its own."""

import sys

import pytest

from forerun.service import cli


@pytest.fixture
def forerun(tmp_path, monkeypatch, capsys):
    """`forerun` in this process: exit code, standard output, standard error."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FORERUN_PREDICTOR_FOLDER", raising=False)
    monkeypatch.delenv("FORERUN_REGISTRY_URI", raising=False)

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["forerun", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    return call
