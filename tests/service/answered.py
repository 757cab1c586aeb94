"""What an answer over HTTP must be: the content of a success, and the problem of a refusal."""

from typing import Any

from httpx import Response


def content_of(answer: Response, status: int = 200) -> Any:
    """The content of an answer that has this status."""
    assert answer.status_code == status, answer.text
    return answer.json()


def problem_of(answer: Response, status: int, *said: str, slug: str | None = None) -> Any:
    """The problem that an answer is: of this status and kind, with words that its detail has."""
    problem = content_of(answer, status)
    assert slug is None or problem["type"] == f"/problems/{slug}"
    for words in said:
        assert words in problem["detail"]
    return problem
