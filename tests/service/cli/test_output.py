"""Output of the commands on a terminal: what takes long says so, what is quick does not."""

import io
import sys
from threading import Event

import pytest

from forerun.service.cli import output


class Terminal(io.StringIO):
    """Standard error that is a terminal, and tells when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        done = super().write(text)
        if "reading model.onnx" in self.getvalue():
            self.written.set()
        return done


def on_terminal(monkeypatch) -> Terminal:
    """A terminal in place of standard error; pytest would take it back at the end of a fixture."""
    monkeypatch.setenv("TERM", "xterm")
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    return made


def test_what_takes_long_is_named_until_it_is_done(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with output.working("reading model.onnx", after_s=0.0):
        assert terminal.written.wait(30), terminal.getvalue()
    assert terminal.getvalue().endswith("\x1b[2K"), "the line vanishes"


def test_what_is_quick_prints_nothing(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with output.working("reading model.onnx", after_s=3600.0):
        pass
    assert terminal.getvalue() == ""


def test_what_fails_passes_its_error_on_and_leaves_no_line(monkeypatch):
    terminal = on_terminal(monkeypatch)
    with pytest.raises(ValueError, match="damaged"), output.working("reading model.onnx", 0.0):
        assert terminal.written.wait(30), terminal.getvalue()
        raise ValueError("damaged")
    assert terminal.getvalue().endswith("\x1b[2K")


def test_a_file_in_place_of_a_terminal_gets_nothing(monkeypatch):
    plain = io.StringIO()
    monkeypatch.setattr(sys, "stderr", plain)
    with output.working("reading model.onnx", after_s=0.0):
        pass
    assert plain.getvalue() == ""
