"""`forerun predict`: predict a network, or a workload of any kind, on devices."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.output import print_json, working
from forerun.service.cli.questions.circuit_table import show_circuit
from forerun.service.cli.questions.colocate import show_programs
from forerun.service.cli.questions.picture import draw
from forerun.service.cli.questions.request_file import (
    Request,
    circuit,
    colocation,
    predictions,
    request_in,
)
from forerun.service.cli.set_up import SetUpOptions, takes_run
from forerun.service.presets import CIRCUIT, COLOCATION

if TYPE_CHECKING:
    from forerun.service.schemas.answers import PredictionOut


@takes_run
def predict(
    source: Annotated[
        Path,
        typer.Argument(
            help="model file (.onnx, .pt2, config.json, graph .json), name of a network or preset "
            "(`forerun presets`), a question about any workload in a .json file, or a circuit "
            "(.v, or the .json of yosys)"
        ),
    ],
    device: Annotated[
        list[str] | None,
        typer.Option(help="name of a device; may be repeated [that of the question]"),
    ] = None,
    *,
    run: SetUpOptions,
    explain: o.Explain = False,
    picture: o.Picture = None,
    json: o.Json = False,
) -> None:
    """Predict latency, memory, power and energy, with 90 % intervals, trust and a memory check."""
    names = [name for listed in device or () for name in listed.split(",")]
    request = request_in(source)
    if request is not None and request.endpoint in (COLOCATION, CIRCUIT):
        if picture is not None:
            raise InputError("--picture draws answers about networks and hardware designs alone.")
        _other_answer(request, names, run, explain=explain, json=json)
        return
    divided = explain or picture is not None
    if request is not None:
        title, answers = request.title, predictions(request, names, run, explain=divided)
    else:
        title, answers = _answers(source, names, run, explain=divided)
    if picture is not None:
        draw(title, answers, picture)
    from forerun.service.cli.questions.answer_table import show

    if json:
        print_json(answers[0] if len(answers) == 1 else {"answers": answers})
    else:
        show(title, answers, explain=explain)


def _other_answer(
    request: Request, names: list[str], run: SetUpOptions, *, explain: bool, json: bool
) -> None:
    """Print the answer about programs on one host, or about a circuit."""
    if request.endpoint == COLOCATION:
        answer = colocation(request)
        if json:
            print_json(answer)
        else:
            show_programs([answer.candidate, *answer.residents])
        return
    timing = circuit(request, names, run)
    if json:
        print_json(timing)
    else:
        show_circuit(request.title, timing, explain=explain)


def _answers(
    source: Path, names: list[str], run: SetUpOptions, *, explain: bool
) -> "tuple[str, list[PredictionOut]]":
    """The name of the run, and one answer for each device, in the order given."""
    from forerun.service.schemas.answers import PredictionOut
    from forerun.service.stores.model_file_cache import cached_answer

    split = [name for listed in names for name in listed.split(",")]
    asked = ["predict", explain, split, asdict(run)]
    return cached_answer(
        tuple[str, list[PredictionOut]],
        source,
        asked,
        lambda: _computed(source, split, run, explain=explain),
    )


def _computed(
    source: Path, names: list[str], run: SetUpOptions, *, explain: bool
) -> "tuple[str, list[PredictionOut]]":
    from forerun.service.answers.answer import answer_of
    from forerun.service.answers.question import question_about
    from forerun.service.cli.questions.run_query import query_of, run_title

    if not names:
        raise InputError("Name a device, such as --device l4; `forerun devices` lists all.")
    about = query_of(source, run)
    devices = o.devices_known()
    chosen = list(dict.fromkeys(map(devices.get, names)))
    in_use = o.in_use(devices, "network", chosen)
    with working(f"predicting {len(chosen)} devices"):
        questions = [question_about(about(each), explain=explain) for each in chosen]
        return run_title(source, run), [answer_of(question, in_use) for question in questions]
