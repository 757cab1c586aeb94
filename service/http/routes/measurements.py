"""POST /v1/devices/{name}/measurements: adapt to measurements, or compare answers with them."""

from time import perf_counter
from typing import Annotated

from fastapi import APIRouter, Body, Header, Path, Query

from forerun.service.http.answers import Answers
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.routes.devices import DeviceName
from forerun.service.http.state import State, TheAnswers, TheState
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.measured_rows import MeasurementsIn, Source
from forerun.service.schemas.measurements import AdaptationOut, SetOut, SetsOut
from forerun.service.schemas.observations import ObservedOut
from forerun.service.stores.idempotency import RepeatableRequest
from forerun.service.stores.measurement_sets import AlreadyStored, MeasurementSet

CROSS_VALIDATION_S = 0.6
"""Time for cross-validation in a request, seconds; a few groups are held out one by one."""

router = APIRouter(
    prefix="/v1/devices/{name}/measurements", tags=["measurements"], route_class=JsonRoute
)
SetId = Annotated[
    str, Path(alias="set", description="id of a set of measurements", max_length=LONGEST_NAME)
]


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=LONGEST_NAME,
        description="a text that the client chooses anew for each request, such as a UUID; a "
        "request that is repeated with it is answered as before and stored once",
    ),
]


@router.post("", status_code=201)
async def put_measurements(
    name: DeviceName,
    given: Annotated[MeasurementsIn, Body()],
    answers: TheAnswers,
    state: TheState,
    key: IdempotencyKey = None,
) -> AdaptationOut | ObservedOut:
    """Store measurements of a device.

    With the source `adapt`, answers adapt to them, and the answer has errors on held-out rows. With
    `observe` answers are compared with them and never change (`GET /v1/drift`).
    """
    request = None if key is None else RepeatableRequest.of(key, given.model_dump(mode="json"))
    if given.source == "observe":
        return await state.run(lambda: _observed(answers, state, name, given, request))
    return await state.adapt(lambda: _adapted(answers, state, name, given, request))


def _observed(
    answers: Answers,
    state: State,
    name: str,
    given: MeasurementsIn,
    request: RepeatableRequest | None,
) -> ObservedOut:
    from forerun.service.answers.observing import summary_of

    observed = answers.observe(name, given.measurements, request)
    if observed.is_new:
        kept = observed.kept
        state.telemetry.observations.labels(kept.device).inc(len(kept.rows))
    return summary_of(observed.kept)


def _adapted(
    answers: Answers,
    state: State,
    name: str,
    given: MeasurementsIn,
    request: RepeatableRequest | None,
) -> AdaptationOut:
    start_s = perf_counter()
    try:
        result = answers.adaptation.learn(
            name,
            given.measurements,
            CROSS_VALIDATION_S,
            request=request,
        )
    except AlreadyStored as stored:
        assert stored.before.answer is not None
        return AdaptationOut.model_validate_json(stored.before.answer)
    state.telemetry.adaptation.observe(perf_counter() - start_s)
    return result.out()


@router.get("")
async def measurements(
    name: DeviceName,
    answers: TheAnswers,
    state: TheState,
    source: Annotated[
        Source, Query(description="adapt for sets that answers adapt to, observe for observations")
    ] = "adapt",
) -> SetsOut:
    """A device's sets of measurements of one source, including those that were rolled back."""

    def listed() -> SetsOut:
        device = answers.devices.get(name)
        sets = answers.adaptation.store.sets(device.name, source)
        return SetsOut(device=device.name, sets=[described(each) for each in sets])

    # There may be thousands of observations.
    return await (state.run if source == "adapt" else state.report)(listed)


@router.delete("/{set}")
async def undo_measurements(
    name: DeviceName, wanted: SetId, answers: TheAnswers, state: TheState
) -> SetOut:
    """Roll back a set of measurements, which undoes its effect; repeating it changes nothing."""
    return await state.adapt(lambda: described(answers.adaptation.undo(name, wanted)))


def described(kept: MeasurementSet) -> SetOut:
    """The description of a set, without its rows."""
    return SetOut(
        set=kept.id, time=kept.time, rows=len(kept.rows), undone=kept.undone, source=kept.source
    )
