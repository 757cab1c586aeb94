"""What each column of a user's table holds, by its name: a key, a metric and its unit, a setting.

Names are compared in lower case with `_` for every other character, so that `Latency (ms)` is
`latency_ms`.
"""

import difflib
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from forerun.data.errors import BadTable, InputError
from forerun.data.measurement import METRIC_COLUMNS, QUERY_COLUMNS
from forerun.data.metrics import DESIGN_METRICS, SERVING_METRICS

SETTING: Final = "setting"
IGNORED: Final = "ignored"
METRIC_NAMES: Final = (
    *METRIC_COLUMNS,
    *(metric.name for metric in (*DESIGN_METRICS, *SERVING_METRICS)),
)
"""Metrics that a table may hold, in the order in which they are listed."""
KEYS: Final = (*QUERY_COLUMNS, "threads", "model", "family", "status", "repeats", "spread")
"""Columns other than metrics that have a meaning of their own."""


_NAMES: Final = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a column holds.

    Attributes:
        role: one of `KEYS` or `METRIC_NAMES`, `setting` or `ignored`.
        factor: by which its numbers are multiplied to be in the metric's unit; 1 for other roles.
    """

    role: str
    factor: float = 1.0


def meaning_of(name: str) -> Meaning | None:
    """What a column of that name holds; None where the name does not say."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    if plain in KEYS or plain in METRIC_NAMES:
        return Meaning(plain)
    for role, synonyms in _NAMES["synonyms"].items():
        if plain in synonyms:
            return Meaning(role)
    if plain in _NAMES["without_unit"]:
        return Meaning(_NAMES["without_unit"][plain])
    stem, _, unit = plain.rpartition("_")
    for metric, quantity in _NAMES["quantities"].items():
        units = _NAMES["units"][quantity["units"]]
        if stem in quantity["names"] and unit in units:
            return Meaning(metric, units[unit])
    return None


def given_meaning(text: str) -> Meaning:
    """The meaning that a user states, by any name that `meaning_of` knows, `setting` or `ignored`.

    Raises:
        InputError: there is no such meaning; the message lists those that there are.
    """
    if text in (SETTING, IGNORED):
        return Meaning(text)
    meaning = meaning_of(text)
    if meaning is None:
        close = difflib.get_close_matches(text.lower(), [*KEYS, *METRIC_NAMES], 3, 0.5)
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        raise InputError(
            f"A column cannot mean {text!r}. {hint}It can be {SETTING}, {IGNORED}, a metric "
            f"({', '.join(METRIC_NAMES)}) or one of {', '.join(KEYS)}; a unit follows its name, "
            "as in latency_us or memory_gib."
        )
    return meaning


def mapped(
    names: Sequence[str], given: Mapping[str, str], rest: str | None = None
) -> dict[str, Meaning | None]:
    """Column -> its meaning; None where neither its name nor the user says.

    Args:
        names: columns of the table.
        given: column -> its meaning as the user states it, which counts before its name.
        rest: `setting` or `ignored` for all columns whose names do not say; None for neither.

    Raises:
        InputError: a meaning is none, or is of a column that the table does not have.
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
    """Refuse two columns with the same role.

    Raises:
        BadTable: names both columns and how to choose one.
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
