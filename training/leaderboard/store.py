"""Storage of the leaderboard: one JSON file for each evaluation run, and entries of the package.

An evaluation run is one predictor under one protocol at one number of shots. Its file records what
the result depends on (data, settings, code); while that is unchanged, it is not repeated.
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
    """One predictor under one protocol, with everything that the result depends on.

    Attributes:
        dataset: name of the bundle.
        protocol: name of the protocol.
        predictor: name of the predictor.
        shots: requested size of the support set.
        seeds: number of fits that are averaged.
        digest: hash of the bundle.
        settings: `repr` of the unfitted predictor.
        commit: state of the code.
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
        """Name of its file; a later run of the same four fields replaces it."""
        words = (self.dataset, self.protocol, self.predictor, f"{self.shots}-shots")
        return "--".join(re.sub(r"[^\w.-]", "_", word) for word in words) + ".json"


@dataclass(frozen=True)
class ResultStore:
    """A folder of finished evaluation runs, written atomically.

    Attributes:
        folder: created with the first result.
    """

    folder: Path

    @classmethod
    def default(cls) -> "ResultStore":
        """The store in FORERUN_HOME."""
        return cls(home() / FOLDER)

    def finished(self, run: EvaluationRun) -> tuple[Entry, ...] | None:
        """Entries of exactly this evaluation run; None where it was not finished."""
        try:
            content = _read(self.folder / run.file)
        except (OSError, BadTable):
            return None
        if content["sitting"] != asdict(run):
            return None
        return tuple(Entry.from_json(entry) for entry in content["entries"])

    def keep(self, run: EvaluationRun, entries: Sequence[Entry]) -> Path:
        """Write a finished evaluation run atomically."""
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
        """Entries of all finished runs, the oldest first; unreadable files are left out."""
        found: list[Entry] = []
        for path in sorted(self.folder.glob("*.json")):
            try:
                found += (Entry.from_json(entry) for entry in _read(path)["entries"])
            except (OSError, BadTable):
                continue
        return tuple(sorted(found, key=lambda entry: entry.date or ""))


def stored(store: ResultStore) -> Leaderboard:
    """Entries that came with the package, entries evaluated here, and published results."""
    board = Leaderboard().with_entries(shipped()).with_entries(store.entries())
    figures = [figure for dataset in board.datasets() for figure in cited(dataset)]
    return board.with_entries(figures)


def shipped(folder: Path | None = None) -> tuple[Entry, ...]:
    """Entries of the scores that came with the bundled predictors; empty where none came.

    Args:
        folder: folder of a saved predictor with `scores.json`; the bundled one when None.
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
        raise BadTable(f"{path} is not a result of format {FORMAT}.")
    if any(part not in content for part in parts):
        raise BadTable(f"{path} is not the result of an evaluation run.")
    return content
