"""Read measurements from files: tables in the row schema, or JSON lists as in the HTTP API."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import BadTable, InputError, MissingData, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.data.language_models.serving_results import (
    ServingResult,
    llama_bench_table,
    serving_results,
)
from forerun.data.lazy import pd
from forerun.data.measurement import METRIC_COLUMNS, crowded, read_measurements
from forerun.features.readers import read_graph
from forerun.features.readers.language_model.reader import named_files
from forerun.service.log import log
from forerun.service.problems import unfit
from forerun.service.requests.commands import fields_of
from forerun.service.schemas.measured_rows import MOST_ROWS, MeasuredRow

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
    """Rows of a file with the names by which messages refer to them.

    Attributes:
        rows: the usable rows.
        names: a name per row, such as `row 3`.
        left_out: number of unusable rows: of other devices, failed, throttled, disturbed by other
            processes, recorded as CUDA graphs, or without any measured value.
    """

    rows: tuple[MeasuredRow, ...]
    names: tuple[str, ...]
    left_out: int = 0


@dataclass(frozen=True)
class GraphFolder:
    """Graphs and models in a folder, found by digest or file name.

    Attributes:
        folder: the folder; it need not exist.
    """

    folder: Path
    _graphs: dict[Path, OperatorGraph] = field(default_factory=dict, repr=False, compare=False)

    def get(self, name: str) -> OperatorGraph:
        """The graph of that digest or file name; ONNX files are read at batch size 1.

        Raises:
            UnknownGraph: no file has that name or digest.
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
        files = {}
        for file in model_files(self.folder):
            try:
                files[self._read(file).digest] = file
            except InputError as error:
                log().warning("a file is left out", file=file.name, why=str(error))
        return files


def model_files(folder: Path) -> list[Path]:
    """Files in a folder that may be models or graphs, sorted by name."""
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.iterdir() if p.suffix in MODEL_FILES and p.is_file())


def graph_folder_of(table: Path) -> Path:
    """The default folder of a table's graphs: `<stem>-graphs` in the same folder as the table."""
    return table.with_name(f"{table.stem}-graphs")


def read_rows(
    path: Path,
    device: Device,
    catalog: DeviceCatalog,
    deployment: Mapping[str, Any] | None = None,
) -> NamedRows:
    """Read the measurements of a device from a .parquet, .csv or JSON file.

    In a table, `workload` is the digest or file name of a graph; for kind `kernel` it is the
    operator as JSON; or it is a whole workload, as `--suggest --json` prints it. Null cells take
    the defaults of POST /v1/predict. A JSON file holds a list of measurements as POST
    /v1/devices/{name}/measurements takes them, or the whole body of such a request; all of them are
    attributed to this device. Or it is the result of a load generator for language models
    (`forerun.data.language_models.serving_results`).

    Args:
        path: the file.
        device: the device that was measured.
        catalog: devices by the names that a table may give.
        deployment: what a load generator's result does not say: fields of a request to
            `/v1/llm/estimate`, such as `model` and `parallelism`.

    Raises:
        MissingData: there is no such file.
        BadTable: the file cannot be read, or holds no measurement of the device.
    """
    table = path.suffix in (".parquet", ".csv")
    named = _from_table(path, device, catalog) if table else _from_json(path, deployment or {})
    if not named.rows:
        raise BadTable(f"{path}: no measurement to learn from; {named.left_out} are left out.")
    if len(named.rows) > MOST_ROWS:
        raise BadTable(f"{path}: {len(named.rows):,} measurements; {MOST_ROWS:,} at most at once.")
    return named


def _from_json(path: Path, deployment: Mapping[str, Any]) -> NamedRows:
    if not path.is_file():
        raise MissingData(f"No file {path}.")
    content = _json_of(path)
    runs = serving_results(content, str(path))
    if runs:
        content = [_served(run, deployment, path) for run in runs]
    elif isinstance(content, dict):
        content = content.get("measurements")
    if not isinstance(content, list):
        raise BadTable(
            f"{path}: it holds no list of measurements, and is no result of vLLM's or SGLang's "
            "benchmark, GuideLLM, AIPerf or llama-bench."
        )
    rows = _validated(path, content)
    filled = [index for index, row in enumerate(rows) if row.measured()]
    return NamedRows(
        tuple(rows[index] for index in filled),
        tuple(f"{path}: measurement {index}" for index in filled),
        len(rows) - len(filled),
    )


def _json_of(path: Path) -> Any:
    """The content of a file of JSON, or the list of the objects that its lines hold."""
    text = path.read_bytes()
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            if tests := llama_bench_table(text.decode(errors="replace")):
                return tests
            reason = f"{path}: neither .parquet, .csv nor valid JSON: {error}."
    raise BadTable(reason)


