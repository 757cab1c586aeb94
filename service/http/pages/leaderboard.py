"""The leaderboard as pages of the service and as one file."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import HTMLResponse

from forerun.data.datasets import all_datasets
from forerun.data.errors import UnknownDataset
from forerun.service.http.pages.chart import Cell, Chart, Spec, layer, number
from forerun.service.http.pages.rendering import (
    STATIC,
    asks_for_part,
    environment,
    page_router,
    rendered,
)
from forerun.service.http.state import TheState
from forerun.training.leaderboard.entries import (
    HIGHER_IS_BETTER,
    Comparison,
    Leaderboard,
    Ranked,
    Section,
    Summary,
    comparisons,
    gap_text,
    outcome,
    score_text,
    score_value,
    summary_of,
    value_text,
)

SCORES: Mapping[str, str] = {
    "mape": "mean absolute percentage error",
    "mae": "mean absolute error",
    "rmse": "root mean square error",
    "spearman": "Spearman's rank correlation",
}
"""Score -> its name in words; other scores are written as they are called."""


@dataclass(frozen=True)
class TaskTable:
    """One task at one number of shots.

    Attributes:
        section: dataset, task, device and metric.
        comparison: our best entry and the best of the others; None where ours was not evaluated.
        rows: all entries, best first, cited figures last.
    """

    section: Section
    comparison: Comparison | None
    rows: Sequence[Ranked]

    @property
    def protocol(self) -> str:
        """The protocol of the task."""
        return self.section.task.partition("/")[0]

    @property
    def shots(self) -> int:
        """Size of the support set; 0 for figures that are all cited."""
        return self.rows[0].entry.shots

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of the entries, in order of appearance."""
        return tuple(dict.fromkeys(row.entry.kind for row in self.rows))

    @property
    def outcome(self) -> str:
        """`ahead`, `behind` or `level`, or `alone` without another entry on the same rows."""
        return (self.comparison and self.comparison.outcome) or "alone"


@dataclass(frozen=True)
class DatasetTables:
    """All tasks of one dataset.

    Attributes:
        name: name of the bundle.
        title: one line about it; empty where it is not one of the known datasets.
        citation: its source; empty likewise.
        summary: how its tasks ended; None without an entry of ours.
        tasks: the tasks, in the order of the leaderboard.
    """

    name: str
    title: str
    citation: str
    summary: Summary | None
    tasks: Sequence[TaskTable]

    @property
    def entries(self) -> int:
        """Number of entries."""
        return sum(len(task.rows) for task in self.tasks)

    def values(self, field: str) -> tuple[str, ...]:
        """The different values of `protocol`, `metric`, `shots`, `kinds` or `outcome` of tasks."""
        found: dict[str, None] = {}
        for task in self.tasks:
            value = task.section.metric if field == "metric" else getattr(task, field)
            found |= dict.fromkeys(map(str, value) if isinstance(value, tuple) else [str(value)])
        return tuple(found)


def dataset_tables(board: Leaderboard) -> tuple[DatasetTables, ...]:
    """The tables of every dataset, in the order of the leaderboard."""
    known = {cls.name: cls for cls in all_datasets()}
    by_dataset: dict[str, list[TaskTable]] = {}
    for section in board.sections():
        by_dataset.setdefault(section.dataset, []).extend(_tables(section))
    summary = {
        name: summary_of([task.comparison for task in tasks if task.comparison])
        for name, tasks in by_dataset.items()
    }
    return tuple(
        DatasetTables(
            name,
            known[name].title if name in known else "",
            known[name].citation if name in known else "",
            summary[name],
            tasks,
        )
        for name, tasks in by_dataset.items()
    )


def not_evaluated(board: Leaderboard) -> tuple[str, ...]:
    """Datasets with protocols of which no result is stored."""
    from forerun.training.protocols import all_protocols  # with pandas, which nothing else needs

    return tuple(sorted({cls.dataset for cls in all_protocols()} - set(board.datasets())))


def score_name(score: str) -> str:
    """A score in words."""
    return SCORES.get(score, score.replace("_", " "))


def _tables(section: Section) -> list[TaskTable]:
    cited = [row for row in section.rows if row.entry.cited]
    by_shots: dict[int, list[Ranked]] = {}
    for row in section.rows:
        if not row.entry.cited:
            by_shots.setdefault(row.entry.shots, []).append(row)
    compared = {comparison.ours.shots: comparison for comparison in comparisons(section)}
    return [
        TaskTable(section, compared.get(shots), [*rows, *cited])
        for shots, rows in (by_shots or {0: []}).items()
    ]


RIVALS = {"published": "published systems", "baseline": "baselines and simple rules"}
"""Field of a comparison -> what it holds, in words."""

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


