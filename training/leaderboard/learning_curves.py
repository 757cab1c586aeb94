"""Learning curves of a leaderboard: error against the number of shots (size of the support set)."""

import re
from pathlib import Path

from forerun.training.leaderboard.entries import HIGHER_IS_BETTER, Leaderboard, Section
from forerun.training.plots import Level, error_by_shots

_WORDS = {
    "mape": "mean absolute percentage error, %",
    "spearman": "Spearman's rank correlation",
}
Curve = dict[int, tuple[float, float | None]]


def draw(board: Leaderboard, folder: Path) -> list[Path]:
    """Draw one PNG file for each section with results at two or more numbers of shots.

    Args:
        board: the leaderboard; entries on older data than a section's newest are left out.
        folder: output folder; created if there is something to draw.

    Returns:
        The files, in the order of the sections.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    drawn = []
    for section in board.sections():
        lines = curves(section)
        if any(len(curve) > 1 for curve in lines.values()):
            place = f"{section.task} {section.device or 'all devices'}"
            name = re.sub(r"[^\w.-]+", "-", f"{section.dataset}-{place}-{section.metric}")
            drawn.append(
                error_by_shots(
                    folder / f"{name}.png",
                    lines,
                    levels(section),
                    score=_WORDS.get(section.score, section.score.replace("_", " ")),
                    higher_is_better=section.score in HIGHER_IS_BETTER,
                    title=f"{section.dataset}: {place}",
                )
            )
    return drawn


def curves(section: Section) -> dict[str, Curve]:
    """Predictor -> shots -> score and its standard error; ours first, then baselines."""
    found: dict[str, Curve] = {}
    for kind in ("ours", "baseline"):
        for row in section.rows:
            entry = row.entry
            if row.rank is not None and entry.kind == kind and entry.value is not None:
                curve = found.setdefault(entry.predictor, {})
                curve[entry.shots] = (entry.value, entry.standard_error)
    return {name: dict(sorted(curve.items())) for name, curve in found.items()}


def levels(section: Section) -> list[Level]:
    """Names and scores of published systems."""
    found = {
        row.entry.predictor: row.entry.value
        for row in section.rows
        if row.entry.kind == "published"
        and row.entry.score == section.score
        and row.entry.value is not None
        and (row.rank is not None or row.entry.cited)
    }
    return [(f"{name} (published)", value) for name, value in found.items()]
