"""What differs between stored answers and new ones: by how much, in which kind of workload."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

TOLERANCE = 1e-6
"""Largest relative change of a number that counts as none, for the bundled predictors. Rounding
moves stored numbers by up to 5e-8; other instruction sets of numpy and OpenBLAS (SSE, AVX2 and
AVX-512, on one machine) moved none of their answers by 1e-6."""
TOLERANCES = {
    "refits": (1e-5, 1e-5),
    "refits_of_networks": (5e-3, 5e-2),
}
"""The same for refits: of best estimates, and of all other numbers. Their searches for a minimum
end differently on other instruction sets: by up to 1.3e-6 for power limits, and by 1e-4 to 1e-3 for
kernel times of networks, whose boosted trees then split elsewhere and move single ends of intervals
by up to 4 %. On one
machine all of them are equal to 1e-6, which `--tolerance 1e-6` asks for."""
PICOSECOND_MS = 1e-9
"""Change of a time in milliseconds that counts as none: what is left of a difference of two larger
times is rounding."""
MOST_LINES = 30
ABSENT = "(no such field)"
LINES = ("limits", "assumed", "reasons")
"""Fields that hold sentences: compared as sets of lines, and named as lost or new."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One thing that is not as it was.

    Attributes:
        question: its name.
        field: where in the answer, such as `metrics/latency_ms/value`.
        before, after: both values; None where there is none.
        change: after over before, less 1; None where either is no number.
        sort: `number`, `line lost`, `line new`, `answer lost`, `answer new` or `other`.
    """

    question: str
    field: str
    before: Any
    after: Any
    change: float | None = None
    sort: str = "other"

    def __str__(self) -> str:
        if self.sort.startswith(("line", "answer")):
            text = self.before if self.sort.endswith("lost") else self.after
            return f"{self.question} {self.field}: {self.sort}: {text}".replace("  ", " ")
        moved = "" if self.change is None else f" ({100 * self.change:+.4g} %)"
        return f"{self.question} {self.field}: {self.before!r} -> {self.after!r}{moved}"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Stored and new answers of one kind of workload.

    Attributes:
        kind: of workload.
        answers, numbers: how many were compared.
        differences: all beyond the tolerance.
    """

    kind: str
    answers: int
    numbers: int
    differences: tuple[Difference, ...]

    @property
    def changes(self) -> list[float]:
        """Relative changes of the numbers that moved, without their signs."""
        return [abs(d.change) for d in self.differences if d.change is not None]

    def __str__(self) -> str:
        if not self.differences:
            return f"{self.kind}: {self.answers} answers, {self.numbers:,} numbers, none moved"
        sorts = [d.sort for d in self.differences]
        moved = len({d.question for d in self.differences})
        parts = [f"{sorts.count('number')} of {self.numbers:,} numbers moved"]
        if self.changes:
            parts[0] += (
                f" (relative change: median {100 * median(self.changes):.3g} %, "
                f"largest {100 * max(self.changes):.3g} %)"
            )
        for sort in ("line lost", "line new", "answer lost", "answer new", "other"):
            if sort in sorts:
                parts.append(f"{sorts.count(sort)} x {sort}")
        return f"{self.kind}: {moved} of {self.answers} answers differ: {'; '.join(parts)}"


def compared(
    kind: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    tolerance: float = TOLERANCE,
    of_others: float | None = None,
) -> Comparison:
    """Every difference between the answers of one kind.

    Args:
        kind: of workload, for messages.
        before: question -> answer as it was stored, JSON.
        after: question -> answer of today.
        tolerance: largest relative change of a best estimate that counts as none.
        of_others: the same of all other numbers; `tolerance` when None.
    """
    found: list[Difference] = []
    numbers = 0
    rest = tolerance if of_others is None else of_others
    for question in dict.fromkeys((*before, *after)):
        if question not in after:
            found.append(Difference(question, "", "not answered", None, None, "answer lost"))
        elif question not in before:
            found.append(Difference(question, "", None, "not stored", None, "answer new"))
        else:
            old, new = dict(leaves(before[question])), dict(leaves(after[question]))
            numbers += sum(_is_number(value) for value in old.values())
            for field in dict.fromkeys((*old, *new)):
                one, other = old.get(field, ABSENT), new.get(field, ABSENT)
                allowed = tolerance if field.endswith("/value") else rest
                found += _differences(question, field, one, other, allowed)
    return Comparison(kind, len({*before, *after}), numbers, tuple(found))


def leaves(answer: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """(field, value) of an answer; lists of sentences stay whole."""
    if isinstance(answer, Mapping):
        for name, value in answer.items():
            yield from leaves(value, f"{field}/{name}" if field else str(name))
    elif isinstance(answer, list | tuple) and field.rpartition("/")[2] not in LINES:
        for place, value in enumerate(answer):
            yield from leaves(value, f"{field}/{place}")
    else:
        yield field, answer


def _differences(
    question: str, field: str, before: Any, after: Any, tolerance: float
) -> Iterator[Difference]:
    if field.rpartition("/")[2] in LINES:
        old, new = ([] if lines == ABSENT else list(lines) for lines in (before, after))
        for line in old:
            if line not in new:
                yield Difference(question, field, line, None, None, "line lost")
        for line in new:
            if line not in old:
                yield Difference(question, field, None, line, None, "line new")
        if old != new and set(old) == set(new):
            yield Difference(question, field, old, new)
    elif _is_number(before) and _is_number(after):
        rounding = PICOSECOND_MS if "_ms" in field else 0.0
        if abs(after - before) > max(tolerance * abs(before), rounding):
            change = after / before - 1.0 if before else float("inf")
            yield Difference(question, field, before, after, change, "number")
    elif before != after:
        yield Difference(question, field, before, after)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def report(comparisons: Iterable[Comparison], most: int = MOST_LINES) -> str:
    """The largest differences, a line each, then a summary line for each kind and one for all."""
    kinds = list(comparisons)
    every = [(kind, one) for kind in kinds for one in kind.differences]
    every.sort(key=lambda pair: -_weight(pair[1]))
    answers, numbers = (sum(getattr(k, name) for k in kinds) for name in ("answers", "numbers"))
    total = Comparison("in all", answers, numbers, tuple(one for _, one in every))
    lines = [f"{kind.kind}: {one}" for kind, one in every[:most]]
    if len(every) > most:
        lines.append(f"... and {len(every) - most:,} further differences")
    return "\n".join([*lines, *map(str, kinds), str(total)])


def _weight(difference: Difference) -> float:
    """Larger is said first: what is no number, then numbers by their change."""
    return float("inf") if difference.change is None else abs(difference.change)
