"""Which version answers follows from the question; comparisons never reach the answer."""

from dataclasses import replace
from threading import Event

import pytest

from forerun.data.errors import UnanswerableQuery
from forerun.data.graph import Operator
from forerun.data.query import Query
from forerun.data.workload import Architecture, Kernel
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.service.answers.answer import answer_of
from forerun.service.answers.question import question_about
from forerun.service.http import trial as of_trial
from forerun.service.http.telemetry import Telemetry
from forerun.service.http.trial import MOST_WAITING, Shares, Trial, position
from tests.devices import L4
from tests.waiting import eventually


def linear(size):
    shapes = ((size, 512),)
    operator = Operator("linear", "fc", shapes, shapes, 512 * 512)
    return question_about(Query(Kernel(operator, "fp32"), L4))


POSITION = 0.11811442006702466
"""Of the first question, in a process of other hashes."""
QUESTION = linear(64)
QUESTIONS = [linear(size) for size in range(1, 2001)]


@pytest.mark.parametrize(("canary", "shadow"), [(0.0, 0.0), (0.1, 0.3), (1.0, 1.0)])
def test_as_many_questions_are_given_as_the_shares_say(canary, shadow):
    parts = [Shares(canary, shadow).part(question) for question in QUESTIONS]
    assert parts.count("canary") / len(parts) == pytest.approx(canary, abs=0.025)
    expected = min(shadow, 1.0 - canary)
    assert parts.count("shadow") / len(parts) == pytest.approx(expected, abs=0.04)


def test_a_larger_share_keeps_the_questions_of_a_smaller_one():
    few, many = Shares(0.1, 0.0), Shares(0.2, 0.0)
    assert all(many.part(each) == "canary" for each in QUESTIONS if few.part(each) == "canary")


def test_the_metrics_and_the_level_asked_for_do_not_matter_and_the_workload_does():
    query = QUESTIONS[0].query
    assert position(question_about(query, ("latency_ms",))) == position(QUESTIONS[0])
    assert position(question_about(replace(query, level=95.0))) == position(QUESTIONS[0])
    assert len({position(each) for each in QUESTIONS}) == len(QUESTIONS)
    cell = question_about(Query(Architecture("nb201", (0, 1, 2, 3, 4, 0)), L4))
    assert position(replace(cell, metrics=())) == position(cell)


def test_processes_agree_on_a_position():
    assert position(QUESTIONS[0]) == pytest.approx(POSITION, abs=1e-9)


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
