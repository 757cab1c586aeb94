"""Today's answers of one kind, and how they differ from those stored."""

from typing import Any

from tests.golden.compare import NETWORK_TOLERANCE, TOLERANCE, Comparison, compared
from tests.golden.in_python import answers_in_python
from tests.golden.over_http import answers_over_http
from tests.golden.refits import REFITS, answers_of_refits
from tests.golden.stored import kinds, questions_of, store, stored_answers

THROUGH = {"http": answers_over_http, "python": answers_in_python}


def all_kinds() -> list[str]:
    """Kinds of workload, and the groups of refits."""
    return [*kinds(), *REFITS]


def tolerance_of(kind: str) -> float:
    """Largest relative change that counts as none."""
    return NETWORK_TOLERANCE if kind == "refits_of_neural_networks" else TOLERANCE


def answers_of(kind: str) -> dict[str, Any]:
    """Question -> today's answer."""
    if kind in REFITS:
        return answers_of_refits(kind)
    content = questions_of(kind)
    return THROUGH[content["through"]](content)


def comparison_of(kind: str) -> Comparison:
    """Today's answers against those stored."""
    return compared(kind, stored_answers(kind), answers_of(kind), tolerance_of(kind))


def renewed(kind: str) -> Comparison:
    """The same, and today's answers are stored in place of the others."""
    before, after = stored_answers(kind), answers_of(kind)
    store(kind, after)
    return compared(kind, before, after, tolerance_of(kind))