def charts_of(tables: DatasetTables) -> tuple[Chart, ...]:
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
        spec=_marks(
            rows,
            by,
            1,
            x=number(
                "ratio", "relative error (right of 1: behind)", scale={"type": "log"}, axis={}
            ),
            tooltip=_TIP,
            **_OUTCOME,
        ),
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
        spec=_marks(
            rows,
            by,
            NOMINAL,
            x=number(
                "coverage",
                f"coverage, % (nominal {NOMINAL})",
                axis={},
                scale={"domainMax": 100, "nice": True, "zero": False},
            ),
            tooltip=[{"field": f} for f in ("task", "coverage", "rows")],
            color={"value": "var(--c1)"},
        ),
        rows=rows,
        columns={"dataset": "dataset", "task": "task", "coverage": "coverage, %", "rows": "rows"},
    )


def _marks(rows: Sequence[Mapping[str, Cell]], by: str, at: float, **encoding: Any) -> Spec:
    """One mark a row along a line of each value of a field, with a rule across all lines.

    Args:
        rows: the rows.
        by: the field.
        at: where the rule is.
        encoding: channels of the marks.
    """
    y = {"field": by, "sort": None, "title": None}
    rule = {"type": "rule", "strokeDash": [4, 3], "aria": False}
    return {
        "height": AXIS_PX + LINE_PX * len({row[by] for row in rows}),
        "layer": [
            layer(rule, x={"datum": at}, color={"value": "var(--ink)"}),
            layer({"type": "point", "opacity": 0.75}, y=y, **encoding),
        ],
    }


def _place(dataset: str, task: TaskTable) -> dict[str, Cell]:
    section = task.section
    words = (section.task, section.device or "all devices", section.metric)
    shots = f", {task.shots} shots" if task.shots else ""
    return {"dataset": dataset, "protocol": task.protocol, "task": ", ".join(words) + shots}


PATH = "/leaderboard"
FILTERS = {
    "protocol": "protocol",
    "metric": "metric",
    "kinds": "kind of predictor",
    "shots": "shots",
    "outcome": "forerun is",
}
"""Field of `TaskTable` that tasks are filtered by -> its label."""

WORDS: Mapping[str, Any] = {
    "charts_of": charts_of,
    "overview": overview,
    "gap_text": gap_text,
    "outcome_of": outcome,
    "score_name": score_name,
    "score_text": score_text,
    "score_value": score_value,
    "value_text": value_text,
}
"""Functions that the templates of the leaderboard use."""

router = page_router()


@router.get(PATH)
def leaderboard_page(state: TheState) -> HTMLResponse:
    """Who is ahead on each dataset, charts, and the tasks of each dataset, folded."""
    return state.leaderboard.made(_page)


@router.get(f"{PATH}/-/charts")
def leaderboard_charts(request: Request, state: TheState) -> HTMLResponse:
    """Errors and coverage of all tasks: a part of the page for htmx, else a page of its own."""
    template = "overview.html" if asks_for_part(request) else "charts.html"
    tables = state.leaderboard.made(dataset_tables)
    return rendered(f"leaderboard/{template}", PATH, **WORDS, tables=tables)


@router.get(f"{PATH}/{{dataset}}")
def leaderboard_dataset(dataset: str, request: Request, state: TheState) -> HTMLResponse:
    """The tasks of one dataset: a part of the page for htmx, else a page of its own."""
    template = "tasks.html" if asks_for_part(request) else "dataset.html"
    tables = {table.name: table for table in state.leaderboard.made(dataset_tables)}
    if dataset not in tables:
        raise UnknownDataset(dataset, tables)
    return rendered(f"leaderboard/{template}", PATH, **WORDS, table=tables[dataset])


def _page(board: Leaderboard) -> HTMLResponse:
    return rendered("leaderboard/page.html", PATH, **context(board))


def context(board: Leaderboard) -> dict[str, Any]:
    """What the table of all datasets and the frame of their tasks show."""
    tables = dataset_tables(board)
    return {
        **WORDS,
        "tables": tables,
        "absent": not_evaluated(board),
        "filters": {
            field: (label, sorted({value for t in tables for value in t.values(field)}))
            for field, label in FILTERS.items()
        },
        "against": {
            words: Counter(
                outcome(found.ours, rival, found.score)
                for table in tables
                for task in table.tasks
                if (found := task.comparison) and (rival := getattr(found, kind))
            )
            for kind, words in RIVALS.items()
        },
        "alone": sum(table.summary.alone for table in tables if table.summary),
    }


def leaderboard_file(board: Leaderboard) -> str:
    """The page *Leaderboard* with the tasks of all datasets, its style and its scripts inline."""
    template = environment().get_template("leaderboard/file.html")
    return template.render(path=PATH, content=_content, **context(board))


def _content(name: str) -> str:
    """A style sheet or a script of the service; the end of a script would end it in a page."""
    return (STATIC / name).read_text(encoding="utf-8").replace("</script", r"<\/script")
