"""Measurements in files: tables in the row schema, and lists in JSON as they go over HTTP."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import BadTable, InputError, MissingData, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.data.measurement import METRIC_COLUMNS, crowded, read_measurements
from forerun.features.readers import read_graph
from forerun.service.log import log
from forerun.service.problems import unfit
from forerun.service.schemas.measured_rows import MOST_ROWS, MeasuredRow

if TYPE_CHECKING:
    import pandas as pd

MODEL_FILES = (".json", ".onnx", ".pt2")
SOFTWARE = {
    "framework": "framework",
    "framework_version": "version",
    "runtime": "runtime",
    "layout": "layout",
    "cuda": "cuda",
    "driver": "driver",
    "threads": "threads",
}
"""Column of a table -> field of `Software`."""


@dataclass(frozen=True)
class NamedRows:
    """Rows of a file, and what messages call each.

    Attributes:
        rows: runs that went well.
        names: one each, such as `row 3`.
        left_out: rows of other devices, runs that failed, were throttled, crowded by others or
            recorded as CUDA graphs, nothing filled in yet.
    """

    rows: tuple[MeasuredRow, ...]
    names: tuple[str, ...]
    left_out: int = 0


@dataclass(frozen=True)
class GraphFolder:
    """Graphs and models in a folder, by digest or by file name.

    Attributes:
        folder: it need not be there.
    """

    folder: Path
    _graphs: dict[Path, OperatorGraph] = field(default_factory=dict, repr=False, compare=False)

    def get(self, name: str) -> OperatorGraph:
        """The graph of that digest or file name; ONNX files are read at batch size 1.

        Raises:
            UnknownGraph: no file is or holds it.
        """
        named = {file.name: file for file in model_files(self.folder)}
        file = named.get(name) or named.get(f"{name}.json") or self._by_digest.get(name)
        if file is None:
            raise UnknownGraph(name)
        return self._read(file)

    def _read(self, file: Path) -> OperatorGraph:
        graph = self._graphs.get(file)
        if graph is None:
            graph = self._graphs[file] = read_graph(file)
        return graph

    @cached_property
    def _by_digest(self) -> dict[str, Path]:
        found = {}
        for file in model_files(self.folder):
            try:
                found[self._read(file).digest] = file
            except InputError as error:
                log().warning("a file is left out", file=file.name, why=str(error))
        return found


def model_files(folder: Path) -> list[Path]:
    """Files in a folder that may be models or graphs, by name."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix in MODEL_FILES and p.is_file())


def graph_folder_of(table: Path) -> Path:
    """Where a table's graphs are when nothing else is said: `<stem>-graphs` beside it."""
    return table.with_name(f"{table.stem}-graphs")


def read_rows(path: Path, device: Device, catalog: DeviceCatalog) -> NamedRows:
    """The measurements of a device in a file: .parquet or .csv, else JSON.

    In a table `workload` is a graph's digest (or its file's name), or, for kind `kernel`, the
    operator as JSON; null cells are the defaults of POST /v1/predict. JSON is a list of
    measurements as POST /v1/devices/{name}/measurements takes them, or its whole body; all are of
    this device.

    Raises:
        MissingData: no such file.
        BadTable: it is no such file, or holds no measurement of the device; names what is wrong.
    """
    table = path.suffix in (".parquet", ".csv")
    found = _from_table(path, device, catalog) if table else _from_json(path)
    if not found.rows:
        raise BadTable(f"{path}: no measurement to learn from; {found.left_out} are left out.")
    if len(found.rows) > MOST_ROWS:
        raise BadTable(f"{path}: {len(found.rows):,} measurements; {MOST_ROWS:,} at most at once.")
    return found


