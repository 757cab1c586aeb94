"""Adapt the predictor to a file of measurements, and register the device that it is about."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.service.adaptation.measurement_files import (
    MODEL_FILES,
    GraphFolder,
    graph_folder_of,
    read_rows,
)
from forerun.service.adaptation.predictor_in_use import Adaptation, AdaptationResult
from forerun.service.settings import Settings
from forerun.service.stores.device_sheets import detected_cpu, read_sheet
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.places import place_of

Opens = Callable[[Callable[[str], OperatorGraph]], tuple[Adaptation, DeviceStore]]
"""From a function that finds graphs by digest to the adaptation and the store of devices."""


@dataclass(frozen=True, slots=True)
class Adapted:
    """The result of adapting to a file.

    Attributes:
        result: the stored set, and the errors on held-out rows.
        left_out: number of unusable rows of the file.
    """

    result: AdaptationResult
    left_out: int


def adapt_to_file(
    opens: Opens,
    name: str,
    file: Path,
    graphs: Path | None = None,
    report: Callable[[str], None] | None = None,
    deployment: Mapping[str, Any] | None = None,
) -> Adapted:
    """Store the measurements of a device in a file, and adapt the predictor to them.

    Args:
        opens: opens the adaptation, with the graphs that the file comes with.
        name: name of the device.
        file: measurements, .parquet, .csv or .json.
        graphs: folder of the networks' graphs; `<table>-graphs` next to the file when None.
        report: called with a line before the measurements are scored.
        deployment: what the result of a load generator does not say, as in `read_rows`.

    Raises:
        UnknownDevice: no device has that name.
        InputError: the file or a row of it is not valid; the message names it.
    """
    if graphs is not None and not graphs.is_dir():
        raise InputError(f"No folder {graphs}.")
    folder = GraphFolder(graphs or graph_folder_of(file))
    adaptation, devices = opens(folder.get)
    device = devices.get(name)
    named = read_rows(file, device, devices.catalog, deployment)
    if report is not None:
        report(f"{len(named.rows)} measurements, {named.left_out} left out; scoring them")
    try:
        result = adaptation.learn(device.name, named.rows, names=named.names)
    except UnknownGraph as error:
        where = str(error).partition(": No graph")[0]
        raise InputError(
            f"{where} names a graph that is not in {folder.folder}: put its model file there "
            f"({', '.join(MODEL_FILES)}), or name another folder with --graphs."
        ) from None
    return Adapted(result, named.left_out)


def register_for(settings: Settings, name: str, sheet: str, file: Path) -> Device:
    """Register a device with a sheet, which replaces an earlier one of the same name.

    Nothing is registered if the file holds no measurement of the device.

    Args:
        settings: the folder of devices.
        name: name of the device.
        sheet: path of the spec sheet; `auto` detects this machine's processor.
        file: measurements of the device.

    Raises:
        InputError: the sheet or the file is not valid.
    """
    device = detected_cpu(name) if sheet == "auto" else read_sheet(Path(sheet), name)
    devices = DeviceStore(place_of(settings) / "devices")
    known = {registered.name for registered in devices.catalog}
    catalog = devices.catalog if device.name in known else devices.catalog.with_device(device)
    read_rows(file, device, catalog)
    return devices.register(device)
