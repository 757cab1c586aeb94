"""The page *Leaderboard*: a table of all datasets, and the tasks of each on demand."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from starlette.responses import HTMLResponse

from forerun.data.errors import UnknownDataset
from forerun.service.http.pages.leaderboard import charts
from forerun.service.http.pages.leaderboard.tables import (
    dataset_tables,
    not_evaluated,
    score_name,
)
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.state import TheState
from forerun.training.leaderboard.entries import (
    Leaderboard,
    gap_text,
    outcome,
    score_text,
    score_value,
    value_text,
)

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
    "charts_of": charts.of_dataset,
    "overview": charts.overview,
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
async def leaderboard_page(state: TheState) -> HTMLResponse:
    """Who is ahead on each dataset, charts, and the tasks of each dataset, folded."""
    return await state.run(lambda: state.leaderboard.made(_page))


@router.get(f"{PATH}/-/charts")
async def leaderboard_charts(request: Request, state: TheState) -> HTMLResponse:
    """Errors and coverage of all tasks: a part of the page for htmx, else a page of its own."""
    template = "overview.html" if asks_for_part(request) else "charts.html"

    def render() -> HTMLResponse:
        tables = state.leaderboard.made(dataset_tables)
        return rendered(f"leaderboard/{template}", PATH, **WORDS, tables=tables)

    return await state.run(render)


@router.get(f"{PATH}/{{dataset}}")
async def leaderboard_dataset(dataset: str, request: Request, state: TheState) -> HTMLResponse:
    """The tasks of one dataset: a part of the page for htmx, else a page of its own."""
    template = "tasks.html" if asks_for_part(request) else "dataset.html"

    def render() -> HTMLResponse:
        tables = {table.name: table for table in state.leaderboard.made(dataset_tables)}
        if dataset not in tables:
            raise UnknownDataset(dataset, tables)
        return rendered(f"leaderboard/{template}", PATH, **WORDS, table=tables[dataset])

    return await state.run(render)


def _page(board: Leaderboard) -> HTMLResponse:
    return rendered("leaderboard/page.html", PATH, **context(board))


def context(board: Leaderboard) -> dict[str, Any]:
    """What the table of all datasets and the frame of their tasks show."""
    tables = dataset_tables(board)
    found = [table.summary for table in tables if table.summary is not None]
    return {
        **WORDS,
        "tables": tables,
        "absent": not_evaluated(board),
        "filters": {
            field: (label, sorted({value for t in tables for value in t.values(field)}))
            for field, label in FILTERS.items()
        },
        "totals": {
            name: sum(getattr(summary, name) for summary in found)
            for name in ("ahead", "behind", "level", "alone")
        },
    }
