"""Today's answers of one kind, and how they differ from those stored."""

from typing import Any

from tests.golden.compare import TOLERANCE, TOLERANCES, Comparison, compared
from tests.golden.in_python import answers_in_python
from tests.golden.over_http import answers_over_http
from tests.golden.refits import REFITS, answers_of_refits
from tests.golden.stored import kinds, questions_of, store, stored_answers

THROUGH = {"http": answers_over_http, "python": answers_in_python}


def all_kinds() -> list[str]:
    """Kinds of workload, and the groups of refits."""
    return [*kinds(), *REFITS]


def answers_of(kind: str) -> dict[str, Any]:
    """Question -> today's answer."""
    if kind in REFITS:
        return answers_of_refits(kind)
    content = questions_of(kind)
    return THROUGH[content["through"]](content)


def comparison_of(kind: str, tolerance: float | None = None) -> Comparison:
    """Today's answers against those stored.

    Args:
        kind: of workload, or a group of refits.
        tolerance: largest relative change that counts as none; that of the kind when None.
    """
    return _compared(kind, answers_of(kind), tolerance)


def renewed(kind: str, tolerance: float | None = None) -> Comparison:
    """The same, and today's answers are stored in place of the others."""
    after = answers_of(kind)
    comparison = _compared(kind, after, tolerance)
    store(kind, after)
    return comparison


def _compared(kind: str, after: dict[str, Any], tolerance: float | None) -> Comparison:
    allowed = TOLERANCES.get(kind, (TOLERANCE, TOLERANCE))
    if tolerance is not None:
        allowed = (tolerance, tolerance)
    return compared(kind, stored_answers(kind), after, *allowed)
