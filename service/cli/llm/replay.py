"""`forerun llm replay`: what the requests of a trace meet."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.service.cli import options as o
from forerun.service.cli.llm.options import OF_LOAD, OF_SERVING, is_public_trace
from forerun.service.cli.options import takes
from forerun.service.cli.output import print_json, screen, table, working
from forerun.service.figures import digits
from forerun.service.requests.model_source import described_model, title_of

if TYPE_CHECKING:
    from forerun.data.language_models.requests import Requests
    from forerun.service.schemas.llm.replay import ReplayOut, StatisticsOut


@takes(OF_SERVING.options(without=OF_LOAD), OF_SERVING.request)
def replay(
    context: typer.Context,
    model: str,
    trace: str,
    device: Annotated[list[str], typer.Option("--device", "--system")],
    *,
    run: dict[str, Any],
    speed: Annotated[float, typer.Option(min=1e-3, max=1e3)] = 1.0,
    until: Annotated[float | None, typer.Option(min=0)] = None,
    least_loaded: bool = False,
    json: o.Json = False,
) -> None:
    """Predict latency percentiles for a trace of requests, by an event model of the engine.

    Lengths and arrival times come from the trace.

    Args:
        context: the options as they were typed
        model: as for `forerun llm estimate`: a name, or a config.json
        trace: CSV file with a header, or file of one JSON object a line, with arrival_s,
            input_tokens and output_tokens; or the name of a public trace, such as splitwise_conv
        device: name of one device
        run: how it is served
        speed: factor by which requests arrive faster
        until: stop after so many seconds of the trace [all]
        least_loaded: send each request to the least loaded worker instead of in turn
        json: print one JSON object
    """
    from forerun.service.answers.llm.replaying import replayed
    from forerun.service.schemas.llm.replay import LlmReplayIn

    devices = o.devices_known()
    chosen = devices.get(o.only_device(device))
    requests = _requests(trace, until)
    content = run | {"device": chosen}
    content["model"] = described_model(model) | content.get("model", {})
    how = LlmReplayIn(speed=speed, dispatch="least_loaded" if least_loaded else "round_robin")
    in_use, name_of = o.in_use(devices, "llm_deployment", [chosen]), OF_SERVING.names(context)
    with working(f"serving {len(requests):,} requests"):
        answer = replayed(content, requests, lambda _: chosen, in_use, how, name_of)
    if json:
        print_json(answer)
    else:
        _show(title_of(model), answer)


def _requests(trace: str, until_s: float | None) -> "Requests":
    """The requests of a file or of a public trace, up to a time after the first arrival.

    Raises:
        BadTrace: they cannot be read; the message says in which line.
    """
    from forerun.data.language_models.traces import named_trace, read_trace

    requests = named_trace(trace) if is_public_trace(trace) else read_trace(Path(trace))
    if until_s is None:
        return requests
    return requests.take(requests.arrival_s <= requests.arrival_s[0] + until_s)


def _show(source: str, answer: "ReplayOut") -> None:
    from rich.markup import escape

    out = screen()
    devices = f"{answer.device_count} {answer.device.name}"
    out.print(f"\n[bold]{escape(source)}[/bold] on {devices}: {answer.requests:,} requests")
    rows = table("", "mean", "p50", "p90", "p99", header_style="")
    for title, own in (
        ("time to first token", answer.ttft_ms),
        ("time per output token", answer.tpot_ms),
        ("request latency", answer.request_latency_ms),
    ):
        rows.add_row(title, *_cells(own))
    out.print(rows)
    tokens = f"{digits(answer.tokens_per_s)} output tokens/s"
    rates = f"{digits(answer.requests_per_s)} requests/s, {tokens}"
    if answer.device_count > 1:
        rates += f" ({digits(answer.tokens_per_s_per_device)} by one device)"
    out.print(f"{rates} over {answer.span_s:,.0f} s; busy {answer.busy_share:.0%} of the time")
    together = f"{answer.mean_sequences:.3g} sequences decode together on a busy worker, on average"
    cache = f"at most {answer.most_cache_share:.0%} of the cache in use"
    out.print(f"{together}; {cache}; {answer.preempted:,} requests preempted")
    if answer.refused:
        out.print(f"{answer.refused:,} requests are longer than the cache, and were refused")
    scales = answer.scales
    if scales.basis == "analytic":
        out.print("times of iterations follow from the spec sheet in closed form")
    else:
        factors = f"{scales.prefill:.2f} times the closed form in prompts, {scales.decode:.2f} in"
        out.print(f"times of iterations: {factors} decoding, by {scales.basis} serving runs")
    for line in (*(f"chosen: {one}" for one in answer.chosen), *answer.limits):
        out.print(f"- {escape(line)}")


def _cells(own: "StatisticsOut") -> list[str]:
    values = (own.mean, own.p50, own.p90, own.p99)
    return ["-" if value is None else f"{digits(value)} ms" for value in values]
