"""The page *Neighbours*: how programs on one host slow each other down."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from forerun.data.collectors.interference.victims import VICTIMS, victim
from forerun.service.answers.colocation import colocate
from forerun.service.http.answers import Answers
from forerun.service.http.pages.chart import (
    Chart,
    interval_bars,
    interval_cells,
    layer,
    number,
    short,
)
from forerun.service.http.pages.rendering import form_page
from forerun.service.http.pages.run_form import EmptyIsAbsent, Name
from forerun.service.schemas.colocation import ColocationIn, HostIn, ProgramIn, ProgramOut

PATH = "/neighbours"
OWN = "another program"
PROGRAMS: Mapping[str, str] = {
    each.name: f"{each.name}: {each.family}, {short(each.working_set_mib)} MiB" for each in VICTIMS
}
"""Program that was measured -> what it is, with its working set."""

METRICS: Mapping[str, str] = {"p_wall": "wall time", "p_cpu": "CPU time"}


class NeighboursForm(EmptyIsAbsent):
    """A program to be placed, the programs that are there, and the processors of the host."""

    candidate: Name = "convnet"
    residents: list[Name] = Field(default=["triad", "chase4"], max_length=len(VICTIMS))
    cpus: int = Field(default=2, ge=1, le=4096)
    working_set_mib: float = Field(default=16.0, ge=0, le=1e9)
    cpu_share: float = Field(default=1.0, ge=0, le=1)

    def asked(self) -> ColocationIn:
        """The request.

        Raises:
            MissingData: no program of a given name was measured.
        """
        own = ProgramIn(name=OWN, working_set_mib=self.working_set_mib, cpu_share=self.cpu_share)
        host = HostIn(residents=[_program(name) for name in self.residents], cpus=self.cpus)
        candidate = own if self.candidate == OWN else _program(self.candidate)
        return ColocationIn(candidate=candidate, host=host)


def _program(name: str) -> ProgramIn:
    return ProgramIn(name=name, working_set_mib=victim(name).working_set_mib)


def _answer(form: NeighboursForm, answers: Answers) -> dict[str, Any]:
    """The context of `neighbours_answer.html`."""
    answer = colocate(form.asked(), answers.adaptation.current().loaded)
    programs = [answer.candidate, *answer.residents]
    return {
        "form": form,
        "answer": answer,
        "programs_out": programs,
        "metrics": METRICS,
        "chart_of": speed_chart(programs),
    }


def speed_chart(programs: Sequence[ProgramOut]) -> Chart | None:
    """The relative speed of every program, with its interval; None where none is known."""
    rows = [
        {"program": each.program, **interval_cells(each.p_wall, "")}
        for each in programs
        if each.p_wall is not None
    ]
    if not rows:
        return None
    x = number("value", "relative speed in wall time, 1 when alone")
    spec = interval_bars("program", len(rows), x, program="program", text="speed")
    alone = layer(
        {"type": "rule", "strokeDash": [4, 4], "color": "var(--quiet)"},
        x={**x, "field": "alone"}, y=None, tooltip=None,
    )  # fmt: skip
    spec["layer"].append({"data": {"values": [{"alone": 1.0}]}, **alone})
    slowest = min(programs, key=lambda each: each.p_wall.value if each.p_wall else 1.0)
    summary = f"Relative speed of {len(rows)} programs; the slowest is {slowest.program}."
    columns = {"program": "program", "value": "relative speed", "low": "low", "high": "high"}
    return Chart("Relative speed once all run together", summary, spec, rows, columns)


FIELDS: Mapping[str, Any] = {"programs": PROGRAMS, "candidates": {**PROGRAMS, OWN: OWN}}
router = form_page(PATH, "neighbours", NeighboursForm, _answer, lambda form, answers: FIELDS)
