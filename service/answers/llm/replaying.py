"""Answers about a trace of requests: the event model, with iterations scaled to fitted times."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from math import isfinite
from typing import Any, Final

from pydantic import ValidationError

from forerun.data.columns import Column
from forerun.data.errors import BadRequest, in_field
from forerun.data.language_models.requests import Requests
from forerun.data.language_models.traces import named_trace, read_trace
from forerun.data.query import Query
from forerun.models.answers.deployments.limits import of_lengths
from forerun.models.answers.deployments.traced import Scales, scales_of, served
from forerun.models.answers.served_models import InUse
from forerun.models.llm_serving.continuous_batching import Statistics
from forerun.models.llm_serving.replay import Dispatch, Replay
from forerun.service.answers.answer import predictor_out
from forerun.service.answers.llm.question import DeploymentQuestion, DeviceNamed, question_of
from forerun.service.problems import place_of, unfit
from forerun.service.requests.field_names import name_in
from forerun.service.schemas.answers import DeviceOut
from forerun.service.schemas.llm.replay import LlmReplayIn, ReplayOut, ScalesOut, StatisticsOut
from forerun.service.schemas.serving import LlmEstimateIn

LOAD: Final = ("input_tokens", "output_tokens", "concurrency", "requests_per_s", "num_prompts")


def replay_of(asked: LlmReplayIn, device_named: DeviceNamed, in_use: InUse) -> ReplayOut:
    """What the requests of a trace meet.

    Raises:
        BadTrace: the requests cannot be read; the message says which.
        InputError: the deployment cannot be asked about.
    """
    if (asked.requests is None) == (asked.trace is None):
        raise BadRequest("Give either requests or the name of a trace.")
    with in_field("trace" if asked.requests is None else "requests"):
        given = asked.requests
        requests = named_trace(asked.trace or "") if given is None else read_trace(given)
    return replayed(asked.deployment(), requests, device_named, in_use, asked)


def replayed(
    deployment: Mapping[str, Any],
    requests: Requests,
    device_named: DeviceNamed,
    in_use: InUse,
    how: LlmReplayIn | None = None,
    name_of: Callable[[str], str] | None = None,
) -> ReplayOut:
    """What n requests meet.

    Args:
        deployment: fields of a request to `/v1/llm/estimate` without its load.
        requests: what arrives.
        device_named: the device of a name or a spec sheet.
        in_use: the predictor to whose times those of iterations are scaled.
        how: speed and dispatch.
        name_of: how what was asked names the field of a path; as the deployment writes it where it
            is None.

    Raises:
        BadRequest: a field does not fit, or is one of the load.
        InputError: the deployment cannot be asked about.
    """
    speed = 1.0 if how is None else how.speed
    dispatch: Dispatch = "round_robin" if how is None else how.dispatch
    requests = replace(requests, arrival_s=requests.arrival_s / speed)
    question = question_of(_estimate_in(deployment, requests, name_of), device_named)
    query = question.query
    pools = (query.deployment.pool, query.deployment.prefill)
    ranks = [own.workers * own.parallelism.attention_data for own in pools if own is not None]
    if dispatch == "least_loaded" and max(ranks) == 1:
        with in_field("dispatch"):
            raise BadRequest("There is one worker to send requests to: leave least_loaded out.")
    scales, limits = scales_of(query, requests, in_use)
    limits = [*_too_long(query, requests), *limits]
    found = served(query, requests, scales, dispatch)
    return _out(question, requests, found, scales, limits, in_use)


def _estimate_in(
    deployment: Mapping[str, Any],
    requests: Requests,
    name_of: Callable[[str], str] | None = None,
) -> LlmEstimateIn:
    """The request for an estimate with the mean load of a trace."""
    named = partial(_in_deployment, deployment) if name_of is None else name_of
    for path in LOAD:
        name = name_in(deployment, path)
        if name in deployment:
            with in_field(name):
                raise BadRequest(f"{named(path)} follows from the requests; leave it out.")
    mean = requests.load()
    load: dict[str, float] = {
        "input_tokens": mean.input_tokens,
        "output_tokens": mean.output_tokens,
    }
    if mean.requests_per_s is None:
        load["concurrency"] = float(len(requests))
    else:
        load["requests_per_s"] = mean.requests_per_s
    try:
        return LlmEstimateIn.model_validate({**deployment, **load})
    except ValidationError as error:
        first = error.errors()[0]
        with in_field(*place_of(first["loc"], first["type"], deployment)):
            raise BadRequest(unfit(error.errors(), name_of=named).detail) from None


def _in_deployment(deployment: Mapping[str, Any], path: str) -> str:
    """The path of a field, as the deployment writes it."""
    return ".".join(map(str, place_of(path.split("."), "missing", deployment)))


def _too_long(query: Query, requests: Requests) -> list[str]:
    """That some requests are longer than the model takes."""
    model, given, answers = query.deployment.model, requests.input_tokens, requests.output_tokens
    longest = int((given + answers).argmax())
    lengths = float(given[longest]), float(answers[longest])
    if model.encoder is not None:
        lengths = float(given.max()), float(answers.max())
    return [str(limit) for limit in of_lengths(model, *lengths)]


def _out(
    question: DeploymentQuestion,
    requests: Requests,
    found: Replay,
    scales: Scales,
    limits: list[str],
    in_use: InUse,
) -> ReplayOut:
    query = question.query
    device, count = query.device, query.operation.device_count
    return ReplayOut.filled(
        found,
        requests=len(requests),
        preempted=int((found.preemptions > 0).sum()),
        **{name: _statistics(own) for name, own in found.times_ms().items()},
        tokens_per_s_per_device=found.tokens_per_s / count,
        scales=ScalesOut.filled(scales),
        chosen=list(question.chosen),
        limits=limits,
        device=DeviceOut(name=device.name, origin=device.origin),
        device_count=count,
        predictor=predictor_out(in_use, in_use.rows.get(device, 0)),
    )


def _statistics(times_ms: Column) -> StatisticsOut:
    found = Statistics.of(times_ms)
    names = ("mean", "p50", "p90", "p99")
    values = {name: getattr(found, name) for name in names}
    return StatisticsOut(**{n: value if isfinite(value) else None for n, value in values.items()})
