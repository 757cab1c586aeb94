"""Adapt to a file of measurements or store them as observations, and register their device."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.data.device import Device
from forerun.data.errors import InputError, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.service.adaptation.measurement_files import (
    MODEL_FILES,
    GraphFolder,
    NamedRows,
    graph_folder_of,
    read_rows,
)
from forerun.service.adaptation.predictor_in_use import Adaptation, AdaptationResult
from forerun.service.answers.observing import Observed, observe
from forerun.service.schemas.llm.answers import counted
from forerun.service.settings import Settings
from forerun.service.stores.device_sheets import detected_cpu, read_sheet
from forerun.service.stores.devices import DeviceStore, devices_of
from forerun.service.stores.measurement_sets import RepeatableRequest

Opens = Callable[[Callable[[str], OperatorGraph]], tuple[Adaptation, DeviceStore]]
"""From a function that finds graphs by digest to the adaptation and the store of devices."""


def adapt_to_file(
    opens: Opens,
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
    opened = _opened(opens, name, file, graphs, deployment)
    rows = opened.rows
    if report is not None:
        for line in _deployments(rows):
            report(line)
        report(f"{counted(len(rows.rows), 'measurement')}, {rows.left_out} left out; scoring them")
    with opened.graphs_named():
        result = opened.adaptation.learn(opened.device.name, rows.rows, names=rows.names)
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
    opens: Opens,
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
        opens: opens the adaptation, with the graphs that the file comes with.
        name: name of the device.
        file: measurements, .parquet, .csv or .json.
        graphs: folder of the networks' graphs; `<table>-graphs` next to the file when None.
        deployment: what the result of a load generator does not say, as in `read_rows`.

    Raises:
        UnknownDevice: no device has that name.
        InputError: the file or a row of it is not valid; the message names it.
    """
    opened = _opened(opens, name, file, graphs, deployment)
    rows = opened.rows
    content = [row.model_dump(mode="json") for row in rows.rows]
    request = RepeatableRequest.of(RepeatableRequest.of("", content).digest, content)
    with opened.graphs_named():
        observed = observe(
            opened.adaptation, opened.devices, opened.device.name, rows.rows, rows.names, request
        )
    return observed, rows.left_out


@dataclass(frozen=True, slots=True)
class _Opened:
    """The measurements of a device in a file, and what they are stored with."""

    adaptation: Adaptation
    devices: DeviceStore
    device: Device
    rows: NamedRows
    folder: GraphFolder

    @contextmanager
    def graphs_named(self) -> Iterator[None]:
        """Say of a graph that is missing in which folder it should be."""
        try:
            yield
        except UnknownGraph as error:
            where = str(error).partition(": No graph")[0]
            raise InputError(
                f"{where} names a graph that is not in {self.folder.folder}: put its model file "
                f"there ({', '.join(MODEL_FILES)}), or name another folder with --graphs."
            ) from None


def _opened(
    opens: Opens,
    name: str,
    file: Path,
    graphs: Path | None,
    deployment: Mapping[str, Any] | None,
) -> _Opened:
    if graphs is not None and not graphs.is_dir():
        raise InputError(f"No folder {graphs}.")
    folder = GraphFolder(graphs or graph_folder_of(file))
    adaptation, devices = opens(folder.get)
    device = devices.get(name)
    rows = read_rows(file, device, devices.catalog, deployment)
    return _Opened(adaptation, devices, device, rows, folder)


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
