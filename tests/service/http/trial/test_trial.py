"""Comparisons of a candidate never reach the answer, and each one is counted."""

from threading import Event

import pytest

from forerun.data.errors import UnanswerableQuery
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.service.answers.answer import answer_of
from forerun.service.http import trial as of_trial
from forerun.service.http.telemetry import Telemetry
from forerun.service.http.trial import MOST_WAITING, Shares, Trial
from tests.service.http.trial.test_shares import linear
from tests.waiting import eventually

QUESTION = linear(64)
GIVEN = answer_of(QUESTION, InUse(bundled()))


class Candidate:
    """An adaptation that only has a version and what answers."""

    base_version = "candidate"

    def current(self) -> InUse:
        return InUse(bundled())


@pytest.fixture
def trial(monkeypatch):
    """A trial whose candidate answers everything unseen, by a function of the test."""
    made = Trial(Shares(canary=0.0, shadow=1.0), Telemetry())
    made.adaptation = Candidate()
    yield made
    made.close()


def test_differences_are_reported_by_metric(trial, monkeypatch):
    estimate = GIVEN.metrics["latency_ms"]
    slower = estimate.model_copy(update={"value": 1.25 * estimate.value})
    other = GIVEN.model_copy(update={"metrics": {"latency_ms": slower}})
    monkeypatch.setattr(of_trial, "answers_to", lambda questions, in_use: [other])
    for _ in range(2):
        trial.compare(QUESTION, GIVEN)
    eventually(lambda: trial.report().compared == 2)
    (difference,) = trial.report().differences.values()
    assert difference.answers == 2
    assert difference.mean_percent == pytest.approx(25)


@pytest.mark.parametrize("fault", [UnanswerableQuery("no"), ZeroDivisionError()])
def test_a_candidate_that_fails_is_counted_and_raises_nothing(trial, monkeypatch, fault):
    def failing(questions, in_use):
        if isinstance(fault, UnanswerableQuery):
            return [fault]
        raise fault

    monkeypatch.setattr(of_trial, "answers_to", failing)
    trial.compare(QUESTION, GIVEN)
    eventually(lambda: trial.report().failed == 1)
    assert trial.report().compared == 0


def test_a_slow_candidate_makes_nobody_wait(trial, monkeypatch):
    over = Event()

    def slow(questions, in_use):
        assert over.wait(60)
        return [GIVEN]

    monkeypatch.setattr(of_trial, "answers_to", slow)
    for _ in range(MOST_WAITING + 5):
        trial.compare(QUESTION, GIVEN)
    assert (trial.report().compared, trial.report().left_out) == (0, 5)
    over.set()
    eventually(lambda: trial.report().compared == MOST_WAITING)
    trial.compare(QUESTION, GIVEN)
    eventually(lambda: trial.report().compared == MOST_WAITING + 1)


def test_without_a_candidate_nothing_is_tried(trial):
    trial.adaptation = None
    trial.compare(QUESTION, GIVEN)
    assert trial.chosen(QUESTION) is None
    assert trial.report() is None
