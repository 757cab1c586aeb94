"""The query about a model file that options of the command line describe."""

from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from forerun.data.device import Device
from forerun.data.errors import BadRequest
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.features.graphs.pipeline import has_parts
from forerun.features.readers import file_in, read_graph
from forerun.features.readers.hugging_face_cache import cached_model
from forerun.features.readers.named import graph_named
from forerun.service.cli.options import flag_of
from forerun.service.cli.output import working
from forerun.service.schemas.run_options import PlainRunIn
from forerun.service.settings import Settings
from forerun.service.stores.graphs import from_text
from forerun.service.stores.model_file_cache import cached

OF_PIPELINES: Final = ("steps", "guidance", "offload")
"""Options of several networks that run one after the other."""


def query_of(source: Path, run: PlainRunIn) -> Callable[[Device], Query]:
    """A function from a device to the query that the options describe.

    Args:
        source: model file.
        run: how it is run.

    Raises:
        InputError: options contradict each other.
        BadShape: a shape or the image size contradicts the model's inputs.
        UnreadableModel: the file is not a readable model.
    """
    graph = graph_of_file(source, run)
    given = [name for name in OF_PIPELINES if getattr(run, name, None) is not None]
    if given and not has_parts(graph):
        raise BadRequest(
            f"{flag_of(given[0])} applies only to diffusers pipelines, and {source.name} is "
            "not one: omit it."
        )
    set_ups = run.set_ups(graph.batch_size)
    return lambda device: run.query(graph, device, set_ups)


def refuse_threads(run: PlainRunIn, devices: Iterable[Device]) -> None:
    """Refuse options of processors where none is asked about.

    Raises:
        BadRequest: one is given.
    """
    if any(device.kind == "cpu" for device in devices):
        return
    for name in ("threads", "instances"):
        if getattr(run, name) != PlainRunIn.model_fields[name].default:
            raise BadRequest(
                f"{flag_of(name)} applies only to processors, and no device is one: omit it."
            )


def run_title(source: Path, run: PlainRunIn) -> str:
    """The name of a model with the main options of the run, for the heading of an answer."""
    batch_size = run.batch_size or graph_of_file(source, run).batch_size
    words = [f"batch {batch_size}", run.precision, run.phase, run.runtime or ""]
    return f"{source.name} ({', '.join(filter(None, words))})"


def read_cached(source: Path, **sizes: Any) -> OperatorGraph:
    """The operator graph of a model file, kept between commands.

    Args:
        source: model file.
        sizes: arguments of `read_graph`.

    Raises:
        InputError: those of `read_graph`.
    """
    home = Settings.load().home
    parts = sorted(source.glob("*/config.json")) if source.is_dir() else ()
    with working(f"reading {source.name}"):
        return cached(
            home,
            file_in(source),
            ["graph", sizes, [path.read_text() for path in parts]],
            lambda: read_graph(source, **sizes),
            dump=OperatorGraph.to_text,
            load=from_text,
        )


def graph_of_file(source: Path, run: PlainRunIn) -> OperatorGraph:
    """The graph of a model file, or of a network by its name.

    Raises:
        InputError: an option contradicts a network of the package.
        UnreadableModel: there is neither a readable file nor a network of that name.
    """
    sizes = run.input_sizes()
    file = source if source.exists() else cached_model(str(source))
    if file is not None:
        return read_cached(file, **asdict(sizes))
    return graph_named(str(source), sizes, lambda name: flag_of(name.removesuffix("s")))
