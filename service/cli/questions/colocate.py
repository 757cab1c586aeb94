"""`forerun colocate`: predict how programs that share a host slow each other down."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli import options as o
from forerun.service.cli.output import print_json

if TYPE_CHECKING:
    from forerun.service.schemas.colocation import PerformanceOut, ProgramOut

CLOCKS = {"p_cpu": "CPU time", "p_wall": "by the wall"}


def colocate(
    candidate: Annotated[
        Path,
        typer.Argument(
            help="profile of the program to be placed, as `forerun collect program` writes it"
        ),
    ],
    resident: Annotated[
        list[Path] | None, typer.Option(help="profile of a program on the host; may be repeated")
    ] = None,
    cpus: Annotated[
        int | None, typer.Option(help="CPUs that the programs share [2]", min=1)
    ] = None,
    json: o.Json = False,
) -> None:
    """Predict the relative speed of every program on a host: isolated over co-located time.

    Where an interval is too wide to decide by, a class replaces it: slowed or not slowed, with the
    error rates of that class on held-out programs.
    """
    from forerun.service.answers.colocation import colocate as answered
    from forerun.service.answers.colocation import read_profile
    from forerun.service.schemas.colocation import ColocationIn, HostIn

    residents = list(map(read_profile, resident or ()))
    asked = ColocationIn(
        candidate=read_profile(candidate), host=HostIn(residents=residents, cpus=cpus)
    )
    answer = answered(asked, o.in_use(o.devices_known(), "colocation").loaded)
    if json:
        print_json(answer)
    else:
        show_programs([answer.candidate, *answer.residents])


def show_programs(programs: "list[ProgramOut]") -> None:
    """Print the relative speed of every program on a host, and the limits of the answer."""
    from forerun.service.cli.output import screen
    from forerun.service.cli.questions.answer_table import HEADINGS, table

    out = screen()
    rows = table("program", *(f"P, {words}" for words in CLOCKS.values()), "decides", "trust")
    for program in programs:
        speeds = [_text(getattr(program, metric)) for metric in CLOCKS]
        rows.add_row(program.program, *speeds, program.dominant_resource or "", program.grade)
    out.print(rows)
    limits = (limit for program in programs for limit in program.limit_details)
    for severity, message in dict.fromkeys((limit.severity, limit.message) for limit in limits):
        out.print(f"[yellow]{HEADINGS[severity]}:[/yellow]", end=" ")
        out.print(message, markup=False)


def _text(answer: "PerformanceOut | None") -> str:
    """An answer as text: the value with its interval, or with its class and error rates."""
    if answer is None:
        return ""
    value = f"{answer.value:.2f}"
    if answer.low is not None and answer.high is not None:
        return f"{value} ({answer.low:.2f} to {answer.high:.2f})"
    rates = answer.slowed
    if rates is None:
        return value
    word = "slowed" if rates.slowed else "not slowed"
    wrong = f"false alarms {rates.false_alarms:.0%}, misses {rates.misses:.0%}"
    return f"{value}, {word} ({wrong})"
