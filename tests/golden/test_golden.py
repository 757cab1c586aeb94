"""The bundled predictors answer as they did when the answers were stored."""

import pytest

from tests.golden.ask import all_kinds, comparison_of
from tests.golden.compare import report
from tests.golden.stored import HERE, kinds, questions_of, stored_answers

MOST_BYTES = 1_200_000
RENEW = "Where this is meant, `make golden` stores today's answers."


@pytest.mark.parametrize("kind", kinds())
def test_answers_are_as_stored(kind):
    comparison = comparison_of(kind)
    assert not comparison.differences, f"\n{report([comparison])}\n{RENEW}"


def test_every_question_has_a_stored_answer_and_none_is_left_over():
    for kind in kinds():
        assert set(stored_answers(kind)) == set(questions_of(kind)["questions"]), kind
    files = {path.stem for path in (HERE / "answers").glob("*.json")}
    assert files == set(all_kinds())


def test_a_few_hundred_questions_are_asked_and_nearly_all_are_answered():
    answers = [answer for kind in kinds() for answer in stored_answers(kind).values()]
    refused = [answer for answer in answers if "status" in answer]
    assert len(answers) >= 300
    assert len(refused) < 0.05 * len(answers)


def test_what_is_stored_stays_small():
    files = [*(HERE / "questions").glob("*.json"), *(HERE / "answers").glob("*.json")]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
