"""Options that several commands share: the network, and how it is run and trained."""

import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

import typer
from pydantic import BaseModel, ValidationError

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.service.schemas.run_options import part_of
from forerun.service.settings import Settings
from forerun.service.stores.database.store import Records
from forerun.service.stores.devices import DeviceStore, devices_of
from forerun.service.stores.places import place_of

if TYPE_CHECKING:
    from forerun.models.answers.served_models import InUse
    from forerun.training.engines.jobs import Engine

Source = Annotated[
    Path, typer.Argument(help="model file: .onnx, .pt2, config.json, or graph .json")
]
Threads = Annotated[
    int | None, typer.Option(help="computing threads on a processor [as it was measured]", min=1)
]
ProtocolOption = Annotated[list[str] | None, typer.Option(help="only this one; repeatable")]
PredictorOption = Annotated[
    list[str] | None, typer.Option(help="score this predictor alone, not whole answers; repeatable")
]
KEYWORD = inspect.Parameter.KEYWORD_ONLY
KINDS: Mapping[str, Any] = {
    **{"integer": int, "number": float, "boolean": bool, "string": str, "array": list[str]}
}
"""Type of a field in a JSON schema -> that of its option."""
Described = TypeVar("Described", bound=BaseModel)
EngineName = Literal["local", "ray"]
EngineOption = Annotated[
    EngineName,
    typer.Option("--engine", help="where work runs: local, or ray for tasks of a Ray cluster"),
]
SequenceLength = Annotated[
    int | None, typer.Option(help="size of dynamic sequence dimensions; 128 when absent", min=1)
]
ImageSize = Annotated[
    int | None, typer.Option(help="size of dynamic heights and widths, pixels [224]", min=1)
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        help="shape of an input, name=1x3x640x640; ? leaves a dimension open; may be repeated",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON object")]
Picture = Annotated[
    Path | None,
    typer.Option("--picture", help="file (.svg, .png, .pdf) to draw the parts of the answer into"),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="also print bounds, breakdowns and all limits")
]


def devices_known() -> "DeviceStore":
    """The catalogue and the registered devices."""
    return devices_of(Settings.load())


def only_device(given: Sequence[str]) -> str:
    """The name of the device of a command that takes one.

    Raises:
        InputError: there are several.
    """
    names = [name for listed in given for name in listed.split(",")]
    if len(names) > 1:
        raise InputError(f"--device: one device is answered at a time, {len(names)} are given.")
    return names[0]


def in_use(
    devices: "DeviceStore", workload: str | Collection[str], asked: "Iterable[Device] | None" = None
) -> "InUse":
    """The predictor in use, with the parts that a question needs.

    Args:
        devices: the catalogue and the registered devices.
        workload: kind of the workloads that the question is about, or several.
        asked: devices that it is about; None for any.
    """
    from forerun.models.answers.served_models import InUse
    from forerun.models.catalog import Scope
    from forerun.service.loading import load_predictors

    settings = Settings.load()
    if Records.of_texts(place_of(settings) / "measurements").is_used():
        from forerun.service.adaptation.predictor_in_use import in_use_of

        # Measurements of all kinds adapt the predictors of all kinds.
        return in_use_of(settings, load_predictors(settings), devices)
    kinds = None if asked is None else frozenset(device.kind for device in asked)
    about = frozenset({workload} if isinstance(workload, str) else workload)
    if "llm_deployment" in about:
        # The power of a deployment is that of served models.
        about |= {"llm_serving"}
    if "llm_training" in about:
        # A step in eager PyTorch is answered as a network.
        about |= {"network"}
    scope = Scope(about, kinds)
    return InUse(load_predictors(settings, scope))


def one_of(option: str, value: str, known: Sequence[str]) -> Any:
    """The given value, after checking that it is one of the known ones.

    Raises:
        InputError: it is not; the message lists the known ones.
    """
    if value not in known:
        raise InputError(f"--{option} {value!r} is not one of {', '.join(known)}.")
    return value


def refuse_with(option: str, **others: bool) -> None:
    """Refuse options that another one leaves without effect.

    Args:
        option: the other one.
        others: name of an option -> whether it was given.

    Raises:
        InputError: one was.
    """
    for name, is_given in others.items():
        if is_given:
            raise InputError(f"--{name} has no effect with {option}: leave one of the two out.")


