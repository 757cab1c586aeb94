"""Where results of the leaderboard are kept: one JSON file a sitting, and what was shipped.

A sitting is one predictor in one protocol at one number of shots. Its file names what it was judged
with; while that is the same, it is not judged again.
"""

import json
import os
import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

from forerun.data.bundle import home
from forerun.data.errors import BadTable
from forerun.training.leaderboard.entries import FORMAT, Entry, Leaderboard, cited
from forerun.training.tracking.record import TrainingRecord

FOLDER = "leaderboard"


@dataclass(frozen=True)
class EvaluationRun:
    """One predictor that sits one protocol's exams, and what the outcome depends on.

    Attributes:
        dataset: name of the bundle.
        protocol: name of the exams.
        predictor: who sits.
        shots: rows asked for to adapt on.
        seeds: fits that are averaged.
        digest: hash of the bundle.
        settings: the predictor before it is fitted, as text.
        commit: the code.
    """

    dataset: str
    protocol: str
    predictor: str
    shots: int
    seeds: int
    digest: str
    settings: str
    commit: str | None

    @property
    def file(self) -> str:
        """Name of its file; a later sitting of the same four takes its place."""
        words = (self.dataset, self.protocol, self.predictor, f"{self.shots}-shots")
        return "--".join(re.sub(r"[^\w.-]", "_", word) for word in words) + ".json"


@dataclass(frozen=True)
class ResultStore:
    """A folder of finished sittings; each file is whole or not there.

    Attributes:
        folder: made with the first result.
    """

    folder: Path

    @classmethod
    def default(cls) -> "ResultStore":
        """The store in FORERUN_HOME."""
        return cls(home() / FOLDER)

    def finished(self, run: EvaluationRun) -> tuple[Entry, ...] | None:
        """Entries of exactly this sitting; None where it was not finished."""
        try:
            content = _read(self.folder / run.file)
        except (OSError, BadTable):
            return None
        if content["sitting"] != asdict(run):
            return None
        return tuple(Entry.from_json(entry) for entry in content["entries"])

    def keep(self, run: EvaluationRun, entries: Sequence[Entry]) -> Path:
        """Write a finished sitting, all or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = {
            "format": FORMAT,
            "sitting": asdict(run),
            "entries": [entry.to_json() for entry in entries],
        }
        path = self.folder / run.file
        handle, draft = tempfile.mkstemp(suffix=".part", dir=self.folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(json.dumps(content, indent=1, allow_nan=False) + "\n")
            Path(draft).replace(path)
        finally:
            Path(draft).unlink(missing_ok=True)
        return path

    def entries(self) -> tuple[Entry, ...]:
        """Of every finished sitting, the oldest first; a file that cannot be read is left out."""
        found: list[Entry] = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found += (Entry.from_json(entry) for entry in _read(path)["entries"])
            except (OSError, BadTable):
                continue
        return tuple(sorted(found, key=lambda entry: entry.date or ""))


def stored(store: ResultStore) -> Leaderboard:
    """What was shipped with the package, what was judged here, and what others report."""
    board = Leaderboard().with_entries(shipped()).with_entries(store.entries())
    figures = [figure for dataset in board.datasets() for figure in cited(dataset)]
    return board.with_entries(figures)


def shipped(folder: Path | None = None) -> tuple[Entry, ...]:
    """Scores that came with the bundled predictors; nothing where none came.

    Args:
        folder: of a saved predictor with `scores.json`; the bundled one when None.
    """
    from forerun.training.leaderboard.rows import shipped_entries

    with as_file(files("forerun.models") / "pretrained") as bundled:
        place = bundled if folder is None else folder
        texts: dict[str, Any] = {}
        for name in ("scores", "manifest"):
            file = place / f"{name}.json"
            if not file.is_file():
                return ()
            texts[name] = json.loads(file.read_text(encoding="utf-8"))
        digests = TrainingRecord.read(place).digests
    return tuple(shipped_entries(texts["scores"], digests, texts["manifest"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadTable(f"Cannot read {path}: {error}") from None
    parts: Iterable[str] = ("sitting", "entries")
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadTable(f"{path} is no result of format {FORMAT}.")
    if any(part not in content for part in parts):
        raise BadTable(f"{path} is no result of a sitting.")
    return content
