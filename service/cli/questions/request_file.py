"""Questions that are written in a file, or are presets: any kind of workload, without options."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.data.errors import BadRequest, InputError
from forerun.data.level import USUAL
from forerun.service.cli import options as o
from forerun.service.cli.output import print_json, screen
from forerun.service.schemas.run_options import RunIn

if TYPE_CHECKING:
    from forerun.service.schemas.answers import PredictionOut
    from forerun.service.schemas.circuits import CircuitOut
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
    from forerun.service.presets import CIRCUIT, PREDICT, presets

    if not source.exists():
        found = next((preset for preset in presets() if preset.name == str(source)), None)
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
    from forerun.service import presets

    if "workload" in body:
        return presets.PREDICT
    if {"candidate", "host"} <= set(body):
        return presets.COLOCATION
    if isinstance(body.get("modules"), dict):
        return presets.CIRCUIT
    model = body.get("model")
    if isinstance(model, dict):
        return presets.LLM if "total_parameters" in model else presets.DIFFUSION
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
    from forerun.service.presets import as_prediction
    from forerun.service.problems import valid
    from forerun.service.schemas.prediction import PredictIn
    from forerun.service.settings import Settings
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
    settings = Settings.load()
    graphs = graphs_of(settings)
    devices = o.devices_known()
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
    """List questions to try first; `forerun predict NAME` answers one.

    Args:
        name: preset whose request is printed
        json: print one JSON object
    """
    from forerun.data.named.networks import network_names
    from forerun.service.cli.output import table
    from forerun.service.presets import preset_named
    from forerun.service.presets import presets as known

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
