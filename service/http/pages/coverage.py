"""The page *Coverage*: a map of what was measured on what, and of what was not."""

from collections.abc import Sequence
from math import log10
from typing import Annotated, Literal, get_args

from fastapi import Query, Request
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import HTMLResponse

from forerun.data.metrics import METRICS
from forerun.data.software import Runtime
from forerun.data.workload import NumberFormat, Phase
from forerun.service.http.pages.devices import FIELDS, Measured, measured, pivot
from forerun.service.http.pages.rendering import asks_for_part, page_router, rendered
from forerun.service.http.state import TheAnswers

PATH = "/coverage"
STEPS = 6
"""Steps of the heat map; each is a power of ten."""
LONGEST = 100

router = page_router()


class Choice(BaseModel):
    """What of the training set the map shows; an empty field means all."""

    model_config = ConfigDict(extra="ignore")

    by: Literal["dataset", "kind", "metric", "phase", "precision", "runtime"] = "dataset"
    dataset: str = Field(default="", max_length=LONGEST)
    kind: str = Field(default="", max_length=LONGEST)
    metric: str = Field(default="", max_length=LONGEST)
    phase: str = Field(default="", max_length=LONGEST)
    precision: str = Field(default="", max_length=LONGEST)
    runtime: str = Field(default="", max_length=LONGEST)

    def fits(self, row: Measured) -> bool:
        """Whether a row has every value that is chosen."""
        return all(getattr(self, field) in ("", getattr(row, field)) for field in FIELDS)


@router.get(PATH)
async def coverage(
    choice: Annotated[Choice, Query()], request: Request, answers: TheAnswers
) -> HTMLResponse:
    """Numbers of measured values by device, and by dataset or by another field."""
    loaded = answers.adaptation.current().loaded
    rows = measured(loaded.record)
    catalog = {device.name: device for device in answers.devices.catalog}
    chosen = [row for row in rows if choice.fits(row)]
    there = {row.device for row in rows}
    return rendered(
        "devices/map.html" if asks_for_part(request) else "devices/coverage.html",
        PATH,
        choice=choice,
        options={field: sorted({getattr(row, field) for row in rows} - {""}) for field in FIELDS},
        pivot=pivot(chosen, choice.by),
        total=sum(row.values or 0 for row in chosen),
        step=step,
        catalog=catalog,
        absent=[device for name, device in catalog.items() if name not in there],
        gaps=gaps(rows),
        version=loaded.version,
    )


def step(values: int | None) -> int:
    """The step of the heat map for a number of values, 1 to `STEPS`; 1 where it is not known."""
    return 1 if not values else min(STEPS, 1 + int(log10(values)))


def gaps(rows: Sequence[Measured]) -> dict[str, list[str]]:
    """What can be asked about a network and was never measured on one, by field."""
    networks = [row for row in rows if row.kind == "network"]
    possible: dict[str, Sequence[str]] = {
        "metric": [metric.name for metric in METRICS],
        "phase": get_args(Phase),
        "precision": get_args(NumberFormat),
        "runtime": get_args(Runtime),
    }
    found = {
        field: [name for name in names if name not in {getattr(row, field) for row in networks}]
        for field, names in possible.items()
    }
    return {field: names for field, names in found.items() if names}
