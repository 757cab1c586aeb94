"""`forerun predict`: predict latency, memory, power and energy of a network on devices."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.service.cli import options as o
from forerun.service.cli.output import print_json
from forerun.service.cli.set_up import takes_set_up

if TYPE_CHECKING:
    from forerun.service.schemas.answers import PredictionOut


@takes_set_up
def predict(
    source: o.Source,
    device: Annotated[list[str], typer.Option(help="name of a device; may be repeated")],
    batch_size: o.BatchSize = 1,
    precision: o.Precision = "fp32",
    phase: o.Phase = "inference",
    runtime: o.UsualRuntime = None,
    threads: o.Threads = None,
    layout: o.Layout = "nchw",
    sequence_length: o.SequenceLength = None,
    power_limit: o.PowerLimit = None,
    json: o.Json = False,
    **set_up: Any,
) -> None:
    """Predict latency, memory, power and energy, with 90 % intervals and a check of memory."""
    answers = _answers({**locals(), **set_up})
    from forerun.service.cli.answer_table import show

    if json:
        print_json(answers[0] if len(answers) == 1 else {"answers": answers})
    else:
        show(source.name, answers)


def _answers(given: dict[str, Any]) -> "list[PredictionOut]":
    """One answer for each device, in the order given."""
    from forerun.service.answers.answer import answer_of
    from forerun.service.answers.question import question_about

    about = o.query_of(given)
    devices, in_use = o.answering()
    chosen = [devices.get(name) for listed in given["device"] for name in listed.split(",")]
    return [answer_of(question_about(about(each)), in_use) for each in chosen]
