"""Validation of tables by pandera schemas; an error becomes one line with row and column."""

import re
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, Final

from forerun.data.errors import BadTable, MissingData, why_unreadable
from forerun.data.lazy import pa, pd


def text(*, values: "tuple[str, ...] | None" = None, nullable: bool = False) -> "pa.Column":
    """A column of printable text, or of categories with such labels.

    Args:
        values: permitted texts; any when None.
        nullable: whether values may be missing.
    """

    def all_text(column: "pd.Series[Any]") -> "pd.Series[bool]":
        plain = column.map(lambda value: isinstance(value, str) and value.isprintable())
        return plain.astype(bool)

    checks = [pa.Check(all_text, name="is printable text")]
    if values is not None:
        checks.append(pa.Check.isin(list(values)))
    return pa.Column(None, checks, nullable=nullable)


def number(
    dtype: str | None = "float64",
    *,
    low: float | None = None,
    above: float | None = None,
    high: float | None = None,
    nullable: bool = False,
) -> "pa.Column":
    """A column of finite numbers.

    Args:
        dtype: numpy or pandas type; any when None.
        low: smallest permitted value.
        above: value that all must exceed.
        high: largest permitted value.
        nullable: whether values may be missing.
    """
    import numpy as np

    def finite(column: "pd.Series[float]") -> "pd.Series[bool]":
        return ~column.isin([np.inf, -np.inf])

    checks = [pa.Check(finite, name="is finite")]
    if low is not None:
        checks.append(pa.Check.ge(low))
    if above is not None:
        checks.append(pa.Check.gt(above))
    if high is not None:
        checks.append(pa.Check.le(high))
    return pa.Column(dtype, checks, nullable=nullable)


_RULE: Final = re.compile(r"(\w+)(?: (>=|>) (\S+))?(?: <= (\S+))?( or missing)?(?:: (.*))?")


def declared_schema(rules: Mapping[str, Sequence[str]]) -> "pa.DataFrameSchema":
    """The schema of a table from its declaration.

    Args:
        rules: rule -> columns. A rule is `text`, `text: one, other` (permitted texts), `any`, or a
            type of numpy or pandas with optional bounds as in `int64 >= 0 <= 100`; `or missing` is
            appended if values may be missing.

    Raises:
        ValueError: a rule has another form.
    """
    return pa.DataFrameSchema({name: _column(rule) for rule in rules for name in rules[rule]})


def _column(rule: str) -> "pa.Column":
    found = _RULE.fullmatch(rule)
    if found is None:
        raise ValueError(f"{rule!r} is no rule for a column")
    dtype, sign, least, most, missing, values = found.groups()
    if dtype == "text":
        return text(values=tuple(values.split(", ")) if values else None, nullable=bool(missing))
    bounds = {"low" if sign == ">=" else "above": int(least)} if sign else {}
    bounds |= {"high": int(most)} if most else {}
    return number(None if dtype == "any" else dtype, nullable=bool(missing), **bounds)


def read_table_file(path: Path, what: str, missing: Sequence[str] = ("",)) -> "pd.DataFrame":
    """Read a CSV or Parquet file without conversions; in a CSV, every cell is text or missing.

    Args:
        path: the file.
        what: what it should be, for messages.
        missing: texts that stand for a missing value.

    Raises:
        MissingData: there is no such file.
        BadTable: the file cannot be read.
    """
    if not path.is_file():
        raise MissingData(f"No file {path}.")
    if path.suffix not in (".parquet", ".csv"):
        raise BadTable(f"{path}: {what} ends in .parquet or .csv.")
    cells: dict[str, Any] = {"dtype": str, "keep_default_na": False}
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        text = StringIO(path.read_text(encoding="utf-8-sig"))
        frame: pd.DataFrame = pd.read_csv(text, na_values=list(missing), **cells)
    except (OSError, ValueError) as error:
        raise BadTable(f"Cannot read {path}: {why_unreadable(error)}.") from error
    return frame


def check_table(frame: "pd.DataFrame", schema: "pa.DataFrameSchema", where: str) -> "pd.DataFrame":
    """Validate a table; returns it with the types of the schema.

    Args:
        frame: rows; the first is called row 1.
        schema: pandera schema.
        where: name of the table in messages, such as a file's path.

    Raises:
        BadTable: the message names the first wrong column and row.
    """
    from pandera.errors import SchemaErrors

    try:
        return schema.validate(frame.reset_index(drop=True), lazy=True)
    except SchemaErrors as error:
        raise BadTable(f"{where}: {_first(error.failure_cases)}") from error


def _first(cases: "pd.DataFrame") -> str:
    """The first error: missing columns before wrong types, and these before wrong values."""
    checks = cases["check"].astype(str)
    missing = cases[checks == "column_in_dataframe"]
    if len(missing):
        return f"no column {missing.iloc[0]['failure_case']!r}."
    wrong_type = cases[checks.str.startswith(("dtype", "coerce_dtype"))]
    case = (wrong_type if len(wrong_type) else cases).iloc[0]
    row = case["index"]
    place = "" if row is None or row != row else f", row {int(row) + 1}"
    value = case["failure_case"]
    plain = value.item() if hasattr(value, "item") else value
    return f"column {case['column']!r}{place}: {plain!r} fails {case['check']}."
