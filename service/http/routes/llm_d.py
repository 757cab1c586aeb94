"""/v1/llm-d: the latency predictor of llm-d's router, with the deployment's model as its prior."""

from collections.abc import Sequence
from datetime import UTC, datetime
from time import perf_counter
from typing import Annotated

from fastapi import APIRouter, Path

from forerun.service.http.answers import Answers
from forerun.service.http.limits import JsonRoute
from forerun.service.http.state import State, TheAnswers, TheState, on_lane
from forerun.service.schemas.llm.routing import (
    AcceptedOut,
    RoutedIn,
    RoutedOut,
    RouterAllTimesOut,
    RouterEntriesIn,
    RouterStateIn,
    RouterStatesIn,
    RouterStatusOut,
    RouterTimesOut,
)

router = APIRouter(prefix="/v1/llm-d/{name}", tags=["serving"], route_class=JsonRoute)
Routed = Annotated[
    str,
    Path(
        description="name of the deployment",
        pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,62}$",
        examples=["qwen3"],
    ),
]
MODELS = {"ttft_model": True, "tpot_model": True}


@router.put("")
def put_routed(name: Routed, asked: RoutedIn, answers: TheAnswers, state: TheState) -> RoutedOut:
    """Store a deployment, whose model answers a router until it has measured requests."""
    return state.routing.put(name, asked, answers.device)


@router.get("")
def routed(name: Routed, answers: TheAnswers, state: TheState) -> RoutedOut:
    """A deployment, and how many measured requests it learned from."""
    return state.routing.described(name, answers.device)


@router.delete("", status_code=204)
def delete_routed(name: Routed, answers: TheAnswers, state: TheState) -> None:
    """Delete a deployment and its measured requests."""
    state.routing.delete(name)


@router.post("/add_training_data_bulk", status_code=202)
@on_lane("upload")
def add_entries(
    name: Routed, given: RouterEntriesIn, answers: TheAnswers, state: TheState
) -> AcceptedOut:
    """Store measured requests, which the next answers learn from."""
    state.routing.add(name, given.entries)
    return AcceptedOut(message=f"Accepted {len(given.entries)} training samples.")


@router.post("/predict")
def predict_one(
    name: Routed, asked: RouterStateIn, answers: TheAnswers, state: TheState
) -> RouterTimesOut:
    """Times of one request, by the state of the server that it would be sent to."""
    return _times(name, [asked], answers, state)[0]


@router.post("/predict/bulk", name="predict_any")
@router.post("/predict/bulk/strict")
def predict_all(
    name: Routed, asked: RouterStatesIn, answers: TheAnswers, state: TheState
) -> RouterAllTimesOut:
    """Times of several requests, or of one at several servers, in their order.

    A request that is not valid is refused with all others.
    """
    start_s = perf_counter()
    found = _times(name, asked.requests, answers, state)
    return RouterAllTimesOut(
        predictions=found,
        total_requests=len(found),
        successful_predictions=len(found),
        processing_time_ms=1e3 * (perf_counter() - start_s),
    )


@router.get("/model/download/info", name="model_info")
@router.get("/status")
def status(name: Routed, answers: TheAnswers, state: TheState) -> RouterStatusOut:
    """Whether a deployment is answered, as llm-d's client asks its two servers."""
    state.routing.described(name, answers.device)
    return RouterStatusOut(models_exist=MODELS, model_status=MODELS)


def _times(
    name: str, asked: Sequence[RouterStateIn], answers: Answers, state: State
) -> list[RouterTimesOut]:
    times = state.routing.predicted(name, asked, answers.device)
    now = datetime.now(UTC)
    return [
        RouterTimesOut(ttft_ms=ttft, tpot_ms=tpot, predicted_at=now)
        for ttft, tpot in zip(*(own.tolist() for own in times), strict=True)
    ]
