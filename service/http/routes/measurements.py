"""POST /v1/devices/{name}/measurements: adapt the predictor to a few measurements."""

from typing import Annotated

from fastapi import APIRouter, Body, Path

from forerun.service.adaptation.predictor_in_use import AdaptationResult
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.routes.devices import DeviceName
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.measured_rows import MeasurementsIn
from forerun.service.schemas.measurements import AdaptationOut, ErrorOut, SetOut, SetsOut
from forerun.service.stores.measurement_sets import MeasurementSet

JUDGING_S = 0.6
"""Time for cross-validation in a request, seconds; a few groups are held out one by one."""

router = APIRouter(
    prefix="/v1/devices/{name}/measurements", tags=["measurements"], route_class=JsonRoute
)
SetId = Annotated[
    str, Path(alias="set", description="id of a set of measurements", max_length=LONGEST_NAME)
]


@router.post("", status_code=201)
async def put_measurements(
    name: DeviceName,
    given: Annotated[MeasurementsIn, Body()],
    answers: TheAnswers,
    state: TheState,
) -> AdaptationOut:
    """Store measurements of a device and adapt to them; the answer has errors on held-out rows."""
    return await state.adapt(
        lambda: _result(answers.adaptation.learn(name, given.measurements, JUDGING_S))
    )


@router.get("")
async def measurements(name: DeviceName, answers: TheAnswers, state: TheState) -> SetsOut:
    """A device's sets of measurements, including those that were rolled back."""

    def listed() -> SetsOut:
        device = answers.devices.get(name)
        sets = answers.adaptation.store.sets(device.name)
        return SetsOut(device=device.name, sets=[described(each) for each in sets])

    return await state.run(listed)


@router.delete("/{set}")
async def undo_measurements(
    name: DeviceName, wanted: SetId, answers: TheAnswers, state: TheState
) -> SetOut:
    """Roll back a set of measurements, which undoes its effect; repeating it changes nothing."""
    return await state.adapt(lambda: described(answers.adaptation.undo(name, wanted)))


def described(kept: MeasurementSet) -> SetOut:
    """The description of a set, without its rows."""
    return SetOut(set=kept.id, time=kept.time, rows=len(kept.rows), undone=kept.undone)


def _result(result: AdaptationResult) -> AdaptationOut:
    return AdaptationOut(
        set=result.kept.id,
        device=result.kept.device,
        rows=len(result.kept.rows),
        rows_in_use=result.rows,
        errors={
            name: ErrorOut.model_validate(error, from_attributes=True)
            for name, error in result.errors.metrics.items()
        },
        folds=result.errors.folds,
        one_by_one=result.errors.one_by_one,
        version=result.version,
    )
