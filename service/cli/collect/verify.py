"""`forerun verify`: run a model here, and compare the prediction with the measurement."""

from pathlib import Path
from typing import Annotated

import typer

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.output import print_json, screen


def verify(
    source: Path,
    batch_size: str = "1",
    device: str = "my-cpu",
    threads: o.Threads = None,
    seconds: Annotated[float, typer.Option(min=0.01, max=600)] = 1.0,
    sequence_length: o.SequenceLength = None,
    json: o.Json = False,
) -> None:
    """Run an ONNX file on this processor, and compare predicted with measured values.

    The prediction is shown before and after adapting to all other measurements of this machine.

    Args:
        source: ONNX file
        batch_size: batch sizes to run at, such as 1,4,16
        device: name of this machine
        threads: computing threads on a processor [as it was measured]
        seconds: measured time of each run, seconds
        sequence_length: size of dynamic sequence dimensions; 128 when absent
        json: print one JSON object
    """
    from forerun.service.python.own_measurements.verifying import verify as verified

    found = verified(
        source,
        batch_sizes=_sizes(batch_size),
        device=device,
        threads=threads,
        seconds=seconds,
        sequence_length=sequence_length,
    )
    if json:
        print_json(found.to_dict())
    else:
        screen().print(str(found), markup=False)


def _sizes(text: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--batch-size {text!r}: write batch sizes as 1,4,16.") from None
