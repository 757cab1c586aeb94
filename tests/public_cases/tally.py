"""Answers against published values, counted by group and by grade."""

from collections import Counter
from collections.abc import Iterable, Sequence
from math import inf
from statistics import median
from typing import Any, Final

from tests.public_cases.ask import Asked

COLUMNS: Final = ("n", "answered", "refused", "with interval", "inside")
SHORT: Final = 110


def tally(asked: Sequence[Asked]) -> dict[str, Any]:
    """Counts and medians of all cases, by group and by grade, and the rows that need a look.

    Ratios are predicted over published; `median_ape` and `inside_share` are in percent;
    `median_interval_ratio` is high over low. Null where nothing was answered.
    """
    groups = {one.case.group: None for one in asked}
    return {
        "all": _counted(asked),
        "by_group": {g: _counted([a for a in asked if a.case.group == g]) for g in groups},
        "by_grade": {g: _counted([a for a in asked if a.grade == g]) for g in "ABC"},
        "outside_with_grade_a": [_row(one) for one in outside_with_grade_a(asked)],
        "refusals": dict(Counter(one.refusal for one in asked if one.value is None).most_common()),
    }


def outside_with_grade_a(asked: Iterable[Asked]) -> list[Asked]:
    """Answers of grade A whose interval does not hold the published value."""
    return [one for one in asked if one.grade == "A" and one.inside is False]


def report(counts: dict[str, Any]) -> str:
    """The tally as text."""
    head = f"{'':<18}{'n':>5}{'answered':>10}{'refused':>9}{'inside 90 %':>14}"
    lines = [head + f"{'ratio':>8}{'APE %':>8}{'high/low':>10}"]
    for title, part in (
        ("all", counts["all"]),
        *counts["by_group"].items(),
        *((f"grade {grade}", part) for grade, part in counts["by_grade"].items()),
    ):
        inside = f"{part['inside']}/{part['with_interval']}"
        lines.append(
            f"{title:<18}{part['n']:>5}{part['answered']:>10}{part['refused']:>9}{inside:>14}"
            f"{_figure(part['median_ratio'], 8, 2)}{_figure(part['median_ape'], 8, 1)}"
            f"{_figure(part['median_interval_ratio'], 10, 2)}"
        )
    lines += ["", "outside the interval with grade A:"]
    for row in counts["outside_with_grade_a"]:
        ends = f"({row['low']:.4g} to {row['high']:.4g})"
        lines.append(f"  {row['id']}: {row['published']:.4g} published, {row['value']:.4g} {ends}")
    lines += ["", "refused:"]
    lines += [f"  {n} x {reason[:SHORT]}" for reason, n in counts["refusals"].items()]
    return "\n".join(lines)


def _counted(asked: Sequence[Asked]) -> dict[str, Any]:
    answered = [one for one in asked if one.value is not None]
    ratios = [one.value / one.case.value for one in answered if one.value is not None]
    decided = [one for one in answered if one.inside is not None]
    inside = sum(bool(one.inside) for one in decided)
    widths = [one.high / one.low if one.low else inf for one in decided if one.high is not None]
    return {
        "n": len(asked),
        "answered": len(answered),
        "refused": len(asked) - len(answered),
        "with_interval": len(decided),
        "inside": inside,
        "inside_share": 100 * inside / len(decided) if decided else None,
        "median_ratio": median(ratios) if ratios else None,
        "median_ape": median(100 * abs(ratio - 1) for ratio in ratios) if ratios else None,
        "median_interval_ratio": median(widths) if widths else None,
    }


def _row(one: Asked) -> dict[str, Any]:
    published = {"id": one.case.id, "metric": one.case.metric, "published": one.case.value}
    return {**published, "value": one.value, "low": one.low, "high": one.high}


def _figure(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"
