"""Tables of measurements: one row is one run of a workload on a device with a software version.

Values that were not measured are null, never zero. A run that ran out of memory (`oom`) or failed
(`failed`) is censored: it has a status but no metrics.
"""

from pathlib import Path
from typing import Any, Final, Literal, get_args

from forerun.data.errors import BadTable
from forerun.data.file_store import draft_of
from forerun.data.lazy import pa, pd
from forerun.data.metrics import METRICS
from forerun.data.schema import check_table, number, read_table_file, text
from forerun.data.software import Layout, Runtime
from forerun.data.workload import NumberFormat, Phase

Status = Literal["ok", "oom", "throttled", "failed"]
CENSORED: Final = ("oom", "failed")
REQUIRED: Final = ("workload", "device")
TEXTS: Final = (
    *("workload", "kind", "precision", "phase", "device"),
    *("framework", "framework_version", "runtime", "layout", "cuda", "driver", "status"),
)
WHOLE: Final = ("batch_size", "repeats")
QUERY_COLUMNS: Final = (
    *("workload", "kind", "batch_size", "precision", "phase", "device"),
    *("framework", "framework_version", "runtime", "layout", "cuda", "driver"),
)
METRIC_COLUMNS: Final = tuple(metric.name for metric in METRICS)
RUN_COLUMNS: Final = ("repeats", "spread", "window_s", "status")
COLUMNS: Final = (*QUERY_COLUMNS, *METRIC_COLUMNS, *RUN_COLUMNS)


def measurement_schema() -> "pa.DataFrameSchema":
    """Schema of a table of measurements.

    `workload` is a graph's digest, a model or an operator; `repeats` is the number of runs that a
    row summarises, `spread` their interquartile range over their median, `window_s` the measured
    time in seconds.
    """
    columns: dict[str, Any] = {name: text(nullable=name not in REQUIRED) for name in TEXTS}
    columns["kind"] = text(values=("kernel", "network"), nullable=True)
    columns["precision"] = text(values=get_args(NumberFormat), nullable=True)
    columns["phase"] = text(values=get_args(Phase), nullable=True)
    columns["runtime"] = text(values=get_args(Runtime), nullable=True)
    columns["layout"] = text(values=get_args(Layout), nullable=True)
    columns["status"] = text(values=get_args(Status))
    columns |= {name: number(above=0, nullable=True) for name in METRIC_COLUMNS}
    columns["utilisation"] = number(low=0, high=1, nullable=True)
    columns |= {name: number("Int64", low=1, nullable=True) for name in WHOLE}
    columns["spread"] = number(low=0, nullable=True)
    columns["window_s"] = number(above=0, nullable=True)
    ordered = {name: columns[name] for name in COLUMNS}
    return pa.DataFrameSchema(ordered, strict=False)


def read_measurements(path: Path) -> "pd.DataFrame":
    """Read measurements from a Parquet or CSV file.

    Columns other than `COLUMNS` are kept; missing optional columns are null.

    Returns:
        One row per run, of text, whole numbers (Int64) and float64.

    Raises:
        MissingData: no such file.
        BadTable: the message names the wrong row (the first is row 1) and column.
    """
    frame = read_table_file(path, "a table of measurements")
    return tidy_measurements(frame, str(path))


def write_measurements(frame: "pd.DataFrame", path: Path) -> None:
    """Write measurements as Parquet or CSV, by the path's suffix; nothing if a value is wrong.

    Raises:
        BadTable: the message names the wrong row (the first is row 1) and column.
    """
    if path.suffix not in (".parquet", ".csv"):
        raise BadTable(f"{path}: a table of measurements ends in .parquet or .csv.")
    tidy = tidy_measurements(frame, "the table of measurements")
    with draft_of(path) as draft:
        if path.suffix == ".parquet":
            tidy.to_parquet(draft, index=False, compression="zstd")
        else:
            tidy.to_csv(draft, index=False, lineterminator="\n")


