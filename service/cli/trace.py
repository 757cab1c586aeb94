"""`forerun trace`: write a model's operator graph."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli import options as o
from forerun.service.cli.output import progress


def trace(
    source: str,
    output: Annotated[Path, typer.Option("--output", "-o")],
    batch_size: Annotated[int, typer.Option(min=1)] = 1,
    sequence_length: o.SequenceLength = None,
    image_size: o.ImageSize = None,
    shape: o.Shapes = None,
) -> None:
    """Trace a torch module without weights, or read a model file, and write the operator graph.

    Args:
        source: timm:NAME, MODULE:FUNCTION that returns (module, inputs), or a model file
        output: graph file to write, .json
        batch_size: size of free batch dimensions
        sequence_length: size of free sequence dimensions; 128 when absent
        image_size: size of free heights and widths, pixels [224]
        shape: shape of an input, name=1x3x640x640; ? leaves a dimension open; may be repeated
    """
    from forerun.features.readers import read_graph
    from forerun.features.readers.input_sizes import DEFAULT_IMAGE_SIZE, parse_shapes
    from forerun.features.readers.model_zoo import PREFIX, zoo_graph
    from forerun.features.readers.torch_trace import trace_callable

    if source.startswith(PREFIX) and not Path(source).exists():
        name = source.removeprefix(PREFIX)
        graph = zoo_graph(name, image_size or DEFAULT_IMAGE_SIZE, batch_size=batch_size)
    elif ":" in source and not Path(source).exists():
        graph = trace_callable(source)
    else:
        graph = read_graph(
            Path(source),
            batch_size=batch_size,
            sequence_length=sequence_length,
            image_size=image_size,
            shapes=parse_shapes(shape or ()),
        )
    output.write_text(json_module.dumps(graph.to_json()) + "\n")
    unknown = f", {sum(graph.unknown.values())} unknown" if graph.unknown else ""
    progress(f"{len(graph)} operators{unknown} in {output} (digest {graph.digest})")
