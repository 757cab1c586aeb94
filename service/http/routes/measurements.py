"""POST /v1/devices/{name}/measurements: a few measurements, and the device is adapted."""

from typing import Annotated

from fastapi import APIRouter, Body, Path

from forerun.service.adaptation.predictor_in_use import AdaptationResult
from forerun.service.http.routes.devices import DeviceName
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.measured_rows import MeasurementsIn
from forerun.service.schemas.measurements import AdaptationOut, ErrorOut, SetOut, SetsOut
from forerun.service.schemas.prediction import LONGEST_NAME
from forerun.service.stores.measurement_sets import MeasurementSet

JUDGING_S = 0.6
"""Time for errors on held-out rows in an answer; few rows are held out one by one."""

router = APIRouter(prefix="/v1/devices/{name}/measurements", tags=["measurements"])
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
    """Measure a few workloads, and the device is adapted from then on; says what it gained."""
    return await state.adapt(
        lambda: _learnt(answers.adaptation.learn(name, given.measurements, JUDGING_S))
    )


@router.get("")
async def measurements(name: DeviceName, answers: TheAnswers, state: TheState) -> SetsOut:
    """A device's sets of measurements, those rolled back too."""

    def listed() -> SetsOut:
        device = answers.devices.get(name)
        sets = answers.adaptation.store.sets(device.name)
        return SetsOut(device=device.name, sets=[described(one) for one in sets])

    return await state.run(listed)


@router.delete("/{set}")
async def undo_measurements(
    name: DeviceName, wanted: SetId, answers: TheAnswers, state: TheState
) -> SetOut:
    """Roll a set of measurements back: answers are as they were without it. Twice is once."""
    return await state.adapt(lambda: described(answers.adaptation.undo(name, wanted)))


def described(one: MeasurementSet) -> SetOut:
    """A set without its rows."""
    return SetOut(set=one.id, time=one.time, rows=len(one.rows), undone=one.undone)


def _learnt(learnt: AdaptationResult) -> AdaptationOut:
    return AdaptationOut(
        set=learnt.kept.id,
        device=learnt.kept.device,
        rows=len(learnt.kept.rows),
        rows_in_use=learnt.rows,
        errors={
            name: ErrorOut.model_validate(error, from_attributes=True)
            for name, error in learnt.errors.metrics.items()
        },
        folds=learnt.errors.folds,
        one_by_one=learnt.errors.one_by_one,
        version=learnt.version,
    )
