"""Local jobs run in order, one at a time, when their results are requested."""

import sys

import pytest
from threadpoolctl import threadpool_limits

from forerun.data.errors import InputError, MissingExtra
from forerun.training.engines.jobs import LOCAL, Job, engine_named
from tests.training.engines import work


def jobs(count):
    return (Job(f"job {number}", (number,)) for number in range(count))


def test_results_come_in_the_order_of_the_jobs_and_each_is_named():
    lines = []
    assert list(LOCAL.results(work.squared, jobs(4), lines.append)) == [0, 1, 4, 9]
    assert lines == ["job 0", "job 1", "job 2", "job 3"]


def test_a_job_is_generated_when_its_result_is_asked_for():
    generated = []

    def some():
        for job in jobs(3):
            generated.append(job.name)
            yield job

    results = LOCAL.results(work.squared, some(), lambda line: None)
    assert next(results) == 0
    assert generated == ["job 0"]


def test_the_error_of_a_job_ends_the_results():
    results = LOCAL.results(work.refused, jobs(4), lambda line: None)
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(InputError, match="two is refused"):
        next(results)


def test_without_the_extra_one_line_names_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtra, match="'ray' extra"), engine_named("ray"):
        pass


def test_a_job_has_one_thread_for_linear_algebra():
    with threadpool_limits(2, user_api="blas"):
        assert list(LOCAL.results(work.threads, jobs(2), lambda line: None)) == [1, 1]
        assert work.threads(0) == 2
