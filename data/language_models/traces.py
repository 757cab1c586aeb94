"""Reads traces of requests: those that come with the package, and users' own."""

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.errors import BadTrace, in_field, why_unreadable
from forerun.data.language_models.requests import Requests
from forerun.data.lazy import pd

FIELDS: Final = ("arrival_s", "input_tokens", "output_tokens")
ALSO: Final[Mapping[str, str]] = {
    **dict.fromkeys(("isl", "input_len"), "input_tokens"),
    **dict.fromkeys(("osl", "output_len"), "output_tokens"),
}
"""Alias of a field -> the field."""
PUBLISHED: Final[Sequence[tuple[tuple[str, str, str], float | None]]] = (
    (("TIMESTAMP", "ContextTokens", "GeneratedTokens"), None),
    (("timestamp", "input_length", "output_length"), 1e-3),
    (("Timestamp", "Request tokens", "Response tokens"), 1.0),
)
"""Field names in the traces of Azure (2023 and 2024), Mooncake and BurstGPT, and the unit of their
arrival times in seconds; None for timestamps with a date."""
MOST_REQUESTS: Final = 200_000
MOST_BYTES: Final = 32 * 2**20
MOST_TOKENS: Final = 10_000_000
APEX: Final = "apex_traces"
PACKAGED: Final[Mapping[str, str]] = {
    "splitwise_code": "Azure LLM inference trace 2023, code completion, 57 minutes",
    "splitwise_conv": "Azure LLM inference trace 2023, conversation, 58 minutes",
    **{
        f"{kind}_{rate}_{family}": f"APEX, {text} at {value} requests/s, tokens of {family}"
        for kind, text in (("creation", "creation of texts"), ("lmsys", "chat"))
        for rate, value in (("025", 0.25), ("05", 0.5))
        for family in ("llama", "mistral")
    },
}
"""Name of a trace -> its description."""


def named_trace(name: str) -> Requests:
    """A trace that comes with the package.

    Raises:
        BadTrace: no trace has that name.
    """
    if name not in PACKAGED:
        raise BadTrace(
            f"{name!r:.80}", f"no public trace has that name; there are {', '.join(PACKAGED)}"
        )
    apex = not name.startswith("splitwise")
    folder = resources.files("forerun.data") / "llm_tables" / "llm_traces"
    with resources.as_file(folder / f"{APEX if apex else name}.parquet") as path:
        table = pd.read_parquet(path)
    if not apex:
        columns = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
        return _requests([table[column].to_numpy() for column in columns])
    trace, _, family = name.rpartition("_")
    rows = table[(table["trace"] == trace) & (table["tokenizer_family"] == family)]
    arrival_s = rows["arrival_offset_ns"].to_numpy() / 1e9
    return _requests(
        [arrival_s, rows["prompt_tokens"].to_numpy(), rows["output_tokens"].to_numpy()]
    )


def read_trace(source: Path | str | Sequence[Mapping[str, Any]]) -> Requests:
    """Read requests from a CSV file with a header, from a JSON Lines file, or from rows.

    A string is the content of such a file: CSV, unless it begins with a JSON object.

    Each request has `arrival_s` (seconds from any origin), `input_tokens` and `output_tokens`, or
    the fields of an Azure, Mooncake or BurstGPT trace; other fields are ignored. Requests are
    sorted by arrival.

    Raises:
        BadTrace: the file is unreadable, too large or empty, or a field is missing or invalid; the
            message names the line.
    """
    if isinstance(source, Path):
        rows = _rows(f"{source}, line", _content(source), is_csv=source.suffix == ".csv")
    elif isinstance(source, str):
        rows = _rows("line", source, is_csv=not source.lstrip().startswith("{"))
    else:
        rows = ((f"request {number}", row) for number, row in enumerate(source, 1))
    requests: list[tuple[float, int, int]] = []
    for where, row in rows:
        if len(requests) == MOST_REQUESTS:
            raise BadTrace(where, f"a trace has at most {MOST_REQUESTS:,} requests; divide it")
        with in_field(*(() if isinstance(source, Path) else (len(requests),))):
            requests.append(_request(where, row))
    if not requests:
        raise BadTrace(str(source) if isinstance(source, Path) else "trace", "it has no request")
    return _requests([np.array(column) for column in zip(*requests, strict=True)])


def _requests(columns: Sequence[np.ndarray[Any, Any]]) -> Requests:
    arrival, inputs, outputs = columns
    order = np.argsort(arrival, kind="stable")
    lengths = (np.maximum(1, column[order]).astype(np.intp) for column in (inputs, outputs))
    return Requests(arrival[order].astype(np.float64), *lengths)


def _content(path: Path) -> str:
    """The text of a file."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise BadTrace(str(path), f"it is larger than {MOST_BYTES // 2**20} MiB; divide it")
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadTrace(str(path), why_unreadable(error)) from error


def _rows(where: str, text: str, *, is_csv: bool) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Location in the file, and content, of each row."""
    if is_csv:
        reader = csv.DictReader(text.splitlines())
        for row in reader:
            yield f"{where} {reader.line_num}", row
        return
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                row = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise BadTrace(f"{where} {number}", "it is not a JSON object") from error
            yield f"{where} {number}", row


def _request(where: str, row: object) -> tuple[float, int, int]:
    if not isinstance(row, Mapping):
        raise BadTrace(where, f"it is not an object with the fields {', '.join(FIELDS)}")
    row = _canonical(where, row)
    for name in FIELDS:
        if row.get(name) in (None, ""):
            raise BadTrace(where, f"{name} is missing")
    arrival, inputs, outputs = (_number(where, name, row[name]) for name in FIELDS)
    for name, value in zip(FIELDS[1:], (inputs, outputs), strict=True):
        if not 1 <= value <= MOST_TOKENS or value != int(value):
            raise BadTrace(where, f"{name} is {value:g}; it is a whole number from 1")
    return arrival, int(inputs), int(outputs)


def _canonical(where: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row with the names in `FIELDS`, if it has aliases or those of a published trace."""
    if FIELDS[0] in row:
        return {**{ALSO.get(name, name): value for name, value in row.items()}, **row}
    for names, unit_s in PUBLISHED:
        if all(name in row for name in names):
            arrival, *lengths = (row[name] for name in names)
            if arrival not in (None, ""):
                arrival = (
                    _date_s(where, names[0], arrival)
                    if unit_s is None
                    else (unit_s * _number(where, names[0], arrival))
                )
            return dict(zip(FIELDS, (arrival, *lengths), strict=True))
    return row


def _date_s(where: str, name: str, value: object) -> float:
    """Seconds since 1970 of a timestamp, to the microsecond."""
    text = str(value).strip()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise BadTrace(where, f"{name} is {text!r:.40}, which is not a date") from None
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _number(where: str, name: str, value: object) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(str(value))
    except ValueError:
        number = float("nan")
    if not isfinite(number):
        raise BadTrace(where, f"{name} is {str(value)!r:.40}, which is not a number")
    return number
