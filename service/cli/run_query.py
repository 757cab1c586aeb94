"""The query about a model file that options of the command line describe."""

from collections.abc import Callable
from dataclasses import asdict
from difflib import get_close_matches
from pathlib import Path

from forerun.data.device import Device
from forerun.data.errors import InputError, UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.data.named.networks import network_named, network_names
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.readers import read_graph
from forerun.service.cli.options import checked
from forerun.service.cli.set_up import RunOptions, SetUpOptions
from forerun.service.schemas.training_options import INFERENCE_OPTIONS, OPTIONS, set_ups_of
from forerun.service.schemas.workloads import operation_of, usual_runtime


def query_of(source: Path, run: RunOptions) -> Callable[[Device], Query]:
    """A function from a device to the query that the options describe.

    Args:
        source: model file.
        run: how it is run; set-ups of training and inference only in `SetUpOptions`.

    Raises:
        InputError: an option has an invalid value, or options contradict each other.
        UnreadableModel: the file is not a readable model.
    """
    given = asdict(run)
    words = {name: given[name] for name in ("precision", "phase", "runtime", "layout")}
    check = checked({name: word for name, word in words.items() if word is not None})
    options = {name: given.get(name) for name in (*OPTIONS, *INFERENCE_OPTIONS)}
    set_ups = set_ups_of(check["phase"], run.batch_size, options)
    graph = _graph(source, run)
    network = Network(graph, run.batch_size, check["precision"], check["phase"], *set_ups)
    power_limit = run.power_limit if isinstance(run, SetUpOptions) else None
    operation = operation_of(network, power_limit)

    def about(device: Device) -> Query:
        runtime = check.get("runtime") or usual_runtime(graph, device)
        software = Software(runtime=runtime, layout=check["layout"], threads=run.threads)
        return Query(network, device, software, operation)

    return about


def _graph(source: Path, run: RunOptions) -> OperatorGraph:
    """The graph of a model file, or of a network that comes with the package, by its name."""
    if source.exists():
        return read_graph(source, batch_size=run.batch_size, sequence_length=run.sequence_length)
    graph = network_named(str(source))
    if graph is None:
        close = get_close_matches(str(source).lower(), network_names(), n=3, cutoff=0.6)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        raise UnreadableModel(
            str(source),
            f"there is no such file, and no network of that name.{hint} "
            "`forerun presets` lists networks and questions to try.",
        )
    if run.sequence_length is not None:
        raise InputError(
            "--sequence-length: the networks that come with forerun have a fixed input; "
            "give a model file."
        )
    return graph
