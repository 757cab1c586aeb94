"""`forerun` as verbs are tested: in this process, in a home of its own."""

import json
import sys
from typing import Any

import pytest

from forerun.service import cli


class Command:
    """`forerun` in this process: exit code, standard output, standard error."""

    def __init__(self, monkeypatch, capsys):
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *words: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["forerun", *map(str, words)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        captured = self._capsys.readouterr()
        return int(left.value.code or 0), captured.out, captured.err

    def ok(self, *words: object) -> str:
        """Standard output of a command that succeeds."""
        code, out, err = self(*words)
        assert code == 0, err
        return out

    def json(self, *words: object) -> Any:
        """The JSON object that a command prints."""
        return json.loads(self.ok(*words, "--json"))

    def refused(self, *words: object) -> str:
        """Standard error of a command whose input is wrong; it prints nothing else."""
        code, out, err = self(*words)
        assert (code, out) == (2, "")
        return err


@pytest.fixture
def forerun(home, monkeypatch, capsys) -> Command:
    return Command(monkeypatch, capsys)
