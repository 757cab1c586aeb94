"""Pods that serve language models: which nodes have the memory, and how fast they answer.

    forerun.dev/llm: llama-3.1-8b
    forerun.dev/input-tokens: "1024"
    forerun.dev/output-tokens: "256"
    forerun.dev/concurrency: "32"
    forerun.dev/max-tpot-ms: "40"

Annotations that are no option of the placement are fields of POST /v1/llm/estimate. Where no degree
of parallelism is given, the GPUs that the pod requests share each layer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.models.answers.deployments.arrivals import WITH_QUEUEING, rate_figure, rate_range
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.extender import ClusterNode
from forerun.service.http.kubernetes.nodes import devices_on
from forerun.service.log import log
from forerun.service.problems import valid
from forerun.service.requests.field_names import ALSO
from forerun.service.schemas.answers import Risk, ServingOut
from forerun.service.schemas.serving import LlmEstimateIn

Time = Literal[
    "ttft_ms",
    "tpot_ms",
    "request_latency_ms",
    "power_w",
    "energy_per_token_j",
    "usd_per_million_tokens",
]
Rate = Literal["requests_per_s", "tokens_per_s", "tokens_per_s_per_device"]
TIMES: Final = get_args(Time)
RATES: Final = get_args(Rate)
LATENCIES: Final = frozenset(("ttft_ms", "tpot_ms", "request_latency_ms"))
OPTIONS: Final = ("objective", "risk", "must_fit")
DEGREES: Final = {"parallelism", "prefill", "workers", "device_count"} | {
    name
    for path, names in ALSO.items()
    if path.partition(".")[0] in ("parallelism", "device_count")
    for name in names
}
"""Fields of a request that say how the model is divided over devices."""
Bound = Annotated[float, Field(ge=1e-9, le=1e15)]


class ServedIn(BaseModel):
    """What a pod that serves a language model asks of a node."""

    model_config = ConfigDict(extra="forbid")

    request: dict[str, Any]
    objective: Literal[Time, Rate] = "tpot_ms"
    risk: Risk = "high"
    must_fit: bool = True
    most: dict[Time, Bound] = Field(default_factory=dict)
    least: dict[Rate, Bound] = Field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Served:
    """What a node would serve.

    Attributes:
        broken: why the pod cannot run there; empty where it can, or nothing is known.
        value: value of the objective; None where it is not known.
    """

    broken: str = ""
    value: float | None = None


def served_by(fields: Mapping[str, Any]) -> ServedIn:
    """What annotations with the key `llm` ask for.

    Args:
        fields: annotation without prefix, with underscores -> its value.

    Raises:
        BadRequest: an annotation does not fit.
    """
    rest = dict(fields)
    model = rest.pop("llm")
    given: dict[str, Any] = {name: rest.pop(name) for name in OPTIONS if name in rest}
    given["most"] = {name: rest.pop(f"max_{name}") for name in TIMES if f"max_{name}" in rest}
    given["least"] = {name: rest.pop(f"min_{name}") for name in RATES if f"min_{name}" in rest}
    whole = model if isinstance(model, Mapping) else {"model": model}
    return valid(ServedIn, {**given, "request": {**whole, **rest}})


def served_on(
    wanted: ServedIn,
    requested: int | None,
    of_node: Mapping[str, Device],
    nodes: Sequence[ClusterNode],
    answers: Answers,
) -> dict[str, Served]:
    """Node -> what it would serve; each device is assessed once.

    Args:
        wanted: the model, its load and the limits.
        requested: GPUs that the pod requests; None where it requests none.
        of_node: node -> its device; other nodes are left out.
        nodes: the nodes.
        answers: answers questions about devices.

    Raises:
        BadRequest: the annotations are no request about a language model.
    """
    devices = list({device.name: device for device in of_node.values()}.values())
    asked = requests_on(wanted, requested, devices)
    found = dict(zip((device.name for device in devices), answers.served(asked), strict=True))
    counts = {node.name: requested or devices_on(node) for node in nodes}
    return {
        node: _assessed(wanted, found[device.name], counts[node], asked[0])
        for node, device in of_node.items()
    }


def requests_on(
    wanted: ServedIn, requested: int | None, devices: Sequence[Device]
) -> list[LlmEstimateIn]:
    """The request of POST /v1/llm/estimate for each device; arguments as those of `served_on`.

    Raises:
        BadRequest: the annotations are no request about a language model.
    """
    request = dict(wanted.request)
    if requested is not None and not DEGREES & request.keys():
        request["parallelism"] = {"tensor": requested}
    return [valid(LlmEstimateIn, {**request, "device": device}) for device in devices]


def _assessed(
    wanted: ServedIn, answer: ServingOut | InputError, count: int | None, asked: LlmEstimateIn
) -> Served:
    if isinstance(answer, InputError):
        log().warning("a device is not assessed for a language model", why=str(answer))
        return Served()
    if count is not None and answer.device_count > count:
        return Served(f"takes {answer.device_count} devices, there are {count}")
    short = _short_of_memory(answer, asked.concurrency if wanted.must_fit else None)
    overload, likely = _overload(wanted, answer, asked.requests_per_s)
    broken = short or overload or "; ".join(_beyond(wanted, answer))
    own = answer.metrics.get(wanted.objective)
    if own is None or (likely and wanted.objective in LATENCIES):
        return Served(broken)
    return Served(broken, own.value)


def _overload(wanted: ServedIn, answer: ServingOut, arriving: float | None) -> tuple[str, bool]:
    """Whether a node answers fewer requests than arrive, so that their times grow without end.

    Where that is more likely than not, every limit on a time is broken, except on a time per token
    that is not known. Where it is less likely, limits on times with queueing are broken, if limits
    apply to upper ends, because these have none.

    Returns:
        The limit on a time that this breaks, in words, empty for none; whether it is likely.
    """
    own = None if answer.deployment is None else answer.deployment.capacity
    if own is None or arriving is None:
        return "", False
    likely = arriving >= own.requests_per_s
    low = own.requests_per_s if own.low is None or wanted.risk != "high" else own.low
    known = LATENCIES & answer.metrics.keys()
    limited = wanted.most.keys() & (known | set(WITH_QUEUEING) if likely else known - {"tpot_ms"})
    if not limited or not (likely or arriving > low):
        return "", likely
    capacity = rate_range(own.requests_per_s, own.low, own.high)
    return f"{rate_figure(arriving)} requests/s arrive, {capacity} can be answered", likely


def _short_of_memory(answer: ServingOut, in_flight: float | None) -> str:
    """Why memory does not suffice; empty where it does, or it is not known.

    Args:
        answer: what the devices serve.
        in_flight: requests whose keys and values must fit; one where it is None.
    """
    for own in answer.deployment.memory if answer.deployment else ():
        if not own.fits:
            return own.sentence()
        if own.phase != "prefill" and in_flight and in_flight > own.largest_concurrency:
            return f"{own.sentence()}, not for {in_flight:,.0f}"
    return ""


def _beyond(wanted: ServedIn, answer: ServingOut) -> list[str]:
    """The limits that are known to be broken, in words."""
    broken = []
    for name, bound in (*wanted.most.items(), *wanted.least.items()):
        is_least, own = name in RATES, answer.metrics.get(name)
        if own is None:
            continue
        value = own.value if wanted.risk != "high" else own.low if is_least else own.high
        if value is not None and (value < bound if is_least else value > bound):
            which = ("lower end of " if is_least else "upper end of ") * (wanted.risk == "high")
            broken.append(f"{which}{name} is {value:,.4g}, the limit {bound:,.4g}")
    return broken
