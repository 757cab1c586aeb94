"""A test that times something fails on a machine that is merely busy: none does.

Timings are in tests/benchmarks (`make bench`), as ratios of two pieces of work on one machine.
"""

import ast

import pytest
from hypothesis import HealthCheck, settings

from tests.conftest import REPOSITORY
from tests.house.sources import name_of, nodes, text_of

CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "time", "clock_gettime"}
TIMED = ("tests/benchmarks/",)
MAY_READ_CLOCKS = {
    *("tests/waiting.py", "tests/data/collectors/fake_gpu.py"),
    "tests/soak/__main__.py",
    "tests/service/http/test_bounded_json.py",
}
"""What polls until something holds, a device whose counters move with time, what asks a server for
minutes, and a ratio of two CPU times of one process, which other processes do not change."""


def clocks_read(source):
    """Lines on which a file reads a clock of this machine."""
    lines = set()
    for node in nodes(source):
        match node:
            case ast.Attribute(value=ast.Name(id="time"), attr=name):
                read = name.removesuffix("_ns") in CLOCKS
            case ast.ImportFrom(module="time", names=names):
                read = any(one.name.removesuffix("_ns") in CLOCKS for one in names)
            case ast.Import(names=names):
                read = any(one.name == "timeit" for one in names)
            case ast.ImportFrom(module="timeit"):
                read = True
            case _:
                read = False
        if read:
            lines.add(node.lineno)
    return sorted(lines)


def deadlines_set(source):
    """Lines on which a file gives hypothesis a deadline."""
    calls = [node for node in nodes(source) if isinstance(node, ast.Call)]
    return [
        word.value.lineno
        for call in calls
        if ast.unparse(call.func).rpartition(".")[2] in ("settings", "register_profile")
        for word in call.keywords
        if word.arg == "deadline" and ast.unparse(word.value) != "None"
    ]


def files_of_tests():
    """Every Python file of the tests but the benchmarks, by name."""
    paths = {name_of(path): path for path in sorted((REPOSITORY / "tests").rglob("*.py"))}
    return {name: path for name, path in paths.items() if not name.startswith(TIMED)}


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("start = time.perf_counter()\nassert time.monotonic_ns() - start < 2", [1, 2]),
        ("from time import process_time", [1]),
        ("import timeit", [1]),
        ("time.sleep(1)\nclock = FakeClock()\nclock.time()\nsource = 'time.time()'", []),
    ],
)
def test_reading_a_clock_is_found(source, lines):
    assert clocks_read(source) == lines


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("@settings(deadline=200)\ndef test(): ...", [1]),
        ("hypothesis.settings(max_examples=3,\n deadline=timedelta(1))", [2]),
        ("settings(deadline=None)\nwait(deadline=3)", []),
    ],
)
def test_setting_a_deadline_is_found(source, lines):
    assert deadlines_set(source) == lines


def test_no_test_reads_a_clock():
    found = {
        name: lines
        for name, path in files_of_tests().items()
        if name not in MAY_READ_CLOCKS and (lines := clocks_read(text_of(path)))
    }
    assert not found, f"time it in tests/benchmarks, wait with tests.waiting.eventually: {found}"


def test_no_test_sets_a_deadline():
    found = {
        n: lines for n, path in files_of_tests().items() if (lines := deadlines_set(text_of(path)))
    }
    assert not found, f"tests/conftest.py turns deadlines off for all: {found}"


def test_properties_have_no_deadline_and_may_be_slow_to_draw():
    assert settings().deadline is None
    assert HealthCheck.too_slow in settings().suppress_health_check
