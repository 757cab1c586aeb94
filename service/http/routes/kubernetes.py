"""POST /v1/kubernetes/filter, /prioritize: a scheduler extender for Kubernetes, version 1.

POST /v1/kubernetes/validate is a validating admission webhook.
GET /v1/kubernetes/table is for schedulers that read a table of all workload classes at once.
"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Response

from forerun.service.http.kubernetes.advice import advice_on
from forerun.service.http.kubernetes.extender import ExtenderArgs, filter_result, priorities
from forerun.service.http.kubernetes.findings import findings_of
from forerun.service.http.kubernetes.review import Asked, response
from forerun.service.http.kubernetes.table import LONGEST_WAIT_S, NoTable, is_known
from forerun.service.http.schemas import TableOut
from forerun.service.http.state import TheAnswers, TheBody, TheState, ThreadRoute, json_response


def _body(description: str) -> dict[str, Any]:
    """What the OpenAPI document says of a body that Kubernetes defines."""
    content = {"application/json": {"schema": {"type": "object"}}}
    return {"requestBody": {"required": True, "description": description, "content": content}}


BODY: Final = _body("`ExtenderArgs` of k8s.io/kube-scheduler/extender/v1, keys in any case")

router = APIRouter(prefix="/v1/kubernetes", tags=["kubernetes"], route_class=ThreadRoute)


@router.post("/filter", openapi_extra=BODY, response_model=dict[str, Any])
def filter_nodes(body: TheBody, answers: TheAnswers, state: TheState) -> Response:
    """`ExtenderFilterResult`: nodes on which a pod meets its limits; unknown ones pass."""
    asked = ExtenderArgs.of(body)
    advice = advice_on(asked, answers, state.neighbours, state.cluster)
    return json_response(filter_result(asked, advice.failed, advice.unresolvable))


@router.post("/prioritize", openapi_extra=BODY, response_model=list[dict[str, Any]])
def prioritize_nodes(body: TheBody, answers: TheAnswers, state: TheState) -> Response:
    """`HostPriorityList`: scores of nodes for a pod, from 0 to 10."""
    asked = ExtenderArgs.of(body)
    advice = advice_on(asked, answers, state.neighbours, state.cluster)
    return json_response(priorities(advice.scores(asked)))


@router.post(
    "/validate",
    openapi_extra=_body("`AdmissionReview` of admission.k8s.io/v1"),
    response_model=dict[str, Any],
)
def validate_pod(
    body: TheBody,
    answers: TheAnswers,
    timeout: Annotated[
        str | None, Query(max_length=20, description="time limit, which the API server adds")
    ] = None,
) -> Response:
    """`AdmissionReview`: a pod with wrong annotations is refused; others may get warnings."""
    asked = Asked.of(body)
    findings = findings_of(asked.pod, answers) if asked.pod else ()
    return json_response(response(asked.uid, findings))


@router.get(
    "/table",
    response_model=TableOut,
    responses={304: {"description": "The table still has the tag of `If-None-Match`."}},
)
async def table(
    answers: TheAnswers,
    state: TheState,
    wait_s: Annotated[
        float,
        Query(
            ge=0,
            le=LONGEST_WAIT_S,
            description="seconds to wait for a table whose tag is not in `If-None-Match`",
        ),
    ] = 0.0,
    if_none_match: Annotated[
        str | None, Header(max_length=1_000, description="tags of the tables it already has")
    ] = None,
) -> Response:
    """Latency, throughput and memory of workload classes by device.

    The operator names classes and devices in a file (`FORERUN_WORKLOAD_CLASSES`). The header `ETag`
    is a strong validator of the table, which changes with the file, the predictors and the sheets
    of the devices.
    """
    watched = state.table
    if watched is None:
        raise NoTable(
            "The operator sets FORERUN_WORKLOAD_CLASSES to a file with classes and devices."
        )
    tag = await watched.new_tag(if_none_match, wait_s, answers, state.run)
    if is_known(tag, if_none_match):
        return Response(status_code=304, headers=_validated(tag))
    tag, content = await state.run(lambda: watched.table.content(answers))
    return Response(content, media_type="application/json", headers=_validated(tag))


def _validated(tag: str) -> dict[str, str]:
    return {"ETag": f'"{tag}"', "Cache-Control": "no-cache"}
