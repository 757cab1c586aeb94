"""`forerun llm plan`: what to serve a language model on."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from forerun.data.errors import in_field
from forerun.service.cli import options as o
from forerun.service.cli.commands import FURTHER
from forerun.service.cli.llm.options import RequestOptions, is_public_trace
from forerun.service.cli.options import takes
from forerun.service.cli.output import show_answer, working
from forerun.service.requests.model_source import described_model, title_of
from forerun.service.schemas.llm.serving_plan import (
    PLAN_FIELDS,
    LlmPlanIn,
    class_of,
    draft_of,
    size_of,
    stock_of,
)

if TYPE_CHECKING:
    from forerun.service.schemas.llm.serving_plan_answers import LlmPlanOut

LISTED: Final = {
    **{"devices": "--device", "sizes": "--size", "formats": "--format", "requests": "--trace"},
    **{"classes": "--class", "drafts": "--draft"},
}
"""Field with a list -> the option that gives it, or one of it."""
OF_PLAN: Final = RequestOptions(PLAN_FIELDS.parts, PLAN_FIELDS.without | {*LISTED, "trace"})


Model = Annotated[
    str,
    typer.Argument(
        help="name of a public model (`forerun llm support`), config.json, or its folder"
    ),
]
Types = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        help="device type to choose from: NAME, NAME=COUNT available, NAME@USD an hour for one, or "
        "NAME=COUNT@USD; with --mix, then :spot=USD, :spot_count=COUNT and :current=COUNT running "
        "now; 'aws/m7i.*', or a CSV file of NAME,USD; repeatable "
        "[GPUs with a list price]",
    ),
]
Formats = Annotated[
    list[str] | None,
    typer.Option(
        "--format",
        "--quantization",
        help="formats of weights to try, such as fp8,nvfp4; repeatable",
    ),
]
Traced = Annotated[
    str | None,
    typer.Option(help="file of requests or name of a public trace, as for `llm replay`"),
]
Sizes = Annotated[
    list[str] | None,
    typer.Option(help="one size of requests and its share, as INPUT,OUTPUT,SHARE; repeatable"),
]
Classes = Annotated[
    list[str] | None,
    typer.Option(
        "--class",
        help="class of requests with its own limits, as NAME,RATE,INPUT,OUTPUT,LIMIT=MS, such "
        "as chat,10,500,200,ttft_p99_ms=1000; repeatable",
    ),
]
Drafts = Annotated[
    list[str] | None,
    typer.Option(
        "--draft",
        help="speculative decoding to try, as METHOD,TOKENS,ACCEPTANCE, such as mtp,1,0.8; then a "
        "checkpoint for eagle and eagle3; repeatable",
    ),
]
WrittenAs = Annotated[
    str | None,
    typer.Option(
        "--as",
        help="print only the first option, for vllm, sglang, kubernetes, kserve, "
        "llmisvc, helm (llm-d), prometheus or keda",
    ),
]


@takes(OF_PLAN.options(), OF_PLAN.request)
def plan(
    context: typer.Context,
    model: Model,
    *,
    device: Types = None,
    number_format: Formats = None,
    trace: Traced = None,
    size: Sizes = None,
    request_class: Classes = None,
    draft: Drafts = None,
    run: dict[str, Any],
    written_as: WrittenAs = None,
    explain: o.Explain = False,
    json: o.Json = False,
) -> None:
    """Choose devices, parallel layout, scheduler and replicas to serve a language model.

    Upper ends of intervals must keep the limits; with --risk value, best estimates.
    """
    from forerun.service.python.planning import ServingPlan

    if written_as is not None:
        o.refuse_with("--as", json=json, explain=explain)
    context.meta[FURTHER] = {"usd_per_device_hour": "--device NAME@USD", **LISTED}
    content = {**run, "model": described_model(model)}
    if written_as in ("vllm", "sglang"):
        content.setdefault("engine", {}).setdefault("name", written_as)
    if device:
        content["devices"] = list(_stocks(device))
    if number_format:
        content["formats"] = [name for given in number_format for name in given.split(",")]
    if size:
        content["sizes"] = list(map(size_of, size))
    if request_class:
        with in_field("classes"):
            content["classes"] = list(map(class_of, request_class))
    if draft:
        with in_field("drafts"):
            content["drafts"] = list(map(draft_of, draft))
    if trace is not None:
        content |= _traced(trace)
    out = _planned(content, OF_PLAN.names(context))
    if written_as is not None:
        with in_field("written_as"):
            typer.echo(out.written_as(written_as).rstrip("\n"))
    else:
        show_answer(ServingPlan, title_of(model), out, explain=explain, json=json, context=context)


def _planned(content: dict[str, Any], name_of: Callable[[str], str]) -> "LlmPlanOut":
    """The answer to a request of options.

    Raises:
        InputError: an option is not valid, or the request cannot be answered.
    """
    from forerun.data.list_prices import priced_devices
    from forerun.service.answers.llm.planning import llm_plan
    from forerun.service.problems import valid

    devices, asked = o.devices_known(), valid(LlmPlanIn, content, name_of)
    names = [str(one.device) for one in asked.devices or ()] or priced_devices()
    in_use = o.in_use(devices, "llm_deployment", map(devices.get, names))
    with working("searching deployments"):
        return llm_plan(asked, lambda given: devices.get(str(given)), in_use)


def _stocks(given: list[str]) -> Iterator[dict[str, Any]]:
    """Devices as `stock_of` reads them, several separated by commas, and those of the lines
    NAME,USD of CSV files.

    Raises:
        InputError: a name is empty, or a file is not of such lines.
    """
    for word in (word for words in given for word in words.split(",")):
        yield from _priced_in(Path(word)) if word.endswith(".csv") else [stock_of(word)]


def _priced_in(path: Path) -> Iterator[dict[str, Any]]:
    """Devices and prices of a file, whose first line may be a heading.

    Raises:
        InputError: it cannot be read, or a line is no name with a price.
    """
    from forerun.data.errors import BadRequest, why_unreadable

    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {why_unreadable(error)}.") from None
    for number, line in enumerate(lines, 1):
        name, _, usd = line.partition(",")
        try:
            float(usd)
        except ValueError:
            is_heading = number == 1 and len(lines) > 1 and not any(map(str.isdigit, usd))
            if is_heading or not line.strip():
                continue
            raise BadRequest(f"{path}, line {number}: {line!r:.80} is not NAME,USD.") from None
        yield {"device": name.strip(), "usd_per_device_hour": usd.strip()}
    if not any(line.strip() for line in lines):
        raise BadRequest(f"{path} is empty: give lines of NAME,USD.")


def _traced(trace: str) -> dict[str, Any]:
    """The requests of a file, or the name of a public trace."""
    from forerun.data.language_models.traces import read_trace

    if is_public_trace(trace):
        return {"trace": trace}
    with in_field("trace"):
        return {"requests": read_trace(Path(trace)).rows()}