def _served(run: ServingResult, deployment: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """A run of a load generator as a measurement; what is given replaces the file's model.

    Raises:
        BadTable: the file names a model that is not known, and none is given; or its engine ran in
            a way that is not answered.
    """
    said: dict[str, Any] = {"model": {"name": run.model}}
    if run.command:
        try:
            said, _, _ = fields_of(run.command)
        except ValidationError as error:
            raise BadTable(f"{path}: {unfit(error.errors()).detail}") from None
        deployment = {name: own for name, own in deployment.items() if name != "engine"}
    own = said.get("model", {})
    if "model" not in deployment:
        try:
            named_files(own.get("name", ""))
        except InputError as error:
            why = str(error) if own.get("name") else "It names no model."
            raise BadTable(
                f"{path}: {why} Give the model of these runs by --model, as a name or as the "
                "path of its config.json."
            ) from None
    else:
        given = deployment["model"]
        own = {name: own[name] for name in own if name == "quantization"}
        own |= {"name": given} if isinstance(given, str) else given
    load = "requests_per_s" if run.concurrency is None else "concurrency"
    fields = ("input_tokens", "output_tokens", "cached_share", load)
    workload = {**said, **{name: getattr(run, name) for name in fields}, **deployment, "model": own}
    times = ("ttft_ms", "tpot_ms", "request_latency_ms")
    metrics = {n: getattr(run, n) for n in times if getattr(run, n) is not None}
    software = {} if run.threads is None else {"software": {"threads": run.threads}}
    return {"workload": {"kind": "llm_deployment", **workload}, "metrics": metrics, **software}


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
    usable = frame["device"].map(names) & (frame["status"] == "ok") & ~_recorded(frame)
    quiet = usable & ~crowded(frame)
    usable = quiet if quiet.any() else usable
    rows, called = [], []
    for index, row in frame[usable].astype(object).where(frame[usable].notna(), None).iterrows():
        called.append(f"{path}: row {int(str(index)) + 1}")
        rows.append(measured_row({str(k): v for k, v in row.items()}, called[-1]))
    return NamedRows(tuple(rows), tuple(called), len(frame) - len(rows))


def _of_device(given: dict[str, Any]) -> dict[str, Any]:
    """The cells of a row with the latency that answers are about.

    It is that of an operator without its launch, where that was measured, and of the fastest run
    where the row was disturbed.
    """
    if given.get("kernel_ms"):
        return given | {"latency_ms": given["kernel_ms"]}
    if str(given.get("disturbed")).lower() != "true" or not given.get("fastest_ms"):
        return given
    return given | {"latency_ms": given["fastest_ms"]}


def _spread(given: dict[str, Any]) -> dict[str, float]:
    """The relative spread of a row's repeats, or the share that other processes took, if larger."""
    known = [given[name] for name in ("spread", "others_share") if name in given]
    return {"spread": min(100.0, max(0.0, *map(float, known), 0.0))} if known else {}


def _recorded(frame: "pd.DataFrame") -> "pd.Series[bool]":
    """Whether each run was launched as a CUDA graph, which `Software` cannot express."""
    if "cuda_graph" not in frame:
        return frame["status"] == ""
    return frame["cuda_graph"].astype(str).str.lower() == "true"


def _is(name: str, device: Device, catalog: DeviceCatalog) -> bool:
    try:
        return catalog.get(name).name == device.name
    except InputError:
        return False


def _written_out(found: Any, said: Mapping[str, Any], called: str) -> dict[str, Any]:
    """The workload that a cell holds as JSON: whole, or its operator alone.

    Raises:
        BadTable: a column has another value than the whole workload.
    """
    if not isinstance(found, dict) or "kind" not in found or not {"operator", "graph"} & {*found}:
        return {"kind": "kernel", "operator": found}
    for name in found.keys() & said.keys():
        if found[name] != said[name]:
            raise BadTable(
                f"{called}, column {name!r}: it is {said[name]!r}, and {found[name]!r} in the "
                "column 'workload': leave one of the two out."
            )
    return found


def measured_row(cells: Mapping[str, Any], called: str) -> MeasuredRow:
    """The measurement in the cells of a row of a table of measurements.

    Args:
        cells: column -> value; null cells take the defaults of POST /v1/predict.
        called: name of the row in messages.

    Raises:
        BadTable: a cell is not valid; the message names the row and the field.
    """
    given = _of_device({key: value for key, value in cells.items() if value is not None})
    text = given["workload"]
    kind = given.get("kind") or ("kernel" if text.lstrip().startswith("{") else "network")
    columns = ("kind", "precision", "phase", "batch_size")
    said = {name: given[name] for name in columns if name in given}
    workload: dict[str, Any] = {"kind": kind, "graph": text}
    if kind == "kernel" or text.lstrip().startswith("{"):
        try:
            workload = _written_out(json.loads(text), said, called)
        except ValueError:
            raise BadTable(
                f"{called}, column 'workload': a kernel is its operator as JSON, such as "
                '{"kind": "softmax", "input_shapes": [[8, 64]], "output_shapes": [[8, 64]]}.'
            ) from None
    if workload["kind"] == "network":
        workload |= said
    elif "precision" in said:
        workload["precision"] = said["precision"]
    software = {field: given[name] for name, field in SOFTWARE.items() if name in given}
    metrics = {name: given[name] for name in METRIC_COLUMNS if name in given}
    content = {"workload": workload, "software": software, "metrics": metrics}
    try:
        return MeasuredRow.model_validate(content | _spread(given))
    except ValidationError as error:
        raise BadTable(f"{called}: {unfit(error.errors()).detail}") from None