def engine_of(name: EngineName) -> AbstractContextManager["Engine"]:
    """The engine that does fits, while the context lasts.

    Raises:
        MissingExtra: `ray` without the extra of that name.
        InputError: no cluster answers at RAY_ADDRESS.
    """
    from forerun.training.engines.jobs import engine_named

    return engine_named(name)


def takes_run(verb: Callable[..., None]) -> Callable[..., None]:
    """A command whose parameter `run` is replaced by one option for each field of its class.

    Args:
        verb: function with a parameter `run: RunIn` or `run: PlainRunIn`.
    """
    kind = inspect.signature(verb).parameters["run"].annotation
    return takes(run_options(kind), lambda given: checked(kind, given))(verb)


def takes(
    options: Sequence[inspect.Parameter], made: Callable[[dict[str, Any]], Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator of commands whose parameter `run` is made from options.

    Args:
        options: the options that replace `run`.
        made: name of each option -> its value, to what the command gets as `run`.
    """

    def decorated(verb: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(verb)
        own = [each for each in signature.parameters.values() if each.name != "run"]

        @wraps(verb)
        def command(**given: Any) -> None:
            named = {option.name: given.pop(option.name) for option in options}
            verb(**given, run=made(named))

        parameters = [*(each.replace(kind=KEYWORD) for each in own), *options]
        command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        return command

    return decorated


def run_options(kind: type[BaseModel]) -> list[inspect.Parameter]:
    """One option for each field of a description, by its JSON schema."""
    found = []
    for name, schema in kind.model_json_schema()["properties"].items():
        part = part_of(schema)
        bounds = {"min": part.get("minimum"), "max": part.get("maximum")}
        bounds = bounds if part["type"] in ("integer", "number") else {}
        found.append(option_of(name, schema, [name.removesuffix("_w")], **bounds))
    return found


def option_of(
    name: str, schema: Mapping[str, Any], names: Iterable[str], **bounds: Any
) -> inspect.Parameter:
    """The option of a field.

    Args:
        name: the parameter that has the value.
        schema: JSON schema of the field.
        names: name and further names of the option, with underscores.
        bounds: `min` and `max` that the command line checks itself.
    """
    part, default = part_of(schema), schema.get("default")
    flags = [f"--{each.replace('_', '-')}" for each in names]
    if part["type"] == "boolean":
        flags[0] += f"/--no-{flags[0].removeprefix('--')}"
    choices = f" ({', '.join(map(str, part['enum']))})" if "enum" in part else ""
    if part["type"] == "number":
        bounds |= {"parser": _number, "metavar": "<float>"}
    shown = typer.Option(*flags, help=f"{schema['description']}{choices}", **bounds)
    own = KINDS[part["type"]] if default not in (None, []) else KINDS[part["type"]] | None
    annotation = Annotated[own, shown]  # type: ignore[valid-type]
    return inspect.Parameter(name, KEYWORD, default=default or None, annotation=annotation)


def _number(text: str | float) -> float:
    """A number, which may end with K, M, B or T for thousands to trillions."""
    found = re.fullmatch(r"(.+?)([KMBT]?)", str(text))
    try:
        return float(found[1]) * 1e3 ** (" KMBT".index(found[2] or " ")) if found else float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number such as 0.5, 1e9, 300M or 15T.") from None


def flag_of(name: str) -> str:
    """The option of a field; its unit is left to the help."""
    return f"--{name.removesuffix('_w').replace('_', '-')}"


def checked(kind: type[Described], given: Mapping[str, Any]) -> Described:
    """The options of a run, checked.

    Raises:
        InputError: a value is not valid; the message names the option.
    """
    kept = {name: value for name, value in given.items() if value is not None}
    for name, schema in kind.model_json_schema()["properties"].items():
        choices = part_of(schema).get("enum")
        if choices and name in kept:
            one_of(flag_of(name)[2:], kept[name], choices)
    try:
        return kind.model_validate(kept)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(
            f"{flag_of(str(first['loc'][0]))} {first['input']!r:.80}: {first['msg']}."
        ) from None
