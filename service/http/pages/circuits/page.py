"""The page *Circuits*: how fast a netlist will be on an FPGA, and where its period goes."""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from forerun.data.circuits.yosys import NetlistIn, read_netlist
from forerun.data.errors import BadRequest
from forerun.service.answers.circuits.timing import timing_of
from forerun.service.http.answers import Answers
from forerun.service.http.bounded_json import parsed
from forerun.service.http.pages.circuits.path_chart import path_chart
from forerun.service.http.pages.rendering import page_router, rendered
from forerun.service.http.state import TheAnswers, TheState

PATH: Final = "/circuits"
EXAMPLE: Final = "a serial divider of 8 bits"

router = page_router()


@router.get(PATH)
async def circuits_page(answers: TheAnswers, state: TheState) -> HTMLResponse:
    """The page, with the answer to an example."""

    def page() -> HTMLResponse:
        return rendered("circuits.html", PATH, **_answer(EXAMPLE, _example(), answers))

    return await state.run(page)


@router.post(PATH)
async def circuits_answer(request: Request, answers: TheAnswers, state: TheState) -> HTMLResponse:
    """The answer to a netlist, which is the body of the request, as a part of the page.

    Raises:
        BadRequest: the body is no JSON object.
        BadNetlist, CombinationalLoop: as in `POST /v1/circuit`.
    """
    body = await request.body()

    def part() -> HTMLResponse:
        try:
            content = parsed(body)
        except json.JSONDecodeError as error:
            raise BadRequest(f"The file is not JSON: {error}.") from None
        if not isinstance(content, dict):
            raise BadRequest("The file is JSON, but no object: write it with yosys.")
        context = _answer("your netlist", read_netlist(content), answers)
        return rendered("circuits_answer.html", PATH, **context)

    return await state.upload(part)


@cache
def _example() -> NetlistIn:
    """A netlist that comes with the package, by yosys from a design of forerun's own."""
    file = Path(__file__).with_name("example.json")
    return read_netlist(json.loads(file.read_text(encoding="utf-8")))


def _answer(title: str, netlist: NetlistIn, answers: Answers) -> dict[str, Any]:
    """The context of `circuits_answer.html`."""
    answer = timing_of(netlist, answers.adaptation.current())
    slowest = answer.clocks[0] if answer.clocks else None
    return {
        "title": title,
        "answer": answer,
        "slowest": slowest,
        "chart_of": None if slowest is None else path_chart(slowest),
    }
