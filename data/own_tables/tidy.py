"""Convert a user's rows to the table `runs` of a bundle: canonical names, units and checks.

Rows either name graphs (layout `networks`) or are described by plain columns (layout `settings`).
The name of a column determines what it holds: a key, a metric with its unit, or a setting. Names
are compared in lower case with `_` for every other character, so that `Latency (ms)` is
`latency_ms`. Ingestion checks find impossible or contradictory values, duplicates and wrong units.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from forerun.data.columns import Column
from forerun.data.errors import BadTable, InputError, did_you_mean
from forerun.data.facts import facts_of
from forerun.data.lazy import pd
from forerun.data.measurement import COLUMNS, METRIC_COLUMNS, QUERY_COLUMNS, tidy_measurements
from forerun.data.metrics import DESIGN_METRICS, SERVING_METRICS
from forerun.data.quality import FASTER, Quantities, check, with_findings
from forerun.data.schema import read_table_file

SETTING: Final = "setting"
IGNORED: Final = "ignored"
METRIC_NAMES: Final = (
    *METRIC_COLUMNS,
    *(metric.name for metric in (*DESIGN_METRICS, *SERVING_METRICS)),
)
"""Metrics that a table may hold, in listing order."""
KEYS: Final = (*QUERY_COLUMNS, "threads", "model", "family", "status", "repeats", "spread")
"""Columns other than metrics that have a predefined meaning."""


_COLUMN_NAMES: Final = facts_of(__file__)


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a column holds.

    Attributes:
        role: one of `KEYS` or `METRIC_NAMES`, `setting` or `ignored`.
        factor: factor that converts its numbers to the metric's unit; 1 for other roles.
    """

    role: str
    factor: float = 1.0


def meaning_of(name: str) -> Meaning | None:
    """What a column of that name holds; None if the name does not determine it."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    if plain in KEYS or plain in METRIC_NAMES:
        return Meaning(plain)
    for role, synonyms in _COLUMN_NAMES["synonyms"].items():
        if plain in synonyms:
            return Meaning(role)
    if plain in _COLUMN_NAMES["without_unit"]:
        return Meaning(_COLUMN_NAMES["without_unit"][plain])
    stem, _, unit = plain.rpartition("_")
    for metric, quantity in _COLUMN_NAMES["quantities"].items():
        units = _COLUMN_NAMES["units"][quantity["units"]]
        if stem in quantity["names"] and unit in units:
            return Meaning(metric, units[unit])
    return None


def given_meaning(text: str) -> Meaning:
    """The meaning that a user states: any name that `meaning_of` knows, `setting` or `ignored`.

    Raises:
        InputError: there is no such meaning; the message lists the valid ones.
    """
    if text in (SETTING, IGNORED):
        return Meaning(text)
    meaning = meaning_of(text)
    if meaning is None:
        _, hint = did_you_mean(text, [*KEYS, *METRIC_NAMES], 0.5)
        raise InputError(
            f"A column cannot mean {text!r}. {hint}It can be {SETTING}, {IGNORED}, a metric "
            f"({', '.join(METRIC_NAMES)}) or one of {', '.join(KEYS)}; a unit follows its name, "
            "as in latency_us or memory_gib."
        )
    return meaning


def mapped(
    names: Sequence[str], given: Mapping[str, str], rest: str | None = None
) -> dict[str, Meaning | None]:
    """Column -> its meaning; None if neither its name nor the user determines it.

    Args:
        names: columns of the table.
        given: column -> its meaning as the user states it, which overrides its name.
        rest: `setting` or `ignored` for all remaining columns; None to leave them undetermined.

    Raises:
        InputError: a meaning is invalid, or is given for a column that the table does not have.
        BadTable: two columns have the same role.
    """
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise InputError(f"--map {name}=...: no such column.{hint} It has {', '.join(names)}.")
    found: dict[str, Meaning | None] = {}
    for name in names:
        meaning = given_meaning(given[name]) if name in given else meaning_of(name)
        found[name] = meaning or (Meaning(rest) if rest else None)
    check_roles(found)
    return found


def check_roles(columns: Mapping[str, Meaning | None]) -> None:
    """Reject two columns with the same role.

    Raises:
        BadTable: the message names both columns and how to choose one.
    """
    holders: dict[str, str] = {}
    for name, meaning in columns.items():
        if meaning is None or meaning.role in (SETTING, IGNORED):
            continue
        other = holders.setdefault(meaning.role, name)
        if other != name:
            raise BadTable(
                f"Columns {other!r} and {name!r} are both read as {meaning.role}: "
                f"--map '{name}={IGNORED}' leaves one out, --map '{name}={SETTING}' makes it a "
                "feature."
            )


Layout = Literal["networks", "settings"]
GROUPS: Final = ("device", "model", "family")
"""Columns that rows are grouped by; in plain columns, the model's name is also a feature."""
"""Role -> usual words for its values -> the values of this package."""
_MISSING: Final = ("", "NaN", "nan", "NA", "N/A", "null", "None")