def tidy_measurements(frame: "pd.DataFrame", where: str) -> "pd.DataFrame":
    """Measurements with all columns, in order and with the right types.

    Args:
        frame: at least the columns `REQUIRED`. Without a column `status`, rows with a metric are
            `ok` and others are `failed`.
        where: name of the table for messages.

    Raises:
        BadTable: the message names the wrong row (the first is row 1) and column.
    """
    missing = [name for name in REQUIRED if name not in frame]
    if missing:
        raise BadTable(
            f"{where}: no column {' and no column '.join(map(repr, missing))}. It needs "
            f"{', '.join(REQUIRED)} and one of {', '.join(METRIC_COLUMNS)}{_not_read(frame)}."
        )
    if "status" not in frame:
        if not set(METRIC_COLUMNS) & set(frame.columns):
            raise BadTable(
                f"{where}: no column is a metric; give one of {', '.join(METRIC_COLUMNS)}"
                f"{_not_read(frame)}."
            )
        measured = frame.reindex(columns=METRIC_COLUMNS).notna().any(axis=1)
        frame = frame.assign(status=measured.map({True: "ok", False: "failed"}))
    tidy = frame.reset_index(drop=True).reindex(
        columns=[*COLUMNS, *(name for name in frame.columns if name not in COLUMNS)]
    )
    for name in COLUMNS:
        tidy[name] = _text(tidy[name]) if name in TEXTS else _numbers(tidy[name], name, where)
    tidy = check_table(tidy, measurement_schema(), where)
    _check_status(tidy, where)
    return tidy


def _text(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Text, with empty strings as null, so that CSV and Parquet agree."""
    if column.isna().all():
        column = column.astype("object")
    return column.where(column.notna() & (column != ""), None).astype("str")


def _numbers(column: "pd.Series[Any]", name: str, where: str) -> "pd.Series[Any]":
    import numpy as np

    made = pd.Series([_number(value) for value in column], dtype="float64", index=column.index)
    bad = np.flatnonzero(made.isna() & column.notna() & (column.astype(str) != "nan"))
    if len(bad):
        cell = str(column.iloc[bad[0]])
        raise BadTable(f"{where}: column {name!r}, row {bad[0] + 1}: {cell!r} is not a number.")
    if name not in WHOLE:
        return made
    split = np.flatnonzero(made.notna() & (made % 1 != 0))
    if len(split):
        value = float(made.iloc[split[0]])
        raise BadTable(
            f"{where}: column {name!r}, row {split[0] + 1}: {value!r} is not a whole number."
        )
    return made.astype("Int64")


def _number(value: Any) -> float:
    """The value as a float, NaN if it is not a number; Python's parser inverts `repr` exactly."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _check_status(tidy: "pd.DataFrame", where: str) -> None:
    """Check that censored runs have no metrics and successful runs at least one."""
    given = tidy[list(METRIC_COLUMNS)].notna()
    some = given.any(axis=1)
    full = (tidy["status"].isin(CENSORED) & some).to_numpy().nonzero()[0]
    if len(full):
        row, column = full[0], given.iloc[full[0]].idxmax()
        status = tidy["status"].iloc[row]
        raise BadTable(
            f"{where}: column {column!r}, row {row + 1}: a run that is {status} has no metrics; "
            "leave them empty."
        )
    empty = ((tidy["status"] == "ok") & ~some).to_numpy().nonzero()[0]
    if len(empty):
        raise BadTable(
            f"{where}: column 'status', row {empty[0] + 1}: the run is ok but nothing was "
            f"measured; give one of {', '.join(METRIC_COLUMNS)}{_not_read(tidy)}."
        )


def _not_read(frame: "pd.DataFrame") -> str:
    """The end of a message, listing columns that were not read; empty if there are none."""
    names = [str(name) for name in frame.columns if name not in COLUMNS]
    return f"; not read: {', '.join(names)}" if names else ""


CROWDED = 1.25
"""Ratio of requested to available processors above which other processes dominate a run's time:
with two threads on two processors it took two to ten times as long (measured)."""


def crowded(frame: "pd.DataFrame") -> "pd.Series[bool]":
    """Rows measured while all processes together requested more processors than available.

    Args:
        frame: rows as written by a collector; rows without the load are not crowded.
    """
    needed = ("others_share", "threads", "cpus")
    if not set(needed) <= set(frame.columns):
        return pd.Series(False, index=frame.index)
    others, threads, cpus = (pd.to_numeric(frame[name], errors="coerce") for name in needed)
    return (others + threads / cpus > CROWDED).fillna(False).astype(bool)
