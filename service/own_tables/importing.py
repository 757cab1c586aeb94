"""Import a CSV or Parquet file as a dataset of its own."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from forerun.data.bundle import Bundle
from forerun.data.datasets import all_datasets
from forerun.data.datasets.imported import datasheet_of, write_bundle
from forerun.data.device import Device, DeviceCatalog
from forerun.data.errors import BadTable, InputError, UnknownDevice, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.data.lazy import pd
from forerun.data.own_tables.tidy import (
    IGNORED,
    SETTING,
    Description,
    Meaning,
    check_roles,
    findings_of,
    given_meaning,
    mapped,
    read_table,
    tidy_runs,
)
from forerun.features.readers import read_graph
from forerun.features.tables.own_tables import hardware_of, own_queries
from forerun.features.tables.torch_gpu import measured_operator
from forerun.models.catalog import catalog as predictors
from forerun.service.adaptation.measurement_files import GraphFolder, graph_folder_of
from forerun.service.settings import Settings
from forerun.service.stores.devices import devices_of
from forerun.service.stores.graphs import GraphStore, graphs_of

NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,39}")
MOST_LISTED: Final = 5
"""Most unknown devices that one message names."""
Ask = Callable[[str, Sequence[str]], str]
"""Function from a column and a few of its cells to what the user says it means; empty: ignored."""


@dataclass(frozen=True, slots=True)
class Imported:
    """The result of an import.

    Attributes:
        bundle: the bundle that was written.
        description: what it holds.
        rows: number of rows.
        columns: column of the file -> what it was read as.
        flags: flag -> number of rows that carry it.
    """

    bundle: Bundle
    description: Description
    rows: int
    columns: Mapping[str, str]
    flags: Mapping[str, int]


def import_table(
    path: Path,
    name: str,
    settings: Settings,
    *,
    given: Mapping[str, str],
    rest: str | None = None,
    ask: Ask | None = None,
) -> Imported:
    """Read, check and write a table; an earlier import of the same name is replaced.

    Args:
        path: .csv or .parquet file.
        name: name of the dataset.
        settings: the folder of the user's devices and graphs.
        given: column -> what the user says it means.
        rest: `setting` or `ignored` for columns whose names do not say; None to ask or refuse.
        ask: asks the user about one column; None where nobody can be asked.

    Raises:
        InputError: the name is taken or malformed, or a stated meaning is none.
        MissingData: there is no such file.
        BadTable: columns, cells, devices, graphs or units cannot be read; the message says which.
    """
    check_name(name)
    frame = read_table(path)
    columns = _meanings(frame, given, rest, ask)
    runs, description = tidy_runs(frame, columns, name, path.name)
    devices = _devices(runs, description, devices_of(settings).catalog, path.name)
    graphs: dict[str, OperatorGraph] = {}
    if description.layout == "networks":
        runs, graphs = _with_graphs(runs, path, settings)
    queries = own_queries(runs, description, devices, graphs)
    findings = findings_of(runs, description, hardware_of(queries))
    read_as = {column: _text(meaning) for column, meaning in columns.items()}
    sheet = datasheet_of(description, runs, findings, read_as, path.name)
    stored = {digest: graph.to_json() for digest, graph in graphs.items()}
    used = {device.name: device for device in devices.values()}
    bundle = write_bundle(
        description, runs, stored, list(used.values()), findings, sheet, path.name
    )
    flags = Counter(findings.drop_duplicates(["row", "flag"])["flag"])
    return Imported(bundle, description, len(runs), read_as, flags)


def check_name(name: str) -> None:
    """Refuse a name that is malformed, or that a dataset or predictor of the package has.

    Raises:
        InputError: says which names are possible.
    """
    if not NAME.fullmatch(name):
        raise InputError(
            f"--name {name!r}: a dataset is named by up to 40 lower-case letters, digits, - and _, "
            "a letter first."
        )
    if name in {cls.name for cls in all_datasets()} | set(predictors()):
        raise InputError(
            f"--name {name}: a dataset or predictor of that name exists; choose another."
        )


def _meanings(
    frame: "pd.DataFrame", given: Mapping[str, str], rest: str | None, ask: Ask | None
) -> dict[str, Meaning]:
    """Column -> its meaning, from its name, the user's options, or the user's answers."""
    if rest not in (None, SETTING, IGNORED):
        raise InputError(f"--rest is {SETTING} or {IGNORED}, not {rest!r}.")
    found = mapped(list(frame.columns), given, rest)
    open_columns = [name for name, meaning in found.items() if meaning is None]
    if open_columns and ask is None:
        raise BadTable(
            f"The names of {len(open_columns)} columns do not say what they hold: "
            f"{', '.join(open_columns)}. Say it by --map '{open_columns[0]}=setting' (or "
            f"{SETTING}, {IGNORED}, device, workload, model, batch_size, ...), or for all of them "
            f"by --rest {SETTING} or --rest {IGNORED}. A column that was measured must be no "
            f"{SETTING}."
        )
    known = {name: meaning for name, meaning in found.items() if meaning is not None}
    for name in open_columns:
        assert ask is not None
        examples = [str(cell) for cell in frame[name].dropna().unique()[:3]]
        known[name] = given_meaning(ask(name, examples) or IGNORED)
    check_roles(known)
    return {name: known[name] for name in frame.columns}


def _devices(
    runs: "pd.DataFrame", description: Description, catalog: DeviceCatalog, where: str
) -> dict[str, Device]:
    """Device of each name in `runs`, whose column `device` then has the names of the catalogue."""
    found: dict[str, Device] = {}
    lines = []
    for given in sorted(set(runs["device"].astype(str)) - {""}):
        try:
            device = catalog.get(given)
        except UnknownDevice as error:
            close = (
                f" (did you mean {' or '.join(error.did_you_mean)}?)" if error.did_you_mean else ""
            )
            lines.append(f"{given!r}{close}")
            continue
        if description.layout == "networks" and not device.has_sheet:
            raise BadTable(
                f"{where}: {device.name} has no spec sheet, which rows with graphs need; "
                "`forerun devices add SHEET.yaml` registers one."
            )
        found[given] = device
    if lines:
        more = ", ..." if len(lines) > MOST_LISTED else ""
        option = "SHEET.yaml" if description.layout == "networks" else "--black-box --name NAME"
        raise BadTable(
            f"{where}: no device named {', '.join(lines[:MOST_LISTED])}{more}. `forerun devices` "
            f"lists all; `forerun devices add {option}` registers another."
        )
    names = {given: device.name for given, device in found.items()}
    runs["device"] = runs["device"].astype(str).map(lambda given: names.get(given, ""))
    return {device.name: device for device in found.values()}


def _with_graphs(
    runs: "pd.DataFrame", table: Path, settings: Settings
) -> tuple["pd.DataFrame", dict[str, OperatorGraph]]:
    """The rows with digests in place of paths, and the graphs by digest."""
    folder, uploads = GraphFolder(graph_folder_of(table)), graphs_of(settings)
    named: dict[str, tuple[str, str, str]] = {}
    graphs: dict[str, OperatorGraph] = {}
    texts = runs["workload"].astype(str).str.strip()
    for row, text in enumerate(texts):
        if text in named:
            continue
        if text.startswith("{"):
            named[text] = (text, "kernel", measured_operator(text).kind)
            continue
        graph = _found(text, f"{table.name}, row {row + 1}", table.parent, folder, uploads)
        graphs[graph.digest] = graph
        named[text] = (graph.digest, "network", Path(text).stem)
    runs["workload"] = [named[text][0] for text in texts]
    runs["kind"] = [named[text][1] for text in texts]
    stems = texts.map(lambda text: named[text][2])
    runs["model"] = runs["model"].where(runs["model"] != "", stems)
    return runs, graphs


def _found(
    text: str, called: str, place: Path, folder: GraphFolder, uploads: GraphStore
) -> OperatorGraph:
    """A graph by its path relative to the table, by its name in `<table>-graphs`, or by digest."""
    if (place / text).is_file():
        return read_graph(place / text)
    for get in (folder.get, uploads.get):
        with suppress(UnknownGraph):
            return get(text)
    raise BadTable(
        f"{called}: no graph {text!r}. It is the path of a model file relative to the table, a "
        f"file in {folder.folder.name}/, or the digest of an uploaded graph."
    )


def _text(meaning: Meaning) -> str:
    return meaning.role if meaning.factor == 1.0 else f"{meaning.role}, times {meaning.factor:g}"


def facts_of(imported: Imported) -> dict[str, Any]:
    """The result of an import as JSON."""
    return {
        "name": imported.description.name,
        "folder": str(imported.bundle.folder),
        "digest": imported.bundle.digest,
        "rows": imported.rows,
        "layout": imported.description.layout,
        "columns": dict(imported.columns),
        "flags": dict(imported.flags),
    }
