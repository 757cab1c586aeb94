"""`forerun trace`: write a model's operator graph."""

import json as json_module
from dataclasses import asdict
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
    """Write the operator graph of a model file, or of a PyTorch module traced without weights.

    Args:
        source: timm:NAME, hf:ORG/MODEL, MODULE:FUNCTION that returns (module, inputs), or a model
            file
        output: graph file to write, .json
        batch_size: size of dynamic batch dimensions
        sequence_length: size of dynamic sequence dimensions; 128 when absent
        image_size: size of dynamic heights and widths, pixels [224]
        shape: shape of an input, name=1x3x640x640; ? leaves a dimension open; may be repeated
    """
    from forerun.features.readers import read_graph
    from forerun.features.readers.hugging_face_cache import is_id
    from forerun.features.readers.input_sizes import InputSizes, parse_shapes
    from forerun.features.readers.model_zoo import PREFIX
    from forerun.features.readers.named import graph_named
    from forerun.features.readers.torch_trace import trace_callable

    sizes = InputSizes(batch_size, sequence_length, image_size, parse_shapes(shape or ()))
    if Path(source).exists():
        graph = read_graph(Path(source), **asdict(sizes))
    elif ":" not in source or source.startswith(PREFIX) or is_id(source):
        graph = graph_named(source, sizes)
    else:
        graph = trace_callable(source)
    output.write_text(json_module.dumps(graph.to_json()) + "\n")
    unknown = f", {sum(graph.unknown.values())} unknown" if graph.unknown else ""
    progress(f"{len(graph)} operators{unknown} in {output} (digest {graph.digest})")
