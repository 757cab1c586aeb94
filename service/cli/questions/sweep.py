"""`forerun sweep`: the trade-off of time and energy over power limits."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.options import takes_run
from forerun.service.cli.output import print_json, progress, show, working
from forerun.service.schemas.run_options import PlainRunIn

if TYPE_CHECKING:
    from forerun.service.schemas.answers import SweepOut


@takes_run
def sweep(
    source: o.Source,
    device: Annotated[str, typer.Option()],
    limits: str | None = None,
    slow_down: Annotated[str, typer.Option("--slow-down", "--slowdown")] = "10%",
    picture: Path | None = None,
    *,
    run: PlainRunIn,
    json: o.Json = False,
) -> None:
    """Predict time, power and energy at several power limits, and advise which to set.

    Args:
        source: model file: .onnx, .pt2, config.json, or graph .json
        device: name of the device
        limits: power limits, W, such as 150,200,250 [40 to 100 % of the TDP]
        slow_down: slowdown that the advised limit may cost: 10% or 0.1
        picture: SVG file to write
        run: how it is run
        json: print one JSON object
    """
    from forerun.service.schemas.answers import SweepOut
    from forerun.service.stores.model_file_cache import cached_answer

    most, watts = _share(slow_down), _watts(limits)
    asked = ["sweep", device, watts, most, run.model_dump()]
    answer = cached_answer(
        SweepOut, source, asked, lambda: _computed(source, device, run, watts, most)
    )
    if picture is not None:
        from forerun.service.answers.sweep_picture import sweep_picture

        drawn = sweep_picture(answer, f"{source.name} on {device}")
        try:
            picture.write_text(drawn, encoding="utf-8")
        except OSError as error:
            raise InputError(f"--picture: {picture} cannot be written: {error.strerror}.") from None
        progress(f"drawn: {picture}")
    if json:
        print_json(answer)
    else:
        from forerun.service.cli.questions.run_query import run_title
        from forerun.service.python.ranking import Sweep

        show(Sweep.of(run_title(source, run), answer).view(), answer.limit_details)


def _computed(
    source: Path, name: str, run: PlainRunIn, watts: list[float] | None, most: float
) -> "SweepOut":
    from forerun.service.answers.power_sweep import swept
    from forerun.service.cli.questions.run_query import query_of

    devices = o.devices_known()
    device = devices.get(name)
    query = query_of(source, run)(device)
    in_use = o.in_use(devices, "network", [device])
    with working("predicting power limits"):
        return swept(query, watts, most, in_use)


def _share(text: str) -> float:
    """Parse a share written as `10%` or `0.1`.

    Raises:
        InputError: the text is neither, or the share is out of range.
    """
    try:
        share = float(text.removesuffix("%")) / (100.0 if text.endswith("%") else 1.0)
    except ValueError:
        share = -1.0
    if not 0.0 <= share <= 10.0:
        raise InputError(f"--slow-down {text!r} is no share of the time; write 10% or 0.1.")
    return share


def _watts(text: str | None) -> list[float] | None:
    if text is None:
        return None
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--limits {text!r}: write watts as 150,200,250.") from None
