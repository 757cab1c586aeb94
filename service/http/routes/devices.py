"""GET, PUT and DELETE /v1/devices: list, read, register and delete spec sheets."""

from typing import Annotated

from fastapi import APIRouter, Body, Path, Query

from forerun.data.device import Device, DeviceKind
from forerun.data.errors import InputError
from forerun.service.http.json_bodies import JsonRoute
from forerun.service.http.state import TheAnswers, TheState
from forerun.service.schemas.fields import LONGEST_NAME
from forerun.service.schemas.prediction import EXAMPLE_SHEET, DevicesOut

router = APIRouter(prefix="/v1/devices", tags=["devices"], route_class=JsonRoute)
DeviceName = Annotated[
    str, Path(description="name of a device", max_length=LONGEST_NAME, examples=["l4"])
]


@router.get("")
async def devices(
    answers: TheAnswers,
    kind: Annotated[
        DeviceKind | None, Query(description="kind of device, such as gpu, cpu or npu")
    ] = None,
    vendor: Annotated[str | None, Query(description="vendor, in any case")] = None,
) -> DevicesOut:
    """Every spec sheet, or those of a kind or vendor."""
    wanted = vendor.lower() if vendor else None
    return DevicesOut(
        devices=[
            device
            for device in answers.devices.catalog
            if kind in (None, device.kind) and wanted in (None, device.vendor.lower())
        ]
    )


@router.get("/{name}")
async def device(name: DeviceName, answers: TheAnswers, state: TheState) -> Device:
    """One spec sheet, with the source of every figure."""
    return await state.run(lambda: answers.devices.get(name))


@router.put("/{name}")
async def put_device(
    name: DeviceName,
    sheet: Annotated[Device, Body(openapi_examples={"gpu": {"value": EXAMPLE_SHEET}})],
    answers: TheAnswers,
    state: TheState,
) -> Device:
    """Register a spec sheet; sheets of the catalogue cannot be replaced."""
    if sheet.name != name:
        raise InputError(f"The path says {name!r}, the sheet {sheet.name!r}; make them alike.")

    return await state.run(lambda: answers.devices.register(sheet))


@router.delete("/{name}", status_code=204)
async def delete_device(name: DeviceName, answers: TheAnswers, state: TheState) -> None:
    """Delete a registered spec sheet; 409 while measurements of the device are in use."""
    await state.adapt(lambda: answers.delete_device(name))
