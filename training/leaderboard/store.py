"""Storage of the leaderboard: one JSON file for each evaluation run, and entries of the package.

An evaluation run is one predictor under one protocol at one number of shots. Its file records what
the result depends on (data, settings, code); while that is unchanged, it is not repeated.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from forerun.data.bundle import home
from forerun.data.errors import BadTable
from forerun.data.file_store import DamagedFile, FileStore
from forerun.training.evaluation.stored import scoreboard
from forerun.training.leaderboard.entries import FORMAT, Entry, Leaderboard, cited
from forerun.training.leaderboard.rows import shipped_entries

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
class FinishedRun:
    """An evaluation run with its results.

    Attributes:
        run: fields of the evaluation run, as they are stored.
        entries: its results.
    """

    run: Mapping[str, Any]
    entries: tuple[Entry, ...]


@dataclass(frozen=True)
class ResultStore:
    """A folder of finished evaluation runs, written atomically and durably.

    Attributes:
        folder: created with the first result.
        report: called with the path and the reason when a file cannot be read (`FileStore`).
    """

    folder: Path
    report: Callable[[Path, Exception], None] = lambda path, why: None

    @classmethod
    def default(cls) -> "ResultStore":
        """The store in FORERUN_HOME."""
        return cls(home() / FOLDER)

    @cached_property
    def _files(self) -> FileStore[FinishedRun]:
        return FileStore(self.folder, _encoded, _decoded, self.report)

    def stamp(self) -> int:
        """A stamp that changes when a result is added; -1 right after a change (`FileStore`)."""
        return self._files.stamp()

    def finished(self, run: EvaluationRun) -> tuple[Entry, ...] | None:
        """Entries of exactly this evaluation run; None where it was not finished."""
        try:
            stored_run = self._files.get(run.file)
        except (FileNotFoundError, DamagedFile):
            return None
        return stored_run.entries if stored_run.run == asdict(run) else None

    def keep(self, run: EvaluationRun, entries: Sequence[Entry]) -> None:
        """Write a finished evaluation run."""
        self._files.put(run.file, FinishedRun(asdict(run), tuple(entries)))

    def entries(self) -> tuple[Entry, ...]:
        """Entries of all finished runs, the oldest first; unreadable files are left out."""
        found = [entry for run in self._files.values().values() for entry in run.entries]
        return tuple(sorted(found, key=lambda entry: entry.date or ""))


def stored(store: ResultStore) -> Leaderboard:
    """Entries that came with the package, entries evaluated here, and published results."""
    board = Leaderboard().with_entries(shipped()).with_entries(store.entries())
    figures = [figure for dataset in board.datasets() for figure in cited(dataset)]
    return board.with_entries(figures)


def shipped() -> tuple[Entry, ...]:
    """Entries of the scoreboard."""
    return tuple(shipped_entries(scoreboard()))


def _encoded(finished: FinishedRun) -> str:
    content = {
        "format": FORMAT,
        "sitting": dict(finished.run),
        "entries": [entry.to_json() for entry in finished.entries],
    }
    return json.dumps(content, indent=1, allow_nan=False) + "\n"


def _decoded(name: str, content: bytes) -> FinishedRun:
    parts = json.loads(content)
    if parts["format"] != FORMAT:
        raise BadTable(f"{name} is not a result of format {FORMAT}.")
    return FinishedRun(parts["sitting"], tuple(map(Entry.from_json, parts["entries"])))
