"""`forerun predict`: predict a network, or a workload of any kind, on devices."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.options import takes_run
from forerun.service.cli.output import print_json, screen, working
from forerun.service.cli.questions.colocate import show_programs
from forerun.service.cli.questions.request_file import (
    Request,
    circuit,
    colocation,
    predictions,
    request_in,
)
from forerun.service.presets import CIRCUIT, COLOCATION
from forerun.service.schemas.run_options import RunIn

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forerun.service.schemas.answers import PredictionOut
    from forerun.service.schemas.circuits import CircuitOut, ClockOut

SHOWN_CLOCKS: Final = 10


def show_circuit(title: str, answer: "CircuitOut", *, explain: bool = False) -> None:
    """Print the frequency of each clock and the resources; the critical path where asked for."""
    from forerun.service.cli.output import table

    out = screen()
    out.print(f"\n{title} on {answer.device.name}", markup=False)
    rows = table("clock", "highest frequency", "90 % interval", "trust", "why")
    for clock in answer.clocks[:SHOWN_CLOCKS]:
        rows.add_row(clock.clock, *_frequency(clock))
    if answer.clocks:
        out.print(rows)
    else:
        out.print("no register, and so no clock")
    parts = (f"{own.used:,} of {own.available:,} {name}" for name, own in answer.resources.items())
    verdict = "it fits" if answer.fits else "it does not fit"
    out.print(f"{verdict}: {', '.join(parts)}".replace("_", " "), markup=False)
    if explain and answer.clocks:
        _path(answer.clocks[0])
    for limit in answer.limit_details:
        if limit.severity in {"outside", "note"}:
            out.print(f"{limit.heading}: {limit.message}", markup=False)
    if not explain and any(clock.critical_path for clock in answer.clocks):
        out.print("--explain shows the critical path of the slowest clock")


def _frequency(clock: "ClockOut") -> tuple[str, str, str, str]:
    own = clock.fmax_mhz
    if own is None:
        return "not known", "", "", clock.missing or ""
    interval = "" if own.low is None or own.high is None else f"{own.low:.1f} to {own.high:.1f}"
    return f"{own.value:.1f} MHz", interval, own.grade, own.grade_reason


def _path(clock: "ClockOut") -> None:
    """Print the critical path of a clock, and the parts of its period."""
    out = screen()
    out.print(f"critical path of {clock.clock}: arrival, cell and connection, ps", markup=False)
    carries, cells, connections = 0, 0.0, 0.0
    for step in clock.critical_path:
        if step.sink.endswith(".CIN"):
            carries += 1
            cells, connections = cells + step.cell_ps, connections + step.connection_ps
            continue
        if carries:
            through = f"{'':>8} {cells:>7.0f} {connections:>7.0f}  through {carries} carries"
            out.print(through, markup=False)
        carries, cells, connections = 0, 0.0, 0.0
        times = f"{step.arrival_ps:>8.0f} {step.cell_ps:>7.0f} {step.connection_ps:>7.0f}"
        out.print(f"{times}  {step.source} -> {step.sink}", markup=False)
    parts = " + ".join(f"{name} {ps:.0f}" for name, ps in clock.breakdown_ps.items())
    if clock.fmax_mhz is not None and parts:
        whole = sum(clock.breakdown_ps.values())
        words = f"period of {whole:.0f} ps at {clock.fmax_mhz.value:.1f} MHz = {parts}"
        out.print(words.replace("+ placement -", "- placement "), markup=False)


ENDINGS: Final = (".svg", ".png", ".pdf")


def draw(title: str, answers: "Sequence[PredictionOut]", file: Path) -> None:
    """Draw what one answer is made of.

    Args:
        title: name of the model.
        answers: the answers of a command.
        file: the file, which is replaced.

    Raises:
        InputError: there are several answers, the answer has no parts, the file's ending is not one
            of `ENDINGS`, or it cannot be written.
        MissingExtra: matplotlib is not installed.
    """
    if len(answers) != 1:
        raise InputError("--picture draws the answer for one device; name one.")
    if file.suffix.lower() not in ENDINGS:
        raise InputError(f"--picture: {file.name!r} does not end in one of {', '.join(ENDINGS)}.")
    (answer,) = answers
    if answer.attribution is None:
        raise InputError("The answer is not divided into parts, so there is nothing to draw.")
    from forerun.service.python.plots import attribution

    axes = attribution(answer.attribution, f"{title} on {answer.device.name}")
    try:
        cast("Figure", axes.figure).savefig(file)
    except OSError as error:
        raise InputError(f"--picture: {file} cannot be written: {error.strerror}.") from None


@takes_run
def predict(
    source: Path,
    device: list[str] | None = None,
    *,
    run: RunIn,
    explain: o.Explain = False,
    picture: o.Picture = None,
    json: o.Json = False,
) -> None:
    """Predict latency, memory, power and energy, with intervals, trust and a memory check.

    Args:
        source: model file (.onnx, .pt2, config.json, graph .json), name of a network or preset
            (`forerun presets`), timm:NAME, hf:ORG/MODEL in the local cache, a question about any
            workload in a .json file, or a circuit (.v, or the .json of yosys)
        device: name of a device; may be repeated [that of the question]
        run: how it is run
        explain: also print bounds, breakdowns and all limits
        picture: file (.svg, .png, .pdf) to draw the parts of the answer into
        json: print one JSON object
    """
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
    request: Request, names: list[str], run: RunIn, *, explain: bool, json: bool
) -> None:
    """Print the answer about programs on one host, or about a circuit."""
    if request.endpoint == COLOCATION:
        answer = colocation(request, names, run)
        if json:
            print_json(answer)
        else:
            show_programs(answer)
        return
    timing = circuit(request, names, run)
    if json:
        print_json(timing)
    else:
        show_circuit(request.title, timing, explain=explain)


def _answers(
    source: Path, names: list[str], run: RunIn, *, explain: bool
) -> "tuple[str, list[PredictionOut]]":
    """The name of the run, and one answer for each device, in the order given."""
    from forerun.service.schemas.answers import PredictionOut
    from forerun.service.stores.model_file_cache import cached_answer

    return cached_answer(
        tuple[str, list[PredictionOut]],
        source,
        ["predict", explain, names, run.model_dump()],
        lambda: _computed(source, names, run, explain=explain),
    )


def _computed(
    source: Path, names: list[str], run: RunIn, *, explain: bool
) -> "tuple[str, list[PredictionOut]]":
    from forerun.service.answers.answer import answer_of
    from forerun.service.answers.question import question_about
    from forerun.service.cli.questions.run_query import query_of, refuse_threads, run_title

    if not names:
        raise InputError("Name a device, such as --device l4; `forerun devices` lists all.")
    about = query_of(source, run)
    devices = o.devices_known()
    chosen = list(dict.fromkeys(map(devices.get, names)))
    refuse_threads(run, chosen)
    in_use = o.in_use(devices, "network", chosen)
    with working(f"predicting {len(chosen)} devices"):
        questions = [question_about(about(each), explain=explain) for each in chosen]
        return run_title(source, run), [answer_of(question, in_use) for question in questions]
