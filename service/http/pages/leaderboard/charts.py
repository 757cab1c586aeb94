"""Charts of the page *Leaderboard*: errors against the best of the others, and coverage."""

from collections.abc import Mapping, Sequence
from typing import Any

from forerun.service.http.pages.chart import Cell, Chart
from forerun.service.http.pages.leaderboard.tables import DatasetTables, TaskTable
from forerun.training.leaderboard.entries import HIGHER_IS_BETTER, score_value

OUTCOMES = ("ahead", "level", "behind")
_COLOURS = ["var(--c3)", "var(--c7)", "var(--c2)"]
_SHAPES = ["circle", "square", "triangle-up"]
NOMINAL = 90
"""Nominal coverage of the intervals, percent."""
LINE_PX, AXIS_PX = 24, 50
"""Heights of one line of marks, and of an axis with its title."""

_OUTCOME: dict[str, Any] = {
    channel: {"field": "outcome", "scale": {"domain": OUTCOMES, "range": kinds}, "legend": None}
    for channel, kinds in (("color", _COLOURS), ("shape", _SHAPES))
}
_TIP = [{"field": field} for field in ("task", "forerun", "other", "best other", "ratio")]


def overview(tables: Sequence[DatasetTables]) -> tuple[Chart, ...]:
    """The charts of all datasets; without the results that they would draw, none."""
    return _drawn((_ratios(tables, "dataset"), _coverage(tables, "dataset")))


def of_dataset(tables: DatasetTables) -> tuple[Chart, ...]:
    """The charts of one dataset, by protocol; without the results that they would draw, none."""
    return _drawn((_ratios([tables], "protocol"), _coverage([tables], "protocol")))


def _drawn(charts: Sequence[Chart]) -> tuple[Chart, ...]:
    return tuple(chart for chart in charts if chart.rows)


def _ratios(tables: Sequence[DatasetTables], by: str) -> Chart:
    rows = [row for t in tables for task in t.tasks for row in _ratio_rows(t.name, task)]
    ahead = sum(row["outcome"] == "ahead" for row in rows)
    return Chart(
        title="Error relative to the best of the others on the same rows",
        summary=f"One mark for each task, by {by}: the error of forerun divided by that of the "
        f"best baseline or published system. In {ahead} of {len(rows)} tasks it is below 1.",
        spec={
            "height": _height_px(rows, by),
            "layer": [
                {
                    "mark": {"type": "rule", "strokeDash": [4, 3], "aria": False},
                    "encoding": {"x": {"datum": 1}, "color": {"value": "var(--ink)"}},
                },
                {
                    "mark": {"type": "point", "opacity": 0.75},
                    "encoding": {
                        "x": {
                            "field": "ratio",
                            "type": "quantitative",
                            "scale": {"type": "log"},
                            "title": "relative error (right of 1: behind)",
                        },
                        "y": {"field": by, "sort": None, "title": None},
                        "tooltip": _TIP,
                        **_OUTCOME,
                    },
                },
            ],
        },
        rows=rows,
        columns={
            "dataset": "dataset",
            "task": "task",
            "forerun": "forerun",
            "other": "best other",
            "best other": "its error",
            "ratio": "ratio",
            "outcome": "forerun is",
        },
    )


def _ratio_rows(dataset: str, task: TaskTable) -> list[dict[str, Cell]]:
    found = task.comparison
    rival = None if found is None else found.rival
    if found is None or rival is None or found.score in HIGHER_IS_BETTER:
        return []
    one, two = score_value(found.ours, found.score), score_value(rival, found.score)
    if not one or not two:
        return []
    return [
        {
            **_place(dataset, task),
            "forerun": one,
            "best other": two,
            "other": rival.predictor,
            "ratio": one / two,
            "outcome": found.outcome,
        }
    ]


def _coverage(tables: Sequence[DatasetTables], by: str) -> Chart:
    rows: list[dict[str, Cell]] = [
        {**_place(t.name, task), "coverage": entry.coverage_90, "rows": entry.n}
        for t in tables
        for task in t.tasks
        if task.comparison is not None and (entry := task.comparison.ours).coverage_90 is not None
    ]
    low = sum(float(row["coverage"] or 0) < NOMINAL for row in rows)
    return Chart(
        title=f"Share of measured values inside forerun's {NOMINAL} % intervals",
        summary=f"One mark for each task, by {by}; {low} of {len(rows)} are below {NOMINAL} %.",
        spec={
            "height": _height_px(rows, by),
            "layer": [
                {
                    "mark": {"type": "rule", "strokeDash": [4, 3], "aria": False},
                    "encoding": {"x": {"datum": NOMINAL}, "color": {"value": "var(--ink)"}},
                },
                {
                    "mark": {"type": "point", "opacity": 0.75, "color": "var(--c1)"},
                    "encoding": {
                        "x": {
                            "field": "coverage",
                            "type": "quantitative",
                            "scale": {"domainMax": 100, "nice": True, "zero": False},
                            "title": f"coverage, % (nominal {NOMINAL})",
                        },
                        "y": {"field": by, "sort": None, "title": None},
                        "tooltip": [{"field": f} for f in ("task", "coverage", "rows")],
                    },
                },
            ],
        },
        rows=rows,
        columns={"dataset": "dataset", "task": "task", "coverage": "coverage, %", "rows": "rows"},
    )


def _height_px(rows: Sequence[Mapping[str, Cell]], by: str) -> int:
    return AXIS_PX + LINE_PX * len({row[by] for row in rows})


def _place(dataset: str, task: TaskTable) -> dict[str, Cell]:
    section = task.section
    words = (section.task, section.device or "all devices", section.metric)
    shots = f", {task.shots} shots" if task.shots else ""
    return {"dataset": dataset, "protocol": task.protocol, "task": ", ".join(words) + shots}
