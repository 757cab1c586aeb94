"""`forerun devices`: the catalogue of spec sheets."""

from typing import Annotated, get_args

import typer

from forerun.service.cli.output import print_json, screen


def devices(
    name: Annotated[str | None, typer.Argument(help="one device; all when absent")] = None,
    kind: Annotated[str | None, typer.Option(help="gpu, cpu, npu, ...")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """List devices, or show one spec sheet with the source of every figure."""
    from forerun.data.device import DeviceKind
    from forerun.data.errors import InputError
    from forerun.service.device_store import load_catalog
    from forerun.service.settings import Settings

    catalog = load_catalog(Settings.load().home / "devices")
    if name is not None:
        device = catalog.get(name)
        if json:
            print_json(device.model_dump(mode="json"))
            return
        _sheet(device.model_dump(mode="json"))
        return
    if kind is not None and kind not in get_args(DeviceKind):
        raise InputError(f"--kind {kind!r} is none of {', '.join(get_args(DeviceKind))}.")
    chosen = [device for device in catalog if kind in (None, device.kind)]
    if not chosen:
        held = sorted({device.kind for device in catalog})
        raise InputError(f"No device is of kind {kind!r}; there are {', '.join(held)}.")
    if json:
        print_json({"devices": [device.model_dump(mode="json") for device in chosen]})
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "GiB", "GB/s", "fp32", "fp16", "TDP W", "year"):
        table.add_column(heading, justify="left" if heading == "name" else "right")
    for device in chosen:
        peaks = device.peak_tflops
        cells = (device.memory_gib, device.memory_bandwidth_gbs, peaks.get("fp32"))
        more = (peaks.get("fp16"), device.tdp_w, device.year)
        table.add_row(device.name, *("" if c is None else f"{c:g}" for c in (*cells, *more)))
    screen().print(table)


def _sheet(sheet: dict[str, object]) -> None:
    out = screen()
    sources = sheet.pop("sources")
    assert isinstance(sources, dict)
    for field, value in sheet.items():
        if value in (None, [], (), {}):
            continue
        if isinstance(value, dict):
            for part, figure in value.items():
                out.print(
                    f"{field}.{part}: {figure}  [dim]{sources.get(f'{field}.{part}', '')}[/dim]"
                )
            continue
        out.print(f"{field}: {value}  [dim]{sources.get(field, '')}[/dim]")
