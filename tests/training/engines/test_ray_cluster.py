"""Tasks of a cluster of two processes give the same results, whatever happens to the processes."""

import os
import signal
import threading
from contextlib import ExitStack

import numpy as np
import pytest

from forerun.data.errors import InputError
from forerun.training.engines.jobs import LOCAL, Job, engine_named
from forerun.training.evaluation.evaluate import run_protocols
from forerun.training.protocols.hls_designs.hls_designs import WaHls4mlProtocols
from tests.training.engines import work
from tests.waiting import eventually

ray = pytest.importorskip("ray", reason="needs the ray extra")
pytestmark = pytest.mark.slow


def silent(line):
    """Say nothing."""


@pytest.fixture(scope="module")
def cluster():
    """A cluster of two cores, which the engine joins and leaves as it is."""
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    with engine_named("ray") as engine:
        yield engine
    assert ray.is_initialized()
    ray.shutdown()


def jobs(count, *more):
    return (Job(f"job {number}", (number, *more)) for number in range(count))


def test_results_come_in_the_order_of_the_jobs_from_other_processes(cluster):
    lines = []
    assert list(cluster.results(work.squared, jobs(9), lines.append)) == [n**2 for n in range(9)]
    assert {f"job {n}: done" for n in range(9)} < set(lines)
    assert os.getpid() not in list(cluster.results(work.process, jobs(4), silent))


def test_jobs_are_not_generated_long_before_their_results_are_asked_for(cluster):
    generated = []

    def some():
        for job in jobs(100):
            generated.append(job)
            yield job

    results = cluster.results(work.squared, some(), silent)
    assert next(results) == 0
    assert 1 < len(generated) <= 4
    results.close()


def test_an_error_is_the_one_that_the_function_raised(cluster):
    results = cluster.results(work.refused, jobs(4), silent)
    with pytest.raises(InputError, match=r"^two is refused$") as raised:
        list(results)
    assert type(raised.value) is InputError


def test_a_killed_worker_loses_nothing(cluster, tmp_path):
    with ExitStack() as stack:
        stack.callback((tmp_path / "go").touch)
        results = cluster.results(work.held_until, jobs(2, tmp_path), silent)
        stack.callback(results.close)
        found = []

        def begun(number):
            return [int(f.name.split("-")[1]) for f in tmp_path.glob(f"{number}-*")]

        waits = threading.Thread(target=lambda: found.extend(results))
        waits.start()
        stack.callback(waits.join)
        eventually(lambda: begun(0) and begun(1))
        (victim,) = begun(0)
        os.kill(victim, signal.SIGKILL)
        eventually(lambda: len(begun(0)) == 2)
        (tmp_path / "go").touch()
        waits.join()
        assert found == [0, 1]
        assert victim not in begun(1)


def test_an_evaluation_is_identical_bit_for_bit(cluster, made_up):
    here, there = (
        list(run_protocols(WaHls4mlProtocols(), made_up("wa_hls4ml"), 0, engine=engine))
        for engine in (LOCAL, cluster)
    )
    assert len(here) == len(there) > 0
    for ours, theirs in zip(here, there, strict=True):
        assert (ours.task.name, ours.predictor) == (theirs.task.name, theirs.predictor)
        for name in ours.columns:
            assert np.array_equal(ours.columns[name], theirs.columns[name], equal_nan=True)
