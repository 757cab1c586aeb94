"""`forerun predict`: what will this network cost on these devices?"""

from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.service.cli.output import print_json


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
    from forerun.data.errors import InputError
    from forerun.data.query import Query
    from forerun.data.software import Software
    from forerun.data.workload import Network
    from forerun.features.readers import read_graph
    from forerun.service.adaptation import in_use_of
    from forerun.service.answers import answer_of, question_about
    from forerun.service.cli.answer_table import show_one, show_side_by_side
    from forerun.service.device_store import DeviceStore
    from forerun.service.loading import load_predictors
    from forerun.service.settings import Settings

    settings = Settings.load()
    check = checked(InputError, precision=precision, phase=phase, runtime=runtime, layout=layout)
    devices = DeviceStore(settings.home / "devices")
    chosen = [devices.get(name) for given in device for name in given.split(",")]
    graph = read_graph(source, batch_size=batch_size, sequence_length=sequence_length)
    in_use = in_use_of(settings, load_predictors(settings), devices)
    network = Network(graph, batch_size, check["precision"], check["phase"])
    software = Software(runtime=check["runtime"], layout=check["layout"])
    answers = [answer_of(question_about(Query(network, one, software)), in_use) for one in chosen]
    if json:
        print_json(answers[0] if len(answers) == 1 else {"answers": answers})
        return
    if len(answers) == 1:
        show_one(source.name, answers[0])
    else:
        show_side_by_side(source.name, answers)


def checked(error: type[Exception], **given: str) -> dict[str, Any]:
    """Options that take one of a few words, once each does.

    Raises:
        error: it does not; the line says which words there are.
    """
    from typing import get_args

    from forerun.data.software import Layout, Runtime
    from forerun.data.workload import NumberFormat, Phase

    kinds = {"precision": NumberFormat, "phase": Phase, "runtime": Runtime, "layout": Layout}
    for name, value in given.items():
        if value not in get_args(kinds[name]):
            raise error(f"--{name} {value!r} is none of {', '.join(get_args(kinds[name]))}.")
    return given
