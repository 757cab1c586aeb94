"""Storage of the leaderboard: one JSON file per evaluation run, and the entries of the package.

An evaluation run is one predictor under one protocol at one number of shots. Its file records what
the result depends on (data, settings, code); the run is repeated only if that changes. The entries
of the package come from the stored evaluations of its release.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from math import isfinite
from pathlib import Path
from typing import Any

from forerun.data.bundle import home
from forerun.data.datasets import DATASETS
from forerun.data.errors import BadTable
from forerun.data.file_store import HOME, Signature, signature_of, write_whole, writing_to
from forerun.models.answers.whole import WholeAnswers
from forerun.training.evaluation.stored import scoreboard
from forerun.training.leaderboard.entries import FIELDS, FORMAT, Entry, Kind, Leaderboard, cited
from forerun.training.published.figures import PUBLISHED, published_for

Row = Mapping[str, Any]
_THEIRS, _BASELINES = "published_", "baselines_"
NO_SCORE = {"task", "device", "metric", "predictor", "score", "n", "unanswered", "baselines"}
"""Fields of a row that are not scores."""


def shipped_entries(evaluations: Sequence[Row]) -> Iterator[Entry]:
    """Entries of stored evaluations."""
    for evaluation in evaluations:
        dataset = evaluation["dataset"]
        given = {name: evaluation[name] for name in ("seeds", "shots", "date", "commit", "digest")}
        for row in evaluation["tasks"]:
            protocol = row["task"].partition("/")[0]
            entry = entry_of(dataset, protocol, row, None, given)
            command_line = command(entry, row["predictor"])
            yield replace(entry, command=command_line)
            for system in row["baselines"]:
                scores = _scores_of_baseline(row, system)
                if scores["mape"] is None:
                    continue
                baseline_entry = entry_of(dataset, protocol, scores, system, given)
                yield replace(baseline_entry, n=row["n"], seeds=1, command=command_line)


def score_of(dataset: str, row: Row) -> str:
    """Name of the score that ranks a task: the row's own, the published one, or `mape`."""
    named = row.get("score")
    if named:
        return str(named)
    reported = [figure.score for figure in published_for(dataset, row["task"])]
    candidates = (*(["mape"] if "mape" in reported else []), *reported, "mape", *row)
    return next((c for c in candidates if c not in NO_SCORE and _known(row.get(c))), "mape")


def command(entry: Entry, predictor: str) -> str:
    """The command that reproduces an entry.

    Args:
        entry: an entry of `predictor`, or of a baseline in the same evaluation.
        predictor: name of the predictor that was evaluated.
    """
    words = ["forerun", "evaluate", entry.dataset]
    if entry.protocol:
        words += ["--protocol", entry.protocol]
    if predictor != WholeAnswers.name:
        words += ["--predictor", predictor]
    if entry.shots:
        words += ["--shots", str(entry.shots)]
    if (entry.seeds or 1) > 1:
        words += ["--seeds", str(entry.seeds)]
    return shlex.join(words)


def entry_of(
    dataset: str, protocol: str | None, row: Row, system: str | None, given: Mapping[str, Any]
) -> Entry:
    """The entry of one row of scores.

    Args:
        dataset: name of the bundle.
        protocol: name of the protocol.
        row: scores by name, with `task`, `device` and `metric`.
        system: name of the baseline or published system; None for our predictor.
        given: further fields of the entry, such as `digest` and `shots`.
    """
    score = score_of(dataset, row)
    kind, name, citation = _who(dataset, row, system)
    scores: dict[str, Any] = {field: _finite(row.get(field)) for field in FIELDS}
    return Entry(
        dataset=dataset,
        task=row["task"],
        metric=row["metric"],
        predictor=name,
        kind=kind,
        score=score,
        value=_finite(row.get(score)),
        standard_error=_finite(row.get(f"{score}_standard_error")),
        device=row["device"],
        protocol=protocol,
        n=row.get("n"),
        further={
            field: value
            for field, value in row.items()
            if field not in {*NO_SCORE, *FIELDS, f"{score}_standard_error"} and _known(value)
        },
        citation=citation,
        **scores,
        **given,
    )


