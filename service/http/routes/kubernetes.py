"""POST /v1/kubernetes/filter, /prioritize: a scheduler extender for Kubernetes, version 1."""

from collections.abc import Callable
from typing import Any, Final

from fastapi import APIRouter, Request, Response

from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.advice import Advice, advice_on
from forerun.service.http.kubernetes.extender import ExtenderArgs, filter_result, priorities
from forerun.service.http.state import State, TheAnswers, TheState

BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "description": "`ExtenderArgs` of k8s.io/kube-scheduler/extender/v1, keys in any case",
        "content": {"application/json": {"schema": {"type": "object"}}},
    }
}

router = APIRouter(prefix="/v1/kubernetes", tags=["kubernetes"])


@router.post("/filter", openapi_extra=BODY, response_model=dict[str, Any])
async def filter_nodes(request: Request, answers: TheAnswers, state: TheState) -> Response:
    """`ExtenderFilterResult`: nodes on which a pod meets its limits; unknown ones pass."""

    def result(asked: ExtenderArgs, advice: Advice) -> bytes:
        return filter_result(asked, advice.failed, advice.unresolvable)

    return await _answered(request, answers, state, result)


@router.post("/prioritize", openapi_extra=BODY, response_model=list[dict[str, Any]])
async def prioritize_nodes(request: Request, answers: TheAnswers, state: TheState) -> Response:
    """`HostPriorityList`: scores of nodes for a pod, from 0 to 10."""

    def result(asked: ExtenderArgs, advice: Advice) -> bytes:
        return priorities(advice.scores(asked))

    return await _answered(request, answers, state, result)


async def _answered(
    request: Request,
    answers: Answers,
    state: State,
    result: Callable[[ExtenderArgs, Advice], bytes],
) -> Response:
    content = await request.body()

    def work() -> bytes:
        asked = ExtenderArgs.of(content)
        return result(asked, advice_on(asked, answers, state.neighbours, state.cluster))

    return Response(await state.run(work), media_type="application/json")
