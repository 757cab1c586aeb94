"""`forerun predict`: predict a network, or a workload of any kind, on devices."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, cast

import typer

from forerun.data.errors import BadRequest, InputError
from forerun.data.level import USUAL
from forerun.service.cli import options as o
from forerun.service.cli.options import takes_run
from forerun.service.cli.output import print_json, screen, table, working
from forerun.service.cli.questions.colocate import show_programs
from forerun.service.presets import (
    CIRCUIT,
    COLOCATION,
    DIFFUSION,
    LLM,
    PREDICT,
    as_prediction,
    preset_named,
)
from forerun.service.presets import presets as known
from forerun.service.schemas.run_options import RunIn
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from forerun.service.schemas.answers import PredictionOut
    from forerun.service.schemas.circuits import CircuitOut, ClockOut
    from forerun.service.schemas.colocation import ColocationOut

VERILOG = (".v", ".sv")
"""Endings of files of Verilog."""
OF_MODELS = (b'"operators"', b'"model_type"')
"""Names that operator graphs and Hugging Face configurations hold, and requests do not."""


@dataclass(frozen=True)
class Request:
    """A request from a file or a preset.

    Attributes:
        title: what it is called on the screen.
        endpoint: path that answers it.
        body: its content.
    """

    title: str
    endpoint: str
    body: Mapping[str, Any]


def request_in(source: Path) -> Request | None:
    """The request in a JSON file, or of the preset of that name; None for models.

    Raises:
        BadRequest: the file is a JSON object of no known form, or gives a field several times with
            different values.
        MissingTool: it is Verilog, and yosys is not installed.
        CircuitFailed: yosys refuses it.
    """
    if not source.exists():
        found = next((preset for preset in known() if preset.name == str(source)), None)
        return None if found is None else Request(found.title, found.endpoint, found.request)
    if source.suffix in VERILOG and source.is_file():
        from forerun.data.collectors.circuits.tools import mapped

        return Request(source.name, CIRCUIT, mapped(source))
    if source.suffix != ".json" or not source.is_file():
        return None
    content = source.read_bytes()
    if any(name in content for name in OF_MODELS) and b'"workload"' not in content:
        return None
    try:
        body = json.loads(content, object_pairs_hook=_unambiguous)
    except BadRequest as error:
        raise BadRequest(f"{source}: {error}") from None
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict):
        return None
    if isinstance(body.get("kind"), str):
        return Request(source.name, PREDICT, {"workload": body})
    endpoint = _endpoint(body)
    return None if endpoint is None else Request(source.name, endpoint, body)


def _unambiguous(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object with these fields."""
    found = dict(pairs)
    for name, value in pairs:
        if found[name] != value:
            raise BadRequest(
                f"{name!r:.80} is given several times, as {value!r:.80} and {found[name]!r:.80}: "
                "keep one."
            )
    return found


def _endpoint(body: Mapping[str, Any]) -> str | None:
    """The path that a request is for, by its fields."""
    if "workload" in body:
        return PREDICT
    if {"candidate", "host"} <= set(body):
        return COLOCATION
    if isinstance(body.get("modules"), dict):
        return CIRCUIT
    model = body.get("model")
    if isinstance(model, dict):
        return LLM if "total_parameters" in model else DIFFUSION
    return None


