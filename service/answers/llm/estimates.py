"""Estimates of language models that serve: by their sizes, or as deployments with lengths."""

from collections.abc import Sequence

from forerun.data.errors import InputError, UnanswerableQuery, in_field
from forerun.data.query import Operation, Query
from forerun.models.answers.deployments.answer import Deployed, deployed_all
from forerun.models.answers.deployments.burst import with_burst
from forerun.models.answers.served_models import InUse
from forerun.service.answers.answer import estimated_all, graded, rendered
from forerun.service.answers.llm.question import (
    DeploymentQuestion,
    DeviceNamed,
    check_joined,
    question_of,
)
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.llm.answers import (
    CapacityOut,
    DeploymentOut,
    EngineOut,
    PartOut,
    PoolMemoryOut,
    PoolOut,
    PriceOut,
)
from forerun.service.schemas.serving import LlmEstimateIn


def llm_estimate(asked: LlmEstimateIn, device_named: DeviceNamed, in_use: InUse) -> ServingOut:
    """The estimate that a request asks for.

    Raises:
        InputError: the request cannot be answered; the message says why.
    """
    (answer,) = llm_estimates([asked], device_named, in_use)
    if isinstance(answer, InputError):
        raise answer
    return answer


def llm_estimates(
    asked: Sequence[LlmEstimateIn], device_named: DeviceNamed, in_use: InUse
) -> list[ServingOut | InputError]:
    """The estimate of each request, or the error that prevents one.

    Requests that arrive at a rate while at most a number are in flight are those of the closed loop
    where that answers fewer than arrive.

    Args:
        asked: n requests, with lengths or without.
        device_named: the device of a name or a spec sheet.
        in_use: the predictor that answers; it is called once for each kind of request.
    """
    closed = [one.closed for one in asked if one.closed is not None]
    answers = _estimates([*asked, *closed], device_named, in_use)
    others = iter(answers[len(asked) :])
    return [
        own if one.closed is None else _limited(own, next(others), one.requests_per_s)
        for one, own in zip(asked, answers, strict=False)
    ]


def _limited(
    own: ServingOut | InputError, closed: ServingOut | InputError, requests_per_s: float | None
) -> ServingOut | InputError:
    """The answer about the closed loop where it answers fewer requests than arrive."""
    if isinstance(closed, InputError) or requests_per_s is None:
        return closed
    answered = closed.metrics.get("requests_per_s")
    return closed if answered is None or answered.value < requests_per_s else own


def _estimates(
    asked: Sequence[LlmEstimateIn], device_named: DeviceNamed, in_use: InUse
) -> list[ServingOut | InputError]:
    """As `llm_estimates`, of each load as it stands."""
    outcomes: dict[int, ServingOut | InputError] = {}
    by_sizes: dict[int, Query] = {}
    deployments: dict[int, DeploymentQuestion] = {}
    for row, one in enumerate(asked):
        try:
            if one.has_lengths:
                deployments[row] = question_of(one, device_named)
            else:
                by_sizes[row] = _sized(one, device_named)
        except InputError as error:
            outcomes[row] = error
    answers = estimated_all(list(by_sizes.values()), in_use)
    outcomes |= zip(by_sizes, answers, strict=True)
    questions = list(deployments.values())
    known = deployed_all(
        [question.query for question in questions],
        in_use,
        [one.usd_per_device_hour for one in questions],
    )
    for row, own in zip(deployments, known, strict=True):
        try:
            outcomes[row] = (
                own if isinstance(own, InputError) else _out(own, deployments[row], in_use)
            )
        except InputError as error:
            outcomes[row] = error
    return [_with_sizes(outcomes[row], one) for row, one in enumerate(asked)]


def _sized(asked: LlmEstimateIn, device_named: DeviceNamed) -> Query:
    """The query of a request without lengths."""
    with asked.as_written(), in_field("device"):
        device = device_named(asked.device)
    if device.kind == "cpu":
        raise UnanswerableQuery(
            f"Times on {device.name} follow from lengths: give input_tokens, output_tokens and "
            "concurrency (--input-tokens 512 --output-tokens 128 --concurrency 1)."
        )
    with asked.as_written():
        check_joined(device, {"device_count": asked.device_count})
    with asked.as_written(), in_field("model"):
        workload = asked.model.workload()
    operation = Operation(device_count=asked.device_count)
    return Query(workload, device, operation=operation, level=asked.level)


def _out(own: Deployed, question: DeploymentQuestion, in_use: InUse) -> ServingOut:
    """What is known of a deployment, as an answer.

    Raises:
        UnanswerableQuery, DeadlineExceeded: as `with_burst`.
    """
    if question.prompts is not None:
        own = with_burst(own, question.prompts, in_use)
    return ServingOut(
        **rendered(own.query, own.limits, in_use),
        metrics={name: graded(name, e, own.trust[name]) for name, e in own.estimates.items()},
        missing=dict(own.missing),
        device_count=own.query.operation.device_count,
        deployment=_deployment(own, question.chosen),
    )


def _deployment(own: Deployed, chosen: Sequence[str]) -> DeploymentOut:
    """What was assumed, memory, price and parts.

    Args:
        own: what is known of it.
        chosen: what was chosen where the request leaves it open.
    """
    deployment, capacity = own.query.deployment, own.capacity
    return DeploymentOut(
        engine=EngineOut.filled(deployment.engine),
        pool=PoolOut.of(deployment.pool),
        prefill=None if (pool := deployment.prefill) is None else PoolOut.of(pool),
        chosen=list(chosen),
        capacity=None
        if capacity is None
        else CapacityOut(requests_per_s=capacity.value, low=capacity.low, high=capacity.high),
        replicas=own.replicas,
        memory=[PoolMemoryOut.filled(memory) for memory in own.memory],
        limited_by=own.limited_by,
        price=None if own.price is None else PriceOut.filled(own.price),
        parts=[PartOut.filled(part) for part in own.parts],
    )


def _with_sizes(answer: ServingOut | InputError, asked: LlmEstimateIn) -> ServingOut | InputError:
    if isinstance(answer, InputError):
        return answer
    sizes = asked.model.sizes(asked.engine.name)
    return answer if sizes is None else answer.model_copy(update={"model": sizes})
