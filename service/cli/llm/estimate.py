"""`forerun llm estimate`, times, memory, power and price of serving; `forerun llm support`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.service.cli import options as o
from forerun.service.cli.commands import in_options
from forerun.service.cli.llm.options import OF_SERVING
from forerun.service.cli.options import takes
from forerun.service.cli.output import print_json, progress, screen, working
from forerun.service.requests.model_source import described_model, title_of

if TYPE_CHECKING:
    from forerun.data.device import Device
    from forerun.data.errors import InputError
    from forerun.service.schemas.answers import ServingOut
    from forerun.service.stores.devices import DeviceStore


@takes(OF_SERVING.options(), OF_SERVING.request)
def estimate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(show_default=False)] = "",
    *,
    device: Annotated[list[str], typer.Option("--device", "--system")],
    run: dict[str, Any],
    explain: o.Explain = False,
    json: o.Json = False,
) -> None:
    """Predict time to first token, time per token, rate, memory, power and price.

    A device that is unknown or has no answer gets one line on standard error; the others are
    answered, and the exit code is 2. The exit code is 0 if the answer is that the model does not
    fit, or that requests arrive faster than they are answered; rates and price are then those at
    capacity.

    Args:
        context: the options as they were typed
        model: config.json, the folder that holds it, the name of a public model (`forerun llm
            support`), or ORG/MODEL in the Hugging Face cache; may be left out with --command
        device: name of a device; may be repeated
        run: how it is served
        explain: also print bounds, breakdowns and all limits
        json: print one JSON object
    """
    names = [name for listed in device for name in listed.split(",")]
    described = described_model(model) if model else {}
    answers, unanswered, name = _answers(described, names, run, OF_SERVING.names(context))
    from forerun.data.errors import InputError
    from forerun.service.cli.llm.table import show

    for name, reason in unanswered.items():
        progress(f"not answered on {name}: {reason}")
    for line in answers[0].model.misspelt_fields if answers[0].model is not None else ():
        progress(f"left out, because this field of the configuration is not known: {line}")
    if json:
        several = {"answers": answers, "unanswered": unanswered}
        print_json(several if unanswered or len(answers) > 1 else answers[0])
    else:
        named = [_with_options(answer, context) for answer in answers]
        show(title_of(model or name), named, explain=explain)
    if unanswered:
        raise typer.Exit(InputError.exit_code)


def _with_options(answer: "ServingOut", context: typer.Context) -> "ServingOut":
    """The answer with options in place of the fields that its sentences name."""
    missing = {name: in_options(why, context) for name, why in answer.missing.items()}
    limits = [
        limit.model_copy(update={"message": in_options(limit.message, context)})
        for limit in answer.limit_details
    ]
    return answer.model_copy(update={"missing": missing, "limit_details": limits})


def support(json: o.Json = False) -> None:
    """List models by name, engines and formats, and on which devices each metric was measured."""
    from forerun.service.answers.llm.support import support as supported

    devices = o.devices_known()
    answer = supported(devices.catalog, o.in_use(devices, "llm_deployment"))
    if json:
        print_json(answer)
        return
    from rich.columns import Columns

    out = screen()
    out.print("[bold]models[/bold], whose owner may be left out, as in llama-3.1-8b")
    out.print(Columns(answer.models, column_first=True, expand=False))
    for title in ("engines", "formats", "cache_formats"):
        out.print(f"[bold]{title.replace('_', ' ')}[/bold]: {', '.join(getattr(answer, title))}")
    for one in answer.measured:
        where = f"measured on {', '.join(one.devices)}" if one.devices else "analytic, not measured"
        out.print(f"[bold]{one.metric}[/bold] {where}")


def _answers(
    model: dict[str, Any], names: list[str], run: dict[str, Any], name_of: Callable[[str], str]
) -> "tuple[list[ServingOut], dict[str, str], str]":
    """The answers in the order of the devices; name of a device without one -> the reason; and
    the name of the model.

    Raises:
        InputError: an option is not valid, or the request cannot be answered on any device.
    """
    from forerun.data.device import Device
    from forerun.data.errors import InputError
    from forerun.service.answers.llm.estimates import llm_estimates
    from forerun.service.problems import valid
    from forerun.service.schemas.serving import LlmEstimateIn

    devices = o.devices_known()
    chosen, failed = _known(devices, names)
    content = dict(run)
    if described := model | content.get("model", {}):
        content["model"] = described
    asked = [valid(LlmEstimateIn, content | {"device": one.name}, name_of) for one in chosen]
    by_name = {device.name: device for device in chosen}

    def named(given: str | Device) -> Device:
        return by_name[given] if isinstance(given, str) else given

    in_use = o.in_use(devices, "llm_deployment", chosen)
    with working(f"predicting {len(chosen)} devices"):
        outcomes = llm_estimates(asked, named, in_use)
    answers = [outcome for outcome in outcomes if not isinstance(outcome, InputError)]
    failed |= {
        device.name: outcome
        for device, outcome in zip(chosen, outcomes, strict=True)
        if isinstance(outcome, InputError)
    }
    if not answers:
        raise next(iter(failed.values()))
    unanswered = {name: str(error) for name, error in failed.items()}
    return answers, unanswered, asked[0].model.name or ""


def _known(
    devices: "DeviceStore", names: list[str]
) -> "tuple[list[Device], dict[str, InputError]]":
    """The devices of these names, each once, and name of an unknown one -> what suggests others.

    Raises:
        UnknownDevice: none of the names is known.
    """
    from forerun.data.errors import UnknownDevice

    known: dict[Device, None] = {}
    unknown: dict[str, InputError] = {}
    for name in names:
        try:
            known[devices.get(name)] = None
        except UnknownDevice as error:
            unknown[name] = error
    if not known:
        raise next(iter(unknown.values()))
    return list(known), unknown
