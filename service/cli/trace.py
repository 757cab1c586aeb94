"""`forerun trace`: write a model's operator graph."""

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from forerun.service.cli.output import progress


def trace(
    source: Annotated[
        str,
        typer.Argument(
            help="timm:NAME, module:function that returns (module, inputs), or a model file"
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="graph .json to write")],
    batch_size: Annotated[int, typer.Option(help="bound to free batch dimensions", min=1)] = 1,
    sequence_length: Annotated[
        int | None, typer.Option(help="bound to free sequence dimensions", min=1)
    ] = None,
    image_size: Annotated[int, typer.Option(help="pixels a side, of timm:NAME", min=1)] = 224,
) -> None:
    """Trace a torch module without its weights, or read a model file, into a graph."""
    from forerun.features.readers import read_graph
    from forerun.features.readers.model_zoo import PREFIX, zoo_graph
    from forerun.features.readers.torch_trace import trace_callable

    if source.startswith(PREFIX) and not Path(source).exists():
        name = source.removeprefix(PREFIX)
        graph = zoo_graph(name, image_size, batch_size=batch_size)
    elif ":" in source and not Path(source).exists():
        graph = trace_callable(source)
    else:
        graph = read_graph(Path(source), batch_size=batch_size, sequence_length=sequence_length)
    output.write_text(json_module.dumps(graph.to_json()) + "\n")
    unknown = f", {sum(graph.unknown.values())} unknown" if graph.unknown else ""
    progress(f"{len(graph)} operators{unknown} in {output} (digest {graph.digest})")
