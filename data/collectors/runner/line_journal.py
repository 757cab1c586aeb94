"""An append-only file of JSON lines that stays readable wherever writing was cut off."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


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
