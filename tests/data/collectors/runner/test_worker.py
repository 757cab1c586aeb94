"""Programs that were started are ended, whatever happens, and say in time what they must."""

import os
import sys

import pytest

from forerun.data.collectors.runner.worker import Worker, WorkerFailed, group_cpu_s
from tests.data.collectors.processes import runs
from tests.waiting import eventually

TALKER = (
    "import sys; print('ready', flush=True); sys.stdin.readline(); "
    "print('{\"wall\": 2}', flush=True)"
)
SLEEPER = "import time; time.sleep(600)"
FAMILY = (
    "import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "if os.fork(): print('ready', flush=True)\n"
    "time.sleep(600)"
)


def python(code, **settings):
    return Worker([sys.executable, "-c", code], **settings)


def test_it_gets_ready_goes_and_says_its_result():
    with python(TALKER) as worker:
        worker.wait_ready(30)
        worker.go()
        assert worker.result(30) == {"wall": 2}


def test_one_that_says_nothing_in_time_fails():
    with python(SLEEPER) as worker, pytest.raises(WorkerFailed, match="no answer"):
        worker.wait_ready(0.01)
    assert not worker.is_alive()


def test_one_that_ends_early_fails_with_its_code():
    with python("raise SystemExit(3)") as worker, pytest.raises(WorkerFailed, match="code 3"):
        worker.wait_ready(30)


def test_one_that_says_something_else_fails():
    with python("print('hello', flush=True)") as worker, pytest.raises(WorkerFailed):
        worker.wait_ready(30)


def test_all_of_its_group_are_ended_even_those_that_refuse(monkeypatch):
    monkeypatch.setattr("forerun.data.collectors.runner.worker.GRACE_S", 0.05)
    with pytest.raises(KeyboardInterrupt), python(FAMILY) as worker:
        worker.wait_ready(30)
        raise KeyboardInterrupt
    eventually(lambda: not runs(worker.process))


def test_cpu_seconds_of_a_group_are_counted():
    assert group_cpu_s(os.getpgrp()) > 0
    assert group_cpu_s(2**30) == 0
