"""What is wrong with what a pod asks for, found before it is created.

The annotations are read, and the workload is assessed, as the scheduler extender does later.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from http import HTTPStatus
from typing import Any, Final

from msgspec import Raw
from pydantic import ValidationError

from forerun.data.device import Device
from forerun.data.device_slices import why_no_slice
from forerun.data.errors import InputError, UnanswerableQuery, UnknownLanguageModel
from forerun.features.readers.language_model.reader import named_model
from forerun.service.answers.ranking import Kept
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.advice import by_device, rank_request
from forerun.service.http.kubernetes.extender import ClusterNode, ExtenderArgs, Pod
from forerun.service.http.kubernetes.language_models import RATES, TIMES, requests_on
from forerun.service.http.kubernetes.nodes import (
    OWN_LABEL,
    SHARES,
    SLICE_RESOURCE,
    WHOLE_DEVICES,
    devices_of,
    named_products,
    requested_devices,
    requested_resource,
    requested_slice,
)
from forerun.service.http.kubernetes.pods import LIMITS, MOST, OPTIONS, PREFIX, Placed, placed_by
from forerun.service.http.rank_requests import outcomes_of, queries_of
from forerun.service.problems import one_line, unfit
from forerun.service.requests.field_names import name_in
from forerun.service.schemas.prediction import NetworkIn

LIKE: Final = 0.6
"""Likeness from which on a name is taken for another one that is misspelt."""
OF_RANKING: Final = (*NetworkIn.model_fields, *OPTIONS, *MOST, *LIMITS)
OF_SERVING: Final = (*(f"max_{name}" for name in TIMES), *(f"min_{name}" for name in RATES))
NAMES: Final = ("llm", "workload", "program", "min_relative_speed", *OF_RANKING, *OF_SERVING)
"""Usual annotations, without their prefix and with underscores."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong.

    Attributes:
        name: the annotation, label or resource; empty for the pod.
        message: what is wrong, and how to mend it.
        is_error: whether the pod is refused; a warning otherwise.
    """

    name: str
    message: str
    is_error: bool = True


def findings_of(pod: Pod, answers: Answers, devices: Sequence[Device] = ()) -> list[Finding]:
    """What is wrong with a pod; nothing for one without annotations of forerun.

    Args:
        pod: the pod.
        answers: answers questions about devices.
        devices: where it will run, if the pod does not say so.

    Raises:
        InputError: nothing is known for now, such as `DeadlineExceeded`.
    """
    found = [*_misplaced(pod)]
    given = {
        name.removeprefix(PREFIX).replace("-", "_"): name
        for name in pod.metadata.annotations or ()
        if name.startswith(PREFIX)
    }
    if given:
        try:
            found += _of_placement(pod, placed_by(pod), answers, devices)
        except InputError as error:
            if error.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
                raise
            found += _refused(error, given)
    return [*dict.fromkeys(found)]


def _misplaced(pod: Pod) -> Iterator[Finding]:
    """Names that are nearly those of forerun, and annotations among the labels."""
    for name in (*(pod.metadata.annotations or ()), *(pod.metadata.labels or ())):
        prefix, slash, own = name.partition("/")
        if slash and f"{prefix}/" != PREFIX and get_close_matches(f"{prefix}/", [PREFIX], 1, 0.8):
            yield Finding(name, f"nothing reads this name; did you mean {PREFIX}{own}?")
    for name in pod.metadata.labels or ():
        if name.startswith(PREFIX):
            yield Finding(name, "labels of pods are not read: write it below metadata.annotations")


def _refused(error: InputError, given: Mapping[str, str]) -> Iterator[Finding]:
    """What the annotations got wrong: each field of a schema, or the one thing that was refused.

    Args:
        error: why they were refused.
        given: field -> annotation.
    """
    cause = error.__cause__
    if not isinstance(cause, ValidationError):
        yield Finding(_annotation(error.field, given) if error.field else "", one_line(str(error)))
        return
    for item in cause.errors():
        if item["type"] == "default_factory_not_called":
            continue
        name = _annotation(item["loc"], given)
        said = unfit([item], name_of=lambda path: _annotation(path.split("."), given)).detail
        message = said.removeprefix(f"{name}: ")
        if item["type"] == "extra_forbidden":
            own = name.removeprefix(PREFIX).replace("-", "_")
            known = [one for one in NAMES if "llm" in given or one not in OF_SERVING]
            close = get_close_matches(own, known, 1, LIKE)
            if own == "model" and _is_language_model(str(item["input"])):
                close = ["llm"]
            meant = f"; did you mean {PREFIX}{close[0].replace('_', '-')}?" if close else ""
            message = f"nothing reads it{meant}"
        yield Finding(name, message)


def _is_language_model(name: str) -> bool:
    try:
        named_model(name)
    except UnknownLanguageModel:
        return False
    return True


def _annotation(place: Iterable[str | int], given: Mapping[str, str]) -> str:
    """The annotation that gives the field of a path, or the one that is missing."""
    steps = [str(step) for step in place]
    further = name_in(given, ".".join(steps))
    names = [name for step in reversed(steps) for name in (step, f"max_{step}", f"min_{step}")]
    whole = ("llm",) if "llm" in given else ("workload",)
    own = next((name for name in (*names, further, *whole) if name in given), None)
    return f"{PREFIX}{steps[-1].replace('_', '-')}" if own is None else given[own]


def _of_placement(
    pod: Pod, placed: Placed, answers: Answers, devices: Sequence[Device]
) -> Iterator[Finding]:
    """What contradicts the devices that a pod names, and the GPUs that it requests.

    Raises:
        InputError: the annotations ask for what there is not.
    """
    if placed.ranking is None and placed.serving is None:
        return
    yield from _counts(pod)
    profile, resource, named = requested_slice(pod), requested_resource(pod), answers.devices.named
    products = [*named_products(pod), *((OWN_LABEL, one.name) for one in devices)]
    nodes = [ClusterNode(product, {label: product}, {}, Raw()) for label, product in products]
    known, whole = devices_of(nodes, profile, named), devices_of(nodes, None, named)
    for label, product in products:
        if product not in whole:
            try:
                answers.device(product)
            except InputError as error:
                yield Finding(label, str(error), is_error=label == OWN_LABEL)
        elif product not in known and resource.startswith(SLICE_RESOURCE):
            yield Finding(resource, why_no_slice(whole[product], profile or ""))
    # Without a device, only what is wrong on any is found.
    assessed = list(known.values()) or [next(d for d in answers.devices.catalog if d.kind == "gpu")]
    needed, problems = _assessed(pod, placed, answers, assessed)
    requested = requested_devices(pod)
    on_gpus = any(device.kind == "gpu" for device in known.values())
    contradiction = [*_contradicted(needed, requested, on_gpus, resource)]
    yield from contradiction
    yield from (Finding("", f"{name}: {why}", False) for name, why in problems.items() if known)
    left = [one for one in nodes if one.name in known and known[one.name].name not in problems]
    if left and not any(one.is_error for one in contradiction):
        broken = by_device(ExtenderArgs(pod, left, False, {}), placed, answers).unresolvable
        yield from (Finding("", why, len(broken) == len(nodes)) for why in broken.values())


def _assessed(
    pod: Pod, placed: Placed, answers: Answers, devices: Sequence[Device]
) -> tuple[int | None, dict[str, str]]:
    """How many devices the workload takes, and the name of a device -> why it is not assessed.

    Raises:
        InputError: the request is not valid on any device.
    """
    problems: dict[str, str] = {}
    if placed.serving is not None:
        requests = requests_on(placed.serving, requested_devices(pod), devices)
        counts = []
        for device, outcome in zip(devices, answers.served(requests), strict=True):
            if not isinstance(outcome, InputError):
                counts.append(outcome.device_count)
            elif isinstance(outcome, UnanswerableQuery):
                problems[device.name] = str(outcome)
            else:
                raise outcome
        return (counts[0] if counts else None), problems
    assert placed.ranking is not None
    request = rank_request(placed.ranking, devices)
    queries = queries_of(request, answers)
    for name, own in outcomes_of(request, answers).items():
        reasons = [] if isinstance(own, Kept) else own
        if unknown := [reason.sentence for reason in reasons if reason.unknown]:
            problems[name] = "; ".join(unknown)
    return queries[0].operation.device_count, problems


def _counts(pod: Pod) -> Iterator[Finding]:
    """Requests for GPUs that Kubernetes refuses, or takes for something else."""
    for one in (pod.spec and pod.spec.containers) or ():
        limits: Mapping[str, Any] = (one.resources and one.resources.limits) or {}
        requests: Mapping[str, Any] = (one.resources and one.resources.requests) or {}
        for name, count in {**requests, **limits}.items():
            is_gpu = name in WHOLE_DEVICES or name.startswith(SLICE_RESOURCE)
            close = get_close_matches(name, WHOLE_DEVICES, 1, 0.9)
            if is_gpu and not str(count).isdecimal():
                yield Finding(name, f"{count!r:.80} is not a number of GPUs; write 1, 2, ...")
            elif is_gpu and str(requests.get(name, limits.get(name))) != str(limits.get(name)):
                yield Finding(name, "requests and limits of GPUs must be equal; give limits alone")
            elif close and not is_gpu and not SHARES.fullmatch(name):
                yield Finding(name, f"no GPUs are requested by this name; did you mean {close[0]}?")


def _contradicted(
    needed: int | None, requested: int | None, on_gpus: bool, resource: str
) -> Iterator[Finding]:
    """What the pod's number of GPUs says against the number of devices of its workload."""
    if needed is None:
        return
    devices = f"{needed} device{'s' * (needed > 1)}"
    if requested is None:
        if on_gpus or needed > 1:
            said = f"the workload runs on {devices}, and no container requests GPUs"
            yield Finding(resource, said, is_error=False)
    elif needed > requested:
        said = f"the workload runs on {devices}, and {requested} are requested"
        yield Finding(resource, said)
    elif needed < requested:
        said = f"{requested} are requested, and the workload runs on {devices}"
        mend = f"request {needed}"
        if not resource.startswith(SLICE_RESOURCE):
            mend = f"give its degrees of parallelism, or {mend}"
        yield Finding(resource, f"{said}: {mend}", is_error=False)
