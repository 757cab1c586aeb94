"""From a model and options of its run to the queries that the predictors answer."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from forerun.data.device import Device
from forerun.data.errors import InputError, did_you_mean
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.service.python.model_source import Reading, name_of, read_model
from forerun.service.python.run_options import READING, RunOptions
from forerun.service.python.session import Session
from forerun.service.requests.faults import message_of
from forerun.service.schemas.prediction import KernelIn, NetworkIn, WorkloadIn
from forerun.service.schemas.run_options import RunIn
from forerun.service.schemas.workloads import operation_of, usual_software, workload_of

Request = TypeVar("Request", bound=BaseModel)


class UnknownOption(InputError):
    """A function takes no option of that name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        self.did_you_mean, hint = did_you_mean(name, known, 0.5, most=1)
        super().__init__(f"No option {name!r}. {hint}There are {', '.join(known)}.")


def checked_run(given: Mapping[str, Any]) -> RunIn:
    """The options of a run, checked.

    Raises:
        UnknownOption: there is no option of a name; the message suggests one.
        InputError: an option has an invalid value; the message names both.
    """
    known = tuple(RunOptions.__annotations__)
    for name in given:
        if name not in known:
            raise UnknownOption(name, known)
    values = {name: value for name, value in given.items() if name not in READING}
    return validated(RunIn, values)


def validated(kind: type[Request], content: object) -> Request:
    """The request of that content.

    Raises:
        InputError: a value is not valid; as `first_fault`.
    """
    with first_fault():
        return kind.model_validate(content)


@contextmanager
def first_fault(of: str = "") -> Iterator[None]:
    """Say the first fault of a validation in the block as one line: field, value, what is wrong.

    Args:
        of: what the line begins with.

    Raises:
        InputError: there is a fault.
    """
    try:
        yield
    except ValidationError as error:
        first = error.errors()[0]
        where, said = ".".join(map(str, first["loc"])), message_of(first)
        what = f"{where} {first['input']!r:.80}: {said}" if where else said
        raise InputError(of + what + "." * (not what.endswith((".", "?")))) from None


SOFTWARE = ("runtime", "layout", "threads", "instances")


@dataclass(frozen=True)
class Asked:
    """A workload with its options, before a device is chosen.

    Attributes:
        name: name of the model, for headings.
        run: options of the run.
        query: device -> query.
        graph: the network's operators; None for a workload of another kind.
    """

    name: str
    run: RunIn
    query: Callable[[Device], Query]
    graph: OperatorGraph | None = None


def asked_about(
    model: Any, options: Mapping[str, Any], here: Session, name: str | None = None
) -> Asked:
    """The question about a model, or about a workload in the form of POST /v1/predict.

    Args:
        model: as in `model_source.Model`, or a mapping with `kind`.
        options: as in `RunOptions`.
        here: the session.
        name: name of the model for headings; its own when None.

    Raises:
        InputError: an option or the workload is not valid.
        UnreadableModel: the model cannot be read.
    """
    run = checked_run(options)
    if isinstance(model, Mapping) and "kind" in model:
        return _workload(model, options, run, here)
    set_ups = run.set_ups()
    how = Reading(
        run.batch_size or 1,
        run.sequence_length,
        options.get("image_size"),
        {name: tuple(shape) for name, shape in (options.get("shapes") or {}).items()},
        options.get("example_inputs"),
    )
    graph = read_model(model, how)
    called = name or name_of(model)
    return Asked(called, run, lambda device: run.query(graph, device, set_ups), graph)


def _workload(
    model: Mapping[str, Any], options: Mapping[str, Any], run: RunIn, here: Session
) -> Asked:
    """The question about a workload that says itself how it is run."""
    with first_fault("model: "):
        given: Any = TypeAdapter(WorkloadIn).validate_python(dict(model))
    if not isinstance(given, KernelIn | NetworkIn):
        raise InputError(
            f"model: a workload of kind {given.kind} is asked by forerun.predict alone; this takes "
            "networks and operators."
        )
    superfluous = sorted(set(options) - {*SOFTWARE, *READING, "power_limit_w", "level"})
    if superfluous:
        raise InputError(f"{superfluous[0]}: write it into the workload, which has 'kind'.")
    workload = workload_of(given, here.graphs.get, "model")
    chosen = {name: getattr(run, name) for name in SOFTWARE if options.get(name) is not None}
    software, operation = Software(**chosen), operation_of(workload, run.power_limit_w)

    def query(device: Device) -> Query:
        own = usual_software(software, workload, device)
        return Query(workload, device, own, operation, run.level)

    network = workload.graph if isinstance(workload, Network) else None
    return Asked(name_of(model), run, query, network)