def predictions(
    request: Request, names: Sequence[str], run: RunIn, *, explain: bool = False
) -> "list[PredictionOut]":
    """Answers to a request about one workload, one for each device, in the order given.

    Args:
        request: the request.
        names: names of devices; those of the request when empty.
        run: options of the command, of which such a request takes the level alone.
        explain: whether the answers divide their estimates among parts; as the request says if
            false.

    Raises:
        InputError: options were given, no device is named, or the request is not valid.
    """
    from forerun.service.answers.answer import answer_of
    from forerun.service.answers.requested import question_of
    from forerun.service.problems import valid
    from forerun.service.schemas.prediction import PredictIn
    from forerun.service.stores.graphs import graphs_of

    _refuse_options(run.model_copy(update={"level": USUAL}))
    body = as_prediction(request.endpoint, request.body)
    if body is None:
        raise InputError(
            f"{request.title!r} is a question for POST {request.endpoint}, not one about a single "
            "workload on a device; on the command line `forerun rank` and `forerun sweep` ask it."
        )
    if not names and "device" not in body:
        raise BadRequest("device: name one, such as --device l4; `forerun devices` lists all.")
    body |= {"explain": True} if explain else {}
    body |= {"level": run.level} if run.level != USUAL else {}
    bodies = [body | {"device": name} for name in names] if names else [body]
    asked = [valid(PredictIn, one) for one in bodies]
    graphs, devices = graphs_of(Settings.load()), o.devices_known()
    in_use = o.in_use(devices, asked[0].workload.kind)
    predictor = in_use.loaded.predictor
    questions = [question_of(one, devices.get, graphs.get, predictor) for one in asked]
    on_device = {question.query.device: question for question in questions}
    return [answer_of(question, in_use) for question in on_device.values()]


def circuit(request: Request, names: Sequence[str], run: RunIn) -> "CircuitOut":
    """The answer to a netlist.

    Args:
        request: the netlist, as yosys writes it.
        names: names of devices; the only one that circuits are answered for when empty.
        run: options of the command, which a netlist does not take.

    Raises:
        InputError: options or another device were given, or it is no netlist of an iCE40.
    """
    from forerun.data.circuits.yosys import read_netlist
    from forerun.data.named.synthesis import HX8K
    from forerun.service.answers.circuits import timing_of

    _refuse_options(run)
    others = [name for name in names if name != HX8K.name]
    if others:
        raise BadRequest(f"device: circuits are answered for {HX8K.name}, not for {others[0]!r}.")
    return timing_of(read_netlist(request.body), o.in_use(o.devices_known(), "circuit"))


def colocation(request: Request, names: Sequence[str], run: RunIn) -> "ColocationOut":
    """The answer to a request about programs on one host.

    Args:
        request: the request.
        names: names of devices, which such a request does not take.
        run: options of the command, which it does not take either.

    Raises:
        InputError: devices or options were given, or the request is not valid.
    """
    from forerun.service.answers.colocation import colocate
    from forerun.service.problems import valid
    from forerun.service.schemas.colocation import ColocationIn

    asked = valid(ColocationIn, request.body)
    _refuse_options(run)
    if names:
        raise BadRequest("--device: such a question is about one host, not about devices: omit it.")
    return colocate(asked, o.in_use(o.devices_known(), "colocation").loaded)


def _refuse_options(run: RunIn) -> None:
    usual = RunIn()
    given = [name for name, value in run if value != getattr(usual, name)]
    if given:
        words = ", ".join(map(o.flag_of, given))
        raise InputError(f"{words}: such a question says how it is run; write that into its file.")


def presets(name: Annotated[str | None, typer.Argument()] = None, json: o.Json = False) -> None:
    """List example questions; `forerun predict NAME` answers one.

    Args:
        name: preset whose request is printed
        json: print one JSON object
    """
    from forerun.data.named.networks import network_names

    if name is not None:
        print_json(preset_named(name).request)
        return
    if json:
        print_json({"presets": list(known())})
        return
    rows = table("preset", "kind")
    rows.add_column("question")
    for preset in known():
        rows.add_row(preset.name, preset.kind, preset.title)
    screen().print(rows)
    screen().print(f"networks by name: {', '.join(network_names())}", markup=False)


SHOWN_CLOCKS: Final = 10


def show_circuit(title: str, answer: "CircuitOut", *, explain: bool = False) -> None:
    """Print the frequency of each clock and the resources; the critical path where asked for."""
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
            raise InputError("--picture draws only answers about networks and hardware designs.")
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
    is_colocation = request.endpoint == COLOCATION
    answer: Any = (colocation if is_colocation else circuit)(request, names, run)
    if json:
        print_json(answer)
    elif is_colocation:
        show_programs(answer)
    else:
        show_circuit(request.title, answer, explain=explain)


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
