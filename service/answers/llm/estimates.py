"""Estimates of language models that serve: by their sizes, or as deployments with lengths."""

from collections.abc import Sequence

from forerun.data.errors import InputError, in_field
from forerun.data.query import Operation, Query
from forerun.models.answers.in_use import InUse
from forerun.service.answers.llm.deployed import Deployed, deployed_all
from forerun.service.answers.llm.question import DeploymentQuestion, DeviceNamed, question_of
from forerun.service.answers.predictor_out import predictor_out
from forerun.service.answers.serving import estimated_all, graded
from forerun.service.schemas.answers import DeviceOut, LimitOut, ServingOut
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

    Args:
        asked: n requests, with lengths or without.
        device_named: the device of a name or a spec sheet.
        in_use: the predictor that answers; it is called once for each kind of request.
    """
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
    known = deployed_all(list(deployments.values()), in_use)
    outcomes |= {
        row: own if isinstance(own, InputError) else _out(own, in_use)
        for row, own in zip(deployments, known, strict=True)
    }
    return [_with_sizes(outcomes[row], one) for row, one in enumerate(asked)]


def _sized(asked: LlmEstimateIn, device_named: DeviceNamed) -> Query:
    """The query of a request without lengths."""
    with asked.as_written(), in_field("device"):
        device = device_named(asked.device)
    with asked.as_written(), in_field("model"):
        workload = asked.model.workload()
    return Query(workload, device, operation=Operation(device_count=asked.device_count))


def _out(own: Deployed, in_use: InUse) -> ServingOut:
    """What is known of a deployment, as an answer."""
    device = own.query.device
    return ServingOut(
        metrics={name: graded(name, e, own.trust[name]) for name, e in own.estimates.items()},
        missing=dict(own.missing),
        in_domain=all(limit.in_domain for limit in own.limits),
        limits=[str(limit) for limit in own.limits],
        limit_details=[LimitOut.of(limit) for limit in own.limits],
        device=DeviceOut(name=device.name, origin=device.origin),
        device_count=own.query.operation.device_count,
        predictor=predictor_out(in_use, in_use.rows.get(device, 0)),
        deployment=own.out,
    )


def _with_sizes(answer: ServingOut | InputError, asked: LlmEstimateIn) -> ServingOut | InputError:
    if isinstance(answer, InputError):
        return answer
    sizes = asked.model.sizes()
    return answer if sizes is None else answer.model_copy(update={"model": sizes})
