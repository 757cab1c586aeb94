"""`forerun colocate`: predict how programs that share a host slow each other down."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli import options as o
from forerun.service.cli.output import print_json, show

if TYPE_CHECKING:
    from forerun.service.schemas.colocation import ColocationOut


def colocate(
    candidate: Path,
    resident: list[Path] | None = None,
    cpus: Annotated[int | None, typer.Option(min=1)] = None,
    json: o.Json = False,
) -> None:
    """Predict the relative speed of every program on a host: isolated over co-located time.

    Where an interval is too wide for a decision, a class is given instead: slowed or not slowed,
    with its error rates on held-out programs.

    Args:
        candidate: profile of the program to be placed, as `forerun collect program` writes it
        resident: profile of a program on the host; may be repeated
        cpus: CPUs that the programs share [2]
        json: print one JSON object
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
        show_programs(answer)


def show_programs(answer: "ColocationOut") -> None:
    """Print the relative speed of every program on a host, and the limits of the answer."""
    from forerun.service.python.colocation import ColocationAnswer

    programs = [answer.candidate, *answer.residents]
    limits = (limit for program in programs for limit in program.limit_details)
    show(ColocationAnswer.of(answer).view(), limits)