@dataclass(frozen=True, slots=True)
class Description:
    """What a bundle of a user's rows holds; stored in its `bundle.json`.

    Attributes:
        name: name of the table.
        layout: `networks` if rows name graphs or operators, `settings` if plain columns describe
            them.
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
    """Read a CSV or Parquet file without conversions; in a CSV, every cell is text or missing.

    Raises:
        MissingData: there is no such file.
        BadTable: the file cannot be read, has no row, or has two columns of one name.
    """
    frame = read_table_file(path, "a table", _MISSING)
    if not len(frame):
        raise BadTable(f"{path} has no row.")
    frame.columns = frame.columns.map(str)
    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise BadTable(f"{path} has two columns {twice!r}; rename one.")
    return frame


def layout_of(columns: Mapping[str, Meaning]) -> Layout:
    """The layout of a table with these columns."""
    return "networks" if any(m.role == "workload" for m in columns.values()) else "settings"


def tidy_runs(
    frame: "pd.DataFrame", columns: Mapping[str, Meaning], name: str, where: str
) -> tuple["pd.DataFrame", Description]:
    """The table `runs` and its description.

    Args:
        frame: n rows from `read_table`.
        columns: column -> its meaning.
        name: name of the table.
        where: what messages call the table.

    Returns:
        n rows with the canonical columns, and their description.

    Raises:
        BadTable: no column is a metric or a feature, or a cell cannot be read; the message names
            the row (the first is row 1) and column.
    """
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
    """Rows in the schema of measurement tables, with `model`, `family` and `threads`."""
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
    """Reject values that are not positive; cells without a measurement must be empty."""
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

    numbers = pd.to_numeric(column, errors="coerce").astype("float64")
    bad = np.flatnonzero(numbers.isna() & column.notna())
    if len(bad):
        cell = str(column.iloc[bad[0]])
        raise BadTable(f"{where}: column {name!r}, row {bad[0] + 1}: {cell!r} is not a number.")
    return numbers


def _texts(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Texts without surrounding spaces; missing values become empty."""
    return column.astype("object").where(column.notna(), "").astype(str).str.strip()


def _words(column: "pd.Series[Any]", role: str) -> "pd.Series[Any]":
    """The column with this package's values in place of common synonyms."""
    words = _COLUMN_NAMES["values"].get(role)
    if words is None:
        return column
    plain = column.where(column.notna(), None).astype("object")
    lower = plain.map(lambda value: str(value).strip().lower(), na_action="ignore")
    return lower.map(lambda value: words.get(value, value), na_action="ignore")


def _setting(column: "pd.Series[Any]") -> "pd.Series[Any]":
    """Numbers if every non-missing cell is one, else texts; missing cells stay missing."""
    numbers = pd.to_numeric(column, errors="coerce")
    if column.notna().any() and not (numbers.isna() & column.notna()).any():
        return numbers.astype("float64")
    return column.where(column.notna(), None).astype("object")


