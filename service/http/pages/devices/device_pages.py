"""The page *Devices*, and a page of each device."""

from starlette.responses import HTMLResponse

from forerun.data.device import Device
from forerun.service.http.pages.devices.figures import figures, roofline, similar, unknown
from forerun.service.http.pages.devices.measured import measured, values_by_device
from forerun.service.http.pages.rendering import page_router, rendered
from forerun.service.http.routes.devices import DeviceName
from forerun.service.http.state import TheAnswers, TheState

PATH = "/devices"

router = page_router()


@router.get(PATH)
async def devices_page(answers: TheAnswers) -> HTMLResponse:
    """All spec sheets, with the number of values that were measured on each device."""
    record = answers.adaptation.current().loaded.record
    catalog = answers.devices.catalog
    return rendered(
        "devices/devices.html",
        PATH,
        devices=sorted(catalog, key=lambda device: (device.kind, device.title.lower())),
        counted=values_by_device(measured(record)),
        half=half_rate,
        filters={
            "vendor": sorted({device.vendor for device in catalog}, key=str.lower),
            "kind": sorted({device.kind for device in catalog}),
        },
    )


@router.get(f"{PATH}/{{name}}")
async def device_page(name: DeviceName, answers: TheAnswers, state: TheState) -> HTMLResponse:
    """One spec sheet with sources, its roofline, and what was measured on the device."""

    def render() -> HTMLResponse:
        device = answers.devices.get(name)
        rows = measured(answers.adaptation.current().loaded.record)
        return rendered(
            "devices/device.html",
            PATH,
            device=device,
            figures=figures(device),
            unknown=unknown(device),
            rows=[row for row in rows if row.device == device.name],
            similar=similar(device, answers.devices.catalog),
            chart=roofline(device),
        )

    return await state.run(render)


def half_rate(device: Device) -> float | None:
    """Peak in fp16 or bf16, whichever is higher, 1e12 FLOP/s; None where neither is given."""
    rates = [device.peak_tflops.get(precision) for precision in ("fp16", "bf16")]
    return max((rate for rate in rates if rate is not None), default=None)
