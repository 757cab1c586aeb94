"""GET, PUT and DELETE /v1/devices: spec sheets, and measurements to adapt to or to compare with."""

from time import perf_counter
from typing import Annotated

from fastapi import APIRouter, Body, Header, Path, Query

from forerun.data.device import Device, DeviceKind
from forerun.data.errors import InputError
from forerun.service.http.limits import JsonRoute
from forerun.service.http.state import TheAnswers, TheState, on_lane
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.measured_rows import MeasurementsIn, Source
from forerun.service.schemas.measurements import (
    AdaptationOut,
    DriftOut,
    ObservedOut,
    SetOut,
    SetsOut,
)
from forerun.service.schemas.prediction import EXAMPLE_SHEET, DevicesOut
from forerun.service.stores.measurement_sets import AlreadyStored, MeasurementSet, RepeatableRequest

router = APIRouter(prefix="/v1", route_class=JsonRoute)
DeviceName = Annotated[
    str, Path(description="name of a device", max_length=LONGEST_NAME, examples=["l4"])
]


@router.get("/devices", tags=["devices"])
async def devices(
    answers: TheAnswers,
    kind: Annotated[
        DeviceKind | None, Query(description="kind of device, such as gpu, cpu or npu")
    ] = None,
    vendor: Annotated[str | None, Query(description="vendor, in any case")] = None,
) -> DevicesOut:
    """Every spec sheet, or those of a kind or vendor."""
    return DevicesOut(devices=answers.devices.listed(kind, vendor))


@router.get("/devices/{name}", tags=["devices"])
def device(name: DeviceName, answers: TheAnswers) -> Device:
    """One spec sheet, with the source of every figure."""
    return answers.devices.get(name)


@router.put("/devices/{name}", tags=["devices"])
def put_device(
    name: DeviceName,
    sheet: Annotated[Device, Body(openapi_examples={"gpu": {"value": EXAMPLE_SHEET}})],
    answers: TheAnswers,
) -> Device:
    """Register a spec sheet; sheets of the catalogue cannot be replaced."""
    if sheet.name != name:
        raise InputError(f"The path names {name!r}, the sheet {sheet.name!r}; use the same name.")
    return answers.devices.register(sheet)


@router.delete("/devices/{name}", tags=["devices"], status_code=204)
@on_lane("adapt")
def delete_device(name: DeviceName, answers: TheAnswers) -> None:
    """Delete a registered spec sheet; 409 while measurements of the device are in use."""
    answers.delete_device(name)


CROSS_VALIDATION_S = 0.6
"""Time for cross-validation in a request, seconds; a few groups are held out one by one."""

SetId = Annotated[
    str, Path(alias="set", description="id of a set of measurements", max_length=LONGEST_NAME)
]


IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=LONGEST_NAME,
        description="unique text chosen by the client for each request, such as a UUID; a repeated "
        "request with the same text is answered as before and stored once",
    ),
]


@router.post("/devices/{name}/measurements", tags=["measurements"], status_code=201)
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

    def observed() -> ObservedOut:
        from forerun.service.answers.observing import summary_of

        found = answers.observe(name, given.measurements, request)
        if found.is_new:
            state.telemetry.observations.labels(found.kept.device).inc(len(found.kept.rows))
        return summary_of(found.kept)

    def adapted() -> AdaptationOut:
        start_s, rows = perf_counter(), given.measurements
        try:
            result = answers.adaptation.learn(name, rows, CROSS_VALIDATION_S, request=request)
        except AlreadyStored as stored:
            assert stored.before.answer is not None
            return AdaptationOut.model_validate_json(stored.before.answer)
        state.telemetry.adaptation.observe(perf_counter() - start_s)
        return result.out()

    return await (state.run(observed) if given.source == "observe" else state.adapt(adapted))


@router.get("/devices/{name}/measurements", tags=["measurements"])
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


@router.delete("/devices/{name}/measurements/{set}", tags=["measurements"])
@on_lane("adapt")
def undo_measurements(name: DeviceName, wanted: SetId, answers: TheAnswers) -> SetOut:
    """Roll back a set of measurements, which undoes its effect; repeating it changes nothing."""
    return described(answers.adaptation.undo(name, wanted))


def described(kept: MeasurementSet) -> SetOut:
    """The description of a set, without its rows."""
    return SetOut.filled(kept, set=kept.id, rows=len(kept.rows))


@router.get("/drift", tags=["measurements"])
@on_lane("report")
def drift(
    answers: TheAnswers,
    device: Annotated[
        str | None, Query(description="name of a device; all when missing", max_length=LONGEST_NAME)
    ] = None,
    version: Annotated[
        str | None,
        Query(
            description="version of the predictors whose answers are scored, `all` for every one; "
            "those in use when missing",
            max_length=LONGEST_NAME,
        ),
    ] = None,
) -> DriftOut:
    """Errors of the answers about observations, and which slices have drifted."""
    return answers.report(device, version)
