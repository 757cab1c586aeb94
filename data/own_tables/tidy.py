"""A user's rows as the table `runs` of a bundle: canonical names, units, numbers and texts.

Rows name graphs (layout `networks`) or are described by plain columns (layout `settings`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from forerun.data.errors import BadTable, MissingData
from forerun.data.measurement import COLUMNS, tidy_measurements
from forerun.data.own_tables.columns import KEYS, METRIC_NAMES, SETTING, Meaning

if TYPE_CHECKING:
    import pandas as pd

Layout = Literal["networks", "settings"]
GROUPS: Final = ("device", "model", "family")
"""Columns that rows are grouped by; they are never features."""
_VALUES: Final[Mapping[str, Mapping[str, str]]] = {
    "precision": {
        **{"float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16"},
        **{"bfloat16": "bf16"},
    },
    "phase": {
        **{"train": "training", "infer": "inference", "eval": "inference"},
        **{"forward": "inference"},
    },
    "runtime": {"compile": "compiled", "ort": "onnxruntime", "trt": "tensorrt"},
}
"""Role -> usual words for its values -> the values of this package."""
_MISSING: Final = ("", "NaN", "nan", "NA", "N/A", "null", "None")


@dataclass(frozen=True, slots=True)
class Description:
    """What a bundle of a user's rows holds; stored in its `bundle.json`.

    Attributes:
        name: name of the table.
        layout: `networks` where rows name graphs or operators, `settings` where plain columns
            describe them.
        metrics: names of the measured metrics.
        settings: columns that are features, in the layout `settings`.
    """

    name: str
    layout: Layout
    metrics: tuple[str, ...]
    settings: tuple[str, ...] = ()

    @property
    def question_columns(self) -> tuple[str, ...]:
        """Columns of `runs` that together make one question."""
        if self.layout == "settings":
            return ("device", "model", *self.settings)
        return ("workload", *(name for name in KEYS if name in _NETWORK_KEYS))


_NETWORK_KEYS: Final = (
    *("kind", "batch_size", "precision", "phase", "device", "framework"),
    *("framework_version", "runtime", "layout", "cuda", "driver", "threads"),
)


def read_table(path: Path) -> "pd.DataFrame":
    """A CSV or Parquet file as it is; of a CSV, every cell is text or missing.

    Raises:
        MissingData: there is no such file.
        BadTable: the file cannot be read, has no row, or two columns of one name.
    """
    import pandas as pd

    if not path.is_file():
        raise MissingData(f"No file {path}.")
    try:
        if path.suffix == ".parquet":
            frame = pd.read_parquet(path)
        elif path.suffix == ".csv":
            frame = pd.read_csv(
                path,
                dtype=str,
                keep_default_na=False,
                na_values=list(_MISSING),
                encoding="utf-8-sig",
            )
        else:
            raise BadTable(f"{path}: a table ends in .csv or .parquet.")
    except (OSError, ValueError) as error:
        raise BadTable(f"Cannot read {path}: {error}") from error
    if not len(frame):
        raise BadTable(f"{path} has no row.")
    frame.columns = frame.columns.map(str)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise BadTable(f"{path} has two columns {twice!r}; rename one.")
    return frame


def layout_of(columns: Mapping[str, Meaning]) -> Layout:
    """The layout that a table with these columns has."""
    return "networks" if any(m.role == "workload" for m in columns.values()) else "settings"


def tidy_runs(
    frame: "pd.DataFrame", columns: Mapping[str, Meaning], name: str, where: str
) -> tuple["pd.DataFrame", Description]:
    """The table `runs` and its description.

    Args:
        frame: rows as `read_table` returns them, n of them.
        columns: column -> its meaning.
        name: name of the table.
        where: what messages call the table.

    Returns:
        n rows with the canonical columns, and what they hold.

    Raises:
        BadTable: no metric or no feature is among the columns, or a cell cannot be read; names row
            (the first is row 1) and column.
    """
    import pandas as pd

    roles = {meaning.role: column for column, meaning in columns.items() if meaning.role in KEYS}
    metrics = {
        meaning.role: _numbers(frame[column], column, where) * meaning.factor
        for column, meaning in columns.items()
        if meaning.role in METRIC_NAMES
    }
    if not metrics:
        raise BadTable(
            f"{where}: no column is a measured metric; --map NAME=latency_ms names one (or any of "
            f"{', '.join(METRIC_NAMES)})."
        )
    layout = layout_of(columns)
    runs = pd.DataFrame(metrics, index=frame.index)
    _check_positive(runs, columns, where)
    if layout == "networks":
        given = {role: _words(frame[column], role) for role, column in roles.items()}
        runs = _network_runs(runs.assign(**given), where)
        return runs, Description(name, layout, tuple(metrics))
    settings = [c for c, m in columns.items() if m.role == SETTING or m.role in _NETWORK_KEYS]
    settings = [c for c in settings if columns[c].role not in GROUPS]
    if not settings:
        raise BadTable(
            f"{where}: no column describes what was run: --map NAME=workload for paths of graphs, "
            f"--map NAME={SETTING} for a number or word, or --rest {SETTING} for all other columns."
        )
    for role in GROUPS:
        runs[role] = _texts(frame[roles[role]]) if role in roles else ""
    described = {column: _setting(frame[column]) for column in settings}
    return runs.assign(**described), Description(name, layout, tuple(metrics), tuple(settings))


def _network_runs(runs: "pd.DataFrame", where: str) -> "pd.DataFrame":
    """Rows in the schema of tables of measurements, with `model`, `family` and `threads`."""
    if "device" not in runs:
        raise BadTable(f"{where}: no column names the device; --map NAME=device.")
    tidy = tidy_measurements(runs, where)
    for name in ("model", "family"):
        tidy[name] = _texts(tidy[name]) if name in tidy else ""
    if "threads" in tidy:
        tidy["threads"] = _numbers(tidy["threads"], "threads", where)
    extra = [n for n in tidy if n not in COLUMNS]
    used = [n for n in COLUMNS if n in ("workload", "device", "status") or tidy[n].notna().any()]
    return tidy[[*used, *extra]]


def _check_positive(runs: "pd.DataFrame", columns: Mapping[str, Meaning], where: str) -> None:
    """Refuse values that are not positive; what was not measured is left empty."""
    names = {meaning.role: column for column, meaning in columns.items()}
    for role in runs:
        bad = np.flatnonzero(~(runs[role].isna() | (np.isfinite(runs[role]) & (runs[role] > 0))))
        if len(bad):
            value = float(runs[role].iloc[bad[0]])
            raise BadTable(
                f"{where}: column {names[str(role)]!r}, row {bad[0] + 1}: {role} is {value:g}; "
                "it must be above 0, and empty where nothing was measured."
            )


def _numbers(column: "pd.Series[Any]", name: str, where: str) -> "pd.Series[float]":
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    bad = np.flatnonzero(numbers.isna() & column.notna())
    if len(bad):
        cell = str(column.iloc[bad[0]])
        raise BadTable(f"{where}: column {name!r}, row {bad[0] + 1}: {cell!r} is no number.")
    return numbers


def _texts(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Texts without surrounding spaces; a missing one is empty."""
    return column.astype("object").where(column.notna(), "").astype(str).str.strip()


def _words(column: "pd.Series[Any]", role: str) -> "pd.Series[Any]":
    """The column with the values of this package for usual words of the role."""
    words = _VALUES.get(role)
    if words is None:
        return column
    plain = column.where(column.notna(), None).astype("object")
    lower = plain.map(lambda value: str(value).strip().lower(), na_action="ignore")
    return lower.map(lambda value: words.get(value, value), na_action="ignore")


def _setting(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Numbers where every given cell is one, else texts; a missing cell stays missing."""
    import pandas as pd

    numbers = pd.to_numeric(column, errors="coerce")
    if column.notna().any() and not (numbers.isna() & column.notna()).any():
        return numbers.astype("float64")
    return column.where(column.notna(), None).astype("object")


def text_keys(runs: "pd.DataFrame", columns: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.str_]]":
    """One text for each row that equal rows share, of those columns that the table has, (n,)."""
    there = [_texts(runs[name]) for name in columns if name in runs]
    return np.array(["\x1f".join(cells) for cells in zip(*there, strict=True)], dtype=np.str_)
