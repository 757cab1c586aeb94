"""Lines of the log: written at once, and in a service never waited for."""

import json
import os
from contextlib import suppress

import pytest

from forerun.service import log
from forerun.service.log import Lines


class Pipe:
    """A pipe in place of standard error, whose reader reads when the test wants it."""

    def __init__(self):
        self.reads, self.writes = os.pipe()
        os.set_blocking(self.reads, False)

    def read(self) -> list[str]:
        content = b""
        with suppress(BlockingIOError):
            while got := os.read(self.reads, 2**20):
                content += got
        return content.decode().splitlines()

    def read_all(self, lines: Lines) -> list[str]:
        """Read until none waits."""
        found = []
        while not lines.drain():
            found += self.read()
        return found + self.read()


@pytest.fixture
def pipe(monkeypatch):
    made = Pipe()
    monkeypatch.setattr(log, "_descriptor", lambda: made.writes)
    yield made
    os.close(made.writes)
    os.close(made.reads)


def test_without_a_service_a_line_is_written_at_once(capsys):
    Lines().write("one")
    assert capsys.readouterr().err == "one\n"


def test_lines_wait_while_nobody_reads_and_keep_their_order(pipe):
    lines, texts = Lines(), [f"{n} " + "x" * 300 for n in range(2_000)]
    with lines.of_service():
        for text in texts:
            lines.write(text)  # 600 kB: a pipe holds less
        found = pipe.read()
        assert found == texts[: len(found)]
        assert 0 < len(found) < len(texts)
        found += pipe.read_all(lines)
    assert found == texts


def test_a_line_longer_than_a_pipe_waits_as_well_and_stays_whole(pipe, monkeypatch):
    monkeypatch.setattr(log, "MOST_WAITING", 1)
    lines = Lines()
    with lines.of_service():
        for letter in "XYQ":
            lines.write(letter * 1_000_000)
        found = "".join(pipe.read_all(lines))
    assert [found.count(letter) for letter in "XYQ"] == [1_000_000, 0, 1_000_000]


def test_the_oldest_lines_leave_and_are_counted(pipe, monkeypatch):
    monkeypatch.setattr(log, "MOST_WAITING", 10)
    lines = Lines()
    with lines.of_service():
        for number in range(1_000):
            lines.write(f"{number} " + "x" * 1_000)
        before = pipe.read() + pipe.read_all(lines)
    (loss,) = [index for index, line in enumerate(before) if line.startswith("{")]
    numbers = [int(line.split()[0]) for line in before if not line.startswith("{")]
    assert numbers[:loss] == list(range(loss))
    assert numbers[loss:] == list(range(990, 1_000))
    said = json.loads(before[loss])
    assert said["event"] == "lines of the log were lost"
    assert said["count"] == 1_000 - len(numbers)


def test_a_service_that_ends_does_not_wait_for_a_reader_for_ever(pipe, monkeypatch):
    monkeypatch.setattr(log, "AT_THE_END_S", 0.01)
    lines = Lines()
    with lines.of_service():
        for _ in range(2_000):
            lines.write("x" * 300)
    assert not lines.drain()


def test_a_reader_that_left_stops_nothing(pipe):
    os.close(pipe.reads)
    lines = Lines()
    with lines.of_service():
        lines.write("one")
        lines.write("two")
    pipe.reads = os.open(os.devnull, os.O_RDONLY)
    assert lines.drain()


def test_texts_that_are_no_unicode_are_escaped(pipe):
    lines = Lines()
    with lines.of_service():
        lines.write("half \ud800")
    assert pipe.read() == ["half \\ud800"]