def _from_json(path: Path) -> NamedRows:
    if not path.is_file():
        raise MissingData(f"No file {path}.")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise BadTable(f"{path}: neither .parquet, .csv nor sound JSON: {error}.") from None
    if isinstance(content, dict):
        content = content.get("measurements")
    if not isinstance(content, list):
        raise BadTable(f"{path}: it holds no list of measurements.")
    rows = _validated(path, content)
    filled = [place for place, row in enumerate(rows) if row.measured()]
    return NamedRows(
        tuple(rows[place] for place in filled),
        tuple(f"{path}: measurement {place}" for place in filled),
        len(rows) - len(filled),
    )


def _validated(path: Path, content: Sequence[Any]) -> list[MeasuredRow]:
    try:
        return TypeAdapter(list[MeasuredRow]).validate_python(content)
    except ValidationError as error:
        raise BadTable(f"{path}: measurement {unfit(error.errors()).detail}") from None


def _from_table(path: Path, device: Device, catalog: DeviceCatalog) -> NamedRows:
    frame = read_measurements(path)
    names = {name: _is(name, device, catalog) for name in frame["device"].unique()}
    if not any(names.values()):
        raise BadTable(
            f"{path}: no row is of {device.name}; column 'device' has {', '.join(sorted(names))}."
        )
    mine = frame["device"].map(names) & (frame["status"] == "ok") & ~_recorded(frame)
    quiet = mine & ~crowded(frame)
    mine = quiet if quiet.any() else mine
    rows, called = [], []
    for place, row in frame[mine].astype(object).where(frame[mine].notna(), None).iterrows():
        called.append(f"{path}: row {int(str(place)) + 1}")
        rows.append(_row({str(k): v for k, v in row.items()}, called[-1]))
    return NamedRows(tuple(rows), tuple(called), len(frame) - len(rows))


def _undisturbed(given: dict[str, Any]) -> dict[str, Any]:
    """The cells, with the fastest run for the typical one where others kept the machine busy."""
    if str(given.get("disturbed")).lower() != "true" or not given.get("fastest_ms"):
        return given
    return given | {"latency_ms": given["fastest_ms"]}


def _spread(given: dict[str, Any]) -> dict[str, float]:
    """How far a row's repeats spread, or what others took of the machine, if that is more."""
    known = [given[name] for name in ("spread", "others_share") if name in given]
    return {"spread": min(100.0, max(0.0, *map(float, known), 0.0))} if known else {}


def _recorded(frame: "pd.DataFrame") -> "pd.Series[bool]":
    """Runs launched as one CUDA graph, which `Software` has no word for."""
    if "cuda_graph" not in frame:
        return frame["status"] == ""
    return frame["cuda_graph"].astype(str).str.lower() == "true"


def _is(name: str, device: Device, catalog: DeviceCatalog) -> bool:
    try:
        return catalog.get(name).name == device.name
    except InputError:
        return False


def _row(cells: dict[str, Any], called: str) -> MeasuredRow:
    given = _undisturbed({key: value for key, value in cells.items() if value is not None})
    text = given["workload"]
    kind = given.get("kind") or ("kernel" if text.lstrip().startswith("{") else "network")
    workload: dict[str, Any] = {"kind": kind}
    if kind == "kernel":
        try:
            workload["operator"] = json.loads(text)
        except ValueError:
            raise BadTable(
                f"{called}, column 'workload': a kernel is its operator as JSON, such as "
                '{"kind": "softmax", "input_shapes": [[8, 64]], "output_shapes": [[8, 64]]}.'
            ) from None
        names: tuple[str, ...] = ("precision",)
    else:
        workload["graph"] = text
        names = ("precision", "phase", "batch_size")
    workload |= {name: given[name] for name in names if name in given}
    software = {field: given[name] for name, field in SOFTWARE.items() if name in given}
    metrics = {name: given[name] for name in METRIC_COLUMNS if name in given}
    content = {"workload": workload, "software": software, "metrics": metrics}
    try:
        return MeasuredRow.model_validate(content | _spread(given))
    except ValidationError as error:
        raise BadTable(f"{called}: {unfit(error.errors()).detail}") from None
