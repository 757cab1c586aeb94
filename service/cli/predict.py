"""`forerun predict`: what will this network cost on these devices?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.service.cli.output import print_json, screen

SHOWN = ("latency_ms", "peak_memory_mib", "power_w", "energy_j")


def predict(
    source: Annotated[Path, typer.Argument(help=".onnx, .pt2, config.json, or graph .json")],
    device: Annotated[list[str], typer.Option(help="name; repeat for several")],
    batch_size: Annotated[int, typer.Option(help="samples in one run", min=1, max=65536)] = 1,
    precision: Annotated[str, typer.Option(help="fp32, tf32, fp16, bf16, amp, ...")] = "fp32",
    phase: Annotated[str, typer.Option(help="inference or training")] = "inference",
    runtime: Annotated[str, typer.Option(help="eager, compiled, onnxruntime")] = "eager",
    layout: Annotated[str, typer.Option(help="nchw or nhwc")] = "nchw",
    sequence_length: Annotated[
        int | None, typer.Option(help="bound to free sequence dimensions", min=1)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Latency, memory, power and energy with 90 % intervals, beside the analytic bound."""
    from forerun.data.device import DeviceCatalog
    from forerun.data.errors import InputError
    from forerun.data.query import Query
    from forerun.data.software import Software
    from forerun.data.workload import Network
    from forerun.features.readers import read_graph
    from forerun.service.answers import UNITS, Question, answer_of
    from forerun.service.device_store import load_catalog
    from forerun.service.loading import load_predictors
    from forerun.service.settings import Settings

    settings = Settings()
    check = _checked(InputError, precision, phase, runtime, layout)
    catalog: DeviceCatalog = load_catalog(settings.home / "devices")
    chosen = [catalog.get(name) for given in device for name in given.split(",")]
    graph = read_graph(source, batch_size=batch_size, sequence_length=sequence_length)
    loaded = load_predictors(settings)
    network = Network(graph, batch_size, check["precision"], check["phase"])
    software = Software(runtime=check["runtime"], layout=check["layout"])
    answers = [
        answer_of(Question(Query(network, one, software), tuple(UNITS), graph.digest, None), loaded)
        for one in chosen
    ]
    if json:
        print_json(answers[0] if len(answers) == 1 else {"answers": answers})
        return
    for answer in answers:
        _show(source.name, answer)


def _checked(error: type[Exception], *given: str) -> dict[str, Any]:
    from typing import get_args

    from forerun.data.software import Layout, Runtime
    from forerun.data.workload import NumberFormat, Phase

    kinds = {"precision": NumberFormat, "phase": Phase, "runtime": Runtime, "layout": Layout}
    for (name, kind), value in zip(kinds.items(), given, strict=True):
        if value not in get_args(kind):
            raise error(f"--{name} {value!r} is none of {', '.join(get_args(kind))}.")
    return dict(zip(kinds, given, strict=True))


def _show(name: str, answer: dict[str, Any]) -> None:
    from rich.table import Table

    from forerun.data.metrics import metric

    out = screen()
    out.print(f"\n[bold]{name}[/bold] on [bold]{answer['device']['name']}[/bold]")
    table = Table(box=None, pad_edge=False)
    for heading in ("", "estimate", "90 % interval", "bound"):
        table.add_column(heading, justify="left" if not heading else "right")
    for shown in SHOWN:
        estimate = answer["metrics"].get(shown)
        if estimate is None:
            table.add_row(shown, "not known", "", answer["missing"].get(shown, ""))
            continue
        text = metric(shown).text
        interval = (
            ""
            if estimate["low"] is None
            else f"{text(estimate['low'])} to {text(estimate['high'])}"
        )
        if estimate["low"] is not None and estimate["coverage"] is None:
            interval += " *"
        bound = answer["roofline"].get(shown)
        table.add_row(
            shown, text(estimate["value"]), interval, "" if bound is None else text(bound)
        )
    out.print(table)
    total = sum(answer["breakdown_ms"].values())
    if total:
        parts = sorted(answer["breakdown_ms"].items(), key=lambda item: -item[1])
        shares = ", ".join(
            f"{op} {100 * ms / total:.0f} %" for op, ms in parts if ms > 0.01 * total
        )
        out.print(f"where the time goes: {shares}")
    if any(
        e and e["low"] is not None and e["coverage"] is None for e in answer["metrics"].values()
    ):
        out.print("* an engineering range, not calibrated on measurements")
    for line in answer["limits"]:
        out.print(f"[yellow]outside what was measured:[/yellow] {line}")
