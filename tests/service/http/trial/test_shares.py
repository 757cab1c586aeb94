"""Which version answers a question follows from the question alone."""

from dataclasses import replace

import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import Operator
from forerun.data.query import Query
from forerun.data.workload import Architecture, Kernel
from forerun.service.answers.question import question_about
from forerun.service.http.trial import Shares, position

L4 = DeviceCatalog.load().get("l4")


def linear(size):
    shapes = ((size, 512),)
    operator = Operator("linear", "fc", shapes, shapes, 512 * 512)
    return question_about(Query(Kernel(operator, "fp32"), L4))


POSITION = 0.5797698320797805
"""Of the first question, in a process of other hashes."""
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
