"""The page *Circuits*: how fast a netlist will be on an FPGA, and where its period goes."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from starlette.responses import HTMLResponse

from forerun.data.circuits.yosys import NetlistIn, read_netlist
from forerun.data.errors import BadRequest
from forerun.service.answers.circuits import timing_of
from forerun.service.http.answers import Answers
from forerun.service.http.limits import parsed
from forerun.service.http.pages.chart import Cell, Chart, coloured, number, short, shown
from forerun.service.http.pages.rendering import page_router, rendered
from forerun.service.http.state import TheAnswers, TheBody, on_lane
from forerun.service.schemas.circuits import ClockOut

PS_PER_NS: Final = 1e3


def path_chart(clock: ClockOut) -> Chart | None:
    """The period of a clock from edge to edge, as one bar; None where no frequency is known."""
    if clock.fmax_mhz is None or not clock.critical_path:
        return None
    rows = [_row(*segment) for segment in _segments(clock) if segment[3] > segment[2]]
    first, last = clock.critical_path[0], clock.critical_path[-1]
    x = number("from_ns", "ns after the clock's edge")
    spec = {
        "height": 60,
        "mark": {"type": "bar", "height": 34},
        "encoding": {
            "x": x,
            "x2": {"field": "to_ns"},
            "color": coloured("part", (row["part"] for row in rows)),
            "tooltip": shown(part="part", where="where", text="time"),
        },
    }
    summary = (
        f"The period of {clock.clock} as one bar of {len(rows)} parts, from {first.source} to "
        f"{last.sink}; connections take {short(_share(clock))} % of it."
    )
    columns = {"from_ns": "from, ns", "to_ns": "to, ns", "part": "part", "where": "where"}
    return Chart(f"Where the period of {clock.clock} goes", summary, spec, rows, columns)


def _segments(clock: ClockOut) -> Iterator[tuple[str, str, float, float]]:
    """Part, place, begin and end of each piece of the period, picoseconds."""
    reached = 0.0
    for step in clock.critical_path:
        leaves = step.arrival_ps - step.connection_ps
        yield "cell", step.source, reached, leaves
        yield "connection", f"{step.source} to {step.sink}", leaves, step.arrival_ps
        reached = step.arrival_ps
    parts = clock.breakdown_ps
    longest = reached + parts["setup"]
    yield "cell", f"setup of {clock.critical_path[-1].sink}", reached, longest
    yield "other placements", "", longest, longest + parts["placement"]


def _row(part: str, where: str, start_ps: float, end_ps: float) -> Mapping[str, Cell]:
    return {
        "part": part,
        "where": where,
        "from_ns": start_ps / PS_PER_NS,
        "to_ns": end_ps / PS_PER_NS,
        "text": f"{short(end_ps - start_ps)} ps",
    }


def _share(clock: ClockOut) -> float:
    return 100.0 * clock.breakdown_ps["connections"] / sum(clock.breakdown_ps.values())


PATH: Final = "/circuits"
EXAMPLE: Final = "a serial divider of 8 bits"

router = page_router()


@router.get(PATH)
def circuits_page(answers: TheAnswers) -> HTMLResponse:
    """The page, with the answer to an example."""
    return rendered("circuits.html", PATH, **_answer(EXAMPLE, _example(), answers))


@router.post(PATH)
@on_lane("upload")
def circuits_answer(body: TheBody, answers: TheAnswers) -> HTMLResponse:
    """The answer to a netlist, which is the body of the request, as a part of the page.

    Raises:
        BadRequest: the body is no JSON object.
        BadNetlist, CombinationalLoop: as in `POST /v1/circuit`.
    """
    try:
        content = parsed(body)
    except json.JSONDecodeError as error:
        raise BadRequest(f"The file is not JSON: {error}.") from None
    if not isinstance(content, dict):
        raise BadRequest("The file is JSON, but no object: write it with yosys.")
    context = _answer("your netlist", read_netlist(content), answers)
    return rendered("circuits_answer.html", PATH, **context)


@cache
def _example() -> NetlistIn:
    """A netlist that comes with the package, by yosys from a design of forerun's own."""
    file = Path(__file__).with_name("circuits_example.json")
    return read_netlist(json.loads(file.read_text(encoding="utf-8")))


def _answer(title: str, netlist: NetlistIn, answers: Answers) -> dict[str, Any]:
    """The context of `circuits_answer.html`."""
    answer = timing_of(netlist, answers.adaptation.current())
    chart = path_chart(answer.clocks[0]) if answer.clocks else None
    return {"title": title, "answer": answer, "chart_of": chart}
