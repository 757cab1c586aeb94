"""The query about a model file that options of the command line describe."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from forerun.data.device import Device
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.readers import read_graph
from forerun.features.readers.input_sizes import parse_shapes
from forerun.service.cli.options import checked
from forerun.service.cli.output import working
from forerun.service.cli.set_up import RunOptions, SetUpOptions
from forerun.service.schemas.training_options import INFERENCE_OPTIONS, OPTIONS, set_ups_of
from forerun.service.schemas.workloads import operation_of, usual_runtime
from forerun.service.settings import Settings
from forerun.service.stores.graphs import as_text, from_text
from forerun.service.stores.model_file_cache import cached


def query_of(source: Path, run: RunOptions) -> Callable[[Device], Query]:
    """A function from a device to the query that the options describe.

    Args:
        source: model file.
        run: how it is run; set-ups of training and inference only in `SetUpOptions`.

    Raises:
        InputError: an option has an invalid value, or options contradict each other.
        BadShape: a shape or the image size contradicts the model's inputs.
        UnreadableModel: the file is not a readable model.
    """
    given = asdict(run)
    words = {name: given[name] for name in ("precision", "phase", "runtime", "layout")}
    check = checked({name: word for name, word in words.items() if word is not None})
    options = {name: given.get(name) for name in (*OPTIONS, *INFERENCE_OPTIONS)}
    set_ups = set_ups_of(check["phase"], run.batch_size, options)
    graph = read_cached(
        source,
        batch_size=run.batch_size,
        sequence_length=run.sequence_length,
        image_size=run.image_size,
        shapes=parse_shapes(run.shape or ()),
    )
    network = Network(graph, run.batch_size, check["precision"], check["phase"], *set_ups)
    power_limit = run.power_limit if isinstance(run, SetUpOptions) else None
    operation = operation_of(network, power_limit)

    def about(device: Device) -> Query:
        runtime = check.get("runtime") or usual_runtime(graph, device)
        software = Software(runtime=runtime, layout=check["layout"], threads=run.threads)
        return Query(network, device, software, operation)

    return about


def read_cached(source: Path, **sizes: Any) -> OperatorGraph:
    """The operator graph of a model file, kept between commands.

    Args:
        source: model file.
        sizes: arguments of `read_graph`.

    Raises:
        InputError: those of `read_graph`.
    """
    home = Settings.load().home
    with working(f"reading {source.name}"):
        return cached(
            home,
            source,
            ["graph", sizes],
            lambda: read_graph(source, **sizes),
            dump=as_text,
            load=from_text,
        )