def text_keys(runs: "pd.DataFrame", columns: Sequence[str]) -> "np.ndarray[Any, np.dtype[np.str_]]":
    """A text per row, (n,), equal if all of these columns are (absent columns are ignored)."""
    there = [_texts(runs[name]) for name in columns if name in runs]
    return np.array(["\x1f".join(cells) for cells in zip(*there, strict=True)], dtype=np.str_)


CONFLICT: Final = 2.0
"""Ratio of the largest to the smallest time of one question above which rows contradict."""
TOO_MANY: Final = 0.5
"""Share of impossible times above which the unit of the column is considered wrong."""


@dataclass(frozen=True, slots=True)
class Hardware:
    """Limits of the devices of n rows; NaN if unknown.

    Attributes:
        bound_ms: (n,) lower bound of the time of each row.
        tdp_w: (n,) design power.
        memory_mib: (n,) memory of the device.
    """

    bound_ms: Column
    tdp_w: Column
    memory_mib: Column


def findings_of(
    runs: "pd.DataFrame", description: Description, hardware: Hardware
) -> "pd.DataFrame":
    """Doubtful rows of `runs`, in the form of `forerun.data.quality.check`.

    Raises:
        BadTable: most times are shorter than the hardware allows, so their unit must be wrong, or
            a share is above 1.
    """
    time_ms = _column(runs, "latency_ms")
    _check_units(runs, time_ms, hardware.bound_ms)
    quantities = Quantities(
        time_ms=time_ms,
        bound_ms=hardware.bound_ms,
        power_w=_column(runs, "power_w"),
        tdp_w=hardware.tdp_w,
        energy_j=_column(runs, "energy_j"),
    )
    columns = [*description.question_columns, *description.metrics]
    found = check(runs, quantities, same=[name for name in columns if name in runs])
    memory = _column(runs, "peak_memory_mib")
    if memory is not None:
        over = memory > hardware.memory_mib
        found = with_findings(found, over, "impossible", "more memory than the device has")
    if time_ms is not None:
        keys = text_keys(runs, description.question_columns)
        apart = _contradicting(keys, time_ms)
        why = f"times of the same question differ by more than a factor of {CONFLICT:g}"
        found = with_findings(found, apart, "conflict", why)
    return found


def _column(runs: "pd.DataFrame", name: str) -> Column | None:
    return runs[name].to_numpy(dtype=np.float64) if name in runs else None


def _check_units(runs: "pd.DataFrame", time_ms: Column | None, bound_ms: Column) -> None:
    if "utilisation" in runs and (runs["utilisation"] > 1).any():
        row = int(np.flatnonzero(runs["utilisation"] > 1)[0])
        raise BadTable(
            f"utilisation, row {row + 1}, is {runs['utilisation'].iloc[row]:g}, above 1; "
            "--map NAME=utilization_percent reads a column in percent."
        )
    if time_ms is None:
        return
    known = np.isfinite(time_ms) & np.isfinite(bound_ms) & (bound_ms > 0)
    fast = known & (bound_ms > FASTER * time_ms)
    if known.any() and fast.sum() > TOO_MANY * known.sum():
        row = int(np.flatnonzero(fast)[0])
        raise BadTable(
            f"{fast.sum()} of {known.sum()} times are shorter than the hardware allows (row "
            f"{row + 1}: {time_ms[row]:.3g} ms, at least {bound_ms[row]:.3g} ms): is the unit "
            "right? --map NAME=latency_s or --map NAME=latency_us states it."
        )


def _contradicting(
    keys: "np.ndarray[tuple[int], np.dtype[np.str_]]", time_ms: Column
) -> "np.ndarray[tuple[int], np.dtype[np.bool_]]":
    """Rows of questions whose largest time is more than `CONFLICT` times the smallest, (n,)."""
    _, group = np.unique(keys, return_inverse=True)
    largest, smallest = np.zeros(group.max() + 1), np.full(group.max() + 1, np.inf)
    known = np.isfinite(time_ms)
    np.maximum.at(largest, group[known], time_ms[known])
    np.minimum.at(smallest, group[known], time_ms[known])
    return known & (largest > CONFLICT * smallest)[group]
