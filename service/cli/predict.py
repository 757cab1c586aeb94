"""`forerun predict`: predict latency, memory, power and energy of a network on devices."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.service.cli import options as o
from forerun.service.cli.output import print_json
from forerun.service.cli.set_up import SetUpOptions, takes_run

if TYPE_CHECKING:
    from forerun.service.schemas.answers import PredictionOut


@takes_run
def predict(
    source: o.Source,
    device: Annotated[list[str], typer.Option(help="name of a device; may be repeated")],
    *,
    run: SetUpOptions,
    explain: o.Explain = False,
    json: o.Json = False,
) -> None:
    """Predict latency, memory, power and energy, with 90 % intervals, trust and a memory check."""
    answers = _answers(source, device, run)
    from forerun.service.cli.answer_table import show

    if json:
        print_json(answers[0] if len(answers) == 1 else {"answers": answers})
    else:
        show(source.name, answers, explain=explain)


def _answers(source: Path, names: list[str], run: SetUpOptions) -> "list[PredictionOut]":
    """One answer for each device, in the order given."""
    from forerun.service.answers.answer import answer_of
    from forerun.service.answers.question import question_about
    from forerun.service.cli.run_query import query_of

    about = query_of(source, run)
    devices, in_use = o.answering()
    chosen = [devices.get(name) for listed in names for name in listed.split(",")]
    return [answer_of(question_about(about(each)), in_use) for each in chosen]
