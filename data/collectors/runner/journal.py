"""Rows stored as they are measured, so that a killed run resumes where it stopped.

JSON lines in the table's folder: the first says what the rows hold for, each further one is a row,
written at once. A line that a crash cut short is skipped.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from forerun.data.collectors.runner.trial import Row
from forerun.data.errors import InputError
from forerun.data.lazy import pd


@dataclass(frozen=True)
class LineJournal:
    """One JSON object per line; a line that was cut off by a crash is skipped.

    Attributes:
        path: the file; made, with its folder, by the first line.
    """

    path: Path

    def append(self, row: Mapping[str, Any]) -> None:
        """Write one object and hand it to the operating system at once."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        torn = self._ends_torn()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(("\n" if torn else "") + json.dumps(row) + "\n")

    def rows(self) -> Iterator[dict[str, Any]]:
        """Objects in the order they were written; lines that are no whole object are left out."""
        if not self.path.is_file():
            return
        with self.path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict):
                    yield row

    def _ends_torn(self) -> bool:
        if not self.path.is_file() or self.path.stat().st_size == 0:
            return False
        with self.path.open("rb") as file:
            file.seek(-1, 2)
            return file.read(1) != b"\n"


KEY = "trial"
"""Column that identifies trials."""
TRIES = 2


class OtherRun(InputError):
    """A journal belongs to another machine or other settings."""

    status = 409


@dataclass(frozen=True)
class Journal:
    """The rows of one table while it grows.

    Attributes:
        lines: a line about device and settings, then one line per row.
    """

    lines: LineJournal

    @classmethod
    def for_table(cls, table: Path) -> "Journal":
        """The journal of a table: `<table>.journal` in the same folder."""
        return cls(LineJournal(table.with_name(f"{table.name}.journal")))

    def open(self, about: Mapping[str, Any]) -> None:
        """Start or resume rows that were measured under the same conditions.

        Args:
            about: device, host and settings; what may change from run to run is no part of it.

        Raises:
            OtherRun: the journal's rows were taken otherwise.
        """
        first = next(self.lines.rows(), None)
        if first is None:
            self.lines.append({"about": dict(about)})
            return
        found = first.get("about", {})
        wrong = [name for name in about if found.get(name) != json.loads(json.dumps(about[name]))]
        if wrong:
            raise OtherRun(
                f"{self.lines.path} was begun with another {', '.join(wrong)}; write to "
                "another file, or delete it to start over."
            )

    def rows(self) -> list[Row]:
        """Rows in the order they were measured; the last of each trial counts."""
        found = {str(line[KEY]): line for line in self.lines.rows() if KEY in line}
        return list(found.values())

    def done(self) -> set[str]:
        """Keys of trials that need not be measured again; what failed is tried `TRIES` times."""
        lines = [line for line in self.lines.rows() if KEY in line]
        good = {str(line[KEY]) for line in lines if line.get("status") != "failed"}
        counts = Counter(str(line[KEY]) for line in lines)
        return good | {key for key, count in counts.items() if count >= TRIES}

    def add(self, key: str, row: Row) -> None:
        """Store a row; once this returns, it survives the end of this process."""
        self.lines.append({KEY: key, **{name: _plain(value) for name, value in row.items()}})

    def frame(self) -> "pd.DataFrame":
        """The rows as a table; columns in order of first appearance."""
        return pd.DataFrame(self.rows())


def _plain(value: Any) -> Any:
    """A NumPy number as Python's; None where it is not finite."""
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not isfinite(value) else value
