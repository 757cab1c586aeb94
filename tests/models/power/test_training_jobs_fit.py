"""Fits of the law of training jobs: where the prior of a job's times comes from."""

import numpy as np
import pytest

from forerun.models.power.training_jobs import JOB_PRIOR, LAW, JobRows, MeasuredJobs, _pooled_prior


def measured(seconds: list[float]) -> MeasuredJobs:
    """Runs of one job at one batch size on one device, with these times."""
    one = np.ones(len(seconds))
    rows = JobRows(np.zeros(len(seconds), dtype=np.intp), 0.0 * one, 250.0 * one, 250.0 * one, one)
    return MeasuredJobs(rows, np.log(200.0 * one), np.log(seconds))


def test_a_run_whose_time_is_missing_is_as_none_in_the_prior_of_its_job() -> None:
    missing, without = measured([90.0, np.nan, 110.0]), measured([90.0, 110.0])
    for one, other in zip(_pooled_prior([missing], 1), _pooled_prior([without], 1), strict=True):
        assert one == pytest.approx(other)


def test_times_ten_times_as_long_move_the_prior_of_both_parts_of_the_time_by_as_much() -> None:
    short, long = (_pooled_prior([measured([s, 2.0 * s])], 1)[0] for s in (10.0, 100.0))
    moved = np.zeros(len(JOB_PRIOR))
    moved[:2] = np.log(10.0)
    assert long[len(LAW) :] - short[len(LAW) :] == pytest.approx(moved)


def test_a_job_without_times_keeps_the_prior() -> None:
    found = _pooled_prior([measured([np.nan, np.nan])], 1)[0][len(LAW) :]
    assert found == pytest.approx([mean for mean, _ in JOB_PRIOR])