def _scores_of_baseline(row: Row, system: str) -> dict[str, Any]:
    """The row of a baseline or published system, extracted from the predictor's row."""
    found: dict[str, Any] = {name: row[name] for name in ("task", "device", "metric")}
    found["mape"] = row["baselines"][system]
    for field, by_system in row.items():
        if field.startswith(_BASELINES):
            found[field.removeprefix(_BASELINES)] = by_system.get(system)
    if _known(found.get(row.get("score", ""))):
        found["score"] = row["score"]
    return found


def _who(dataset: str, row: Row, system: str | None) -> tuple[Kind, str, str | None]:
    if system is None:
        return "ours", row["predictor"], None
    if not system.startswith(_THEIRS):
        return "baseline", system, None
    name = system.removeprefix(_THEIRS)
    for figure in PUBLISHED:
        if figure.dataset == dataset and _letters(figure.system) == _letters(name):
            return "published", figure.system, figure.citation
    source = {cls.name: cls.citation for cls in DATASETS}.get(dataset, dataset)
    return "published", name, f"predictions that are published with the rows: {source}"


def _letters(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def _known(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _finite(value: Any) -> float | None:
    return value if _known(value) else None


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
        """Name of its file; a later run with the same four fields replaces it."""
        words = (self.dataset, self.protocol, self.predictor, f"{self.shots}-shots")
        return "--".join(re.sub(r"[^\w.-]", "_", word) for word in words) + ".json"


@dataclass(frozen=True)
class ResultStore:
    """A folder of finished evaluation runs, written atomically and durably.

    Attributes:
        folder: created with the first result.
        report: called with the path and the reason when a file cannot be read.
    """

    folder: Path
    report: Callable[[Path, Exception], None] = lambda path, why: None

    @classmethod
    def default(cls) -> "ResultStore":
        """The store in FORERUN_HOME."""
        return cls(home() / FOLDER)

    def stamp(self) -> Signature:
        """What changes when a result is added; None right after a change."""
        with suppress(OSError):
            return signature_of(self.folder)
        return 0, 0, 0

    def finished(self, run: EvaluationRun) -> tuple[Entry, ...] | None:
        """Entries of exactly this evaluation run; None if it is not finished."""
        try:
            stored_run, entries = _read(self.folder / run.file)
        except Exception as error:
            if not isinstance(error, FileNotFoundError):
                self.report(self.folder / run.file, error)
            return None
        return entries if stored_run == asdict(run) else None

    def keep(self, run: EvaluationRun, entries: Sequence[Entry]) -> None:
        """Write a finished evaluation run.

        Raises:
            CannotStore: it cannot be written.
        """
        content = {
            "format": FORMAT,
            "sitting": asdict(run),
            "entries": [entry.to_json() for entry in entries],
        }
        with writing_to(HOME):
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(content, indent=1, allow_nan=False)
            write_whole(self.folder / run.file, f"{text}\n")

    def entries(self) -> tuple[Entry, ...]:
        """Entries of all finished runs, oldest first; unreadable files are skipped."""
        found: list[Entry] = []
        for file in sorted(self.folder.glob("*.json")):
            try:
                found += _read(file)[1]
            except Exception as error:
                self.report(file, error)
        return tuple(sorted(found, key=lambda entry: entry.date or ""))


def stored(store: ResultStore) -> Leaderboard:
    """Entries that came with the package, entries evaluated here, and published results."""
    board = Leaderboard().with_entries(shipped()).with_entries(store.entries())
    figures = [figure for dataset in board.datasets() for figure in cited(dataset)]
    return board.with_entries(figures)


def shipped() -> tuple[Entry, ...]:
    """Entries of the scoreboard."""
    return tuple(shipped_entries(scoreboard()))


def _read(file: Path) -> tuple[Mapping[str, Any], tuple[Entry, ...]]:
    """Stored fields of a finished evaluation run, and its entries."""
    parts = json.loads(file.read_bytes())
    if parts["format"] != FORMAT:
        raise BadTable(f"{file.name} is not a result of format {FORMAT}.")
    return parts["sitting"], tuple(map(Entry.from_json, parts["entries"]))
