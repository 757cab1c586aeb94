"""Adapt to a file of measurements or store them as observations, and register their device."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownGraph
from forerun.service.adaptation.measurement_files import (
    MODEL_FILES,
    GraphFolder,
    NamedRows,
    graph_folder_of,
    read_rows,
)
from forerun.service.adaptation.predictor_in_use import Adaptation, AdaptationResult
from forerun.service.answers.observing import Observed, observe
from forerun.service.loading import adaptation_here
from forerun.service.schemas.llm.answers import counted
from forerun.service.settings import Settings
from forerun.service.stores.device_sheets import detected_cpu, read_sheet
from forerun.service.stores.devices import DeviceStore, devices_of
from forerun.service.stores.measurement_sets import RepeatableRequest


def adapt_to_file(
    settings: Settings,
    name: str,
    file: Path,
    graphs: Path | None = None,
    report: Callable[[str], None] | None = None,
    deployment: Mapping[str, Any] | None = None,
) -> tuple[AdaptationResult, int]:
    """Store the measurements of a device in a file, and adapt the predictor to them.

    Returns:
        The stored set with the errors on held-out rows, and the number of unusable rows.

    Args:
        settings: name the predictor and where measurements are kept.
        name: name of the device.
        file: measurements, .parquet, .csv or .json.
        graphs: folder of the networks' graphs; `<table>-graphs` next to the file when None.
        report: called with a line before the measurements are scored.
        deployment: what the result of a load generator does not say, as in `read_rows`.

    Raises:
        UnknownDevice: no device has that name.
        InputError: the file or a row of it is not valid; the message names it.
    """
    with _opened(settings, name, file, graphs, deployment) as own:
        rows = own.rows
        if report is not None:
            for line in _deployments(rows):
                report(line)
            count = counted(len(rows.rows), "measurement")
            report(f"{count}, {rows.left_out} left out; scoring them")
        result = own.adaptation.learn(own.device.name, rows.rows, names=rows.names)
    return result, rows.left_out


def _deployments(rows: NamedRows) -> list[str]:
    """How served runs were deployed, which files of load generators do not say: a line for each."""
    workloads = [row.workload for row in rows.rows if row.workload.kind == "llm_deployment"]
    ways = Counter((own.engine.name, own.parallelism.tensor or 1) for own in workloads)
    return [
        f"{counted(number, 'run')} of {engine}, tensor parallel {degree} (--engine, --tp)"
        for (engine, degree), number in ways.items()
    ]


def observe_file(
    settings: Settings,
    name: str,
    file: Path,
    graphs: Path | None = None,
    deployment: Mapping[str, Any] | None = None,
) -> tuple[Observed, int]:
    """Store the measurements of a device in a file as observations; no answer changes.

    A file of the same measurements is stored once.

    Returns:
        The set as it is stored, and the number of unusable rows.

    Args:
        settings: name the predictor and where measurements are kept.
        name: name of the device.
        file: measurements, .parquet, .csv or .json.
        graphs: folder of the networks' graphs; `<table>-graphs` next to the file when None.
        deployment: what the result of a load generator does not say, as in `read_rows`.

    Raises:
        UnknownDevice: no device has that name.
        InputError: the file or a row of it is not valid; the message names it.
    """
    with _opened(settings, name, file, graphs, deployment) as own:
        rows = own.rows
        content = [row.model_dump(mode="json") for row in rows.rows]
        request = RepeatableRequest.of(RepeatableRequest.of("", content).digest, content)
        where = own.adaptation, own.devices, own.device.name
        return observe(*where, rows.rows, rows.names, request), rows.left_out


@dataclass(frozen=True, slots=True)
class _Opened:
    """The measurements of a device in a file, and what they are stored with."""

    adaptation: Adaptation
    devices: DeviceStore
    device: Device
    rows: NamedRows


@contextmanager
def _opened(
    settings: Settings,
    name: str,
    file: Path,
    graphs: Path | None,
    deployment: Mapping[str, Any] | None,
) -> Iterator[_Opened]:
    """Read a file, and say of a graph that is missing then in which folder it should be."""
    if graphs is not None and not graphs.is_dir():
        raise InputError(f"No folder {graphs}.")
    folder = GraphFolder(graphs or graph_folder_of(file))
    adaptation, devices = adaptation_here(settings, folder.get)
    device = devices.get(name)
    rows = read_rows(file, device, devices.catalog, deployment)
    try:
        yield _Opened(adaptation, devices, device, rows)
    except UnknownGraph as error:
        where = str(error).partition(": No graph")[0]
        raise InputError(
            f"{where} names a graph that is not in {folder.folder}: put its model file there "
            f"({', '.join(MODEL_FILES)}), or name another folder with --graphs."
        ) from None


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
    devices = devices_of(settings)
    known = {registered.name for registered in devices.catalog}
    catalog = devices.catalog if device.name in known else devices.catalog.with_device(device)
    read_rows(file, device, catalog)
    return devices.register(device)
