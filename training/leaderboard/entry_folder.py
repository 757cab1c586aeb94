"""A leaderboard entry as a folder: predictions, and `entry.yaml`, which says how they were made.

Anybody can write one. `verify` recomputes the held-out rows from the dataset, and the scores from
the predictions. `predictions.csv` (or `.parquet`) has the columns of `COLUMNS`; `row` counts the
held-out rows of a task from 0, over all its folds.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from math import isclose
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import yaml
from pydantic import AwareDatetime, ConfigDict, Field, ValidationError

from forerun.data.bundle import Bundle, find
from forerun.data.columns import Column
from forerun.data.described import Described, first_fault
from forerun.data.device import DeviceCatalog
from forerun.data.errors import BadEntry, InputError
from forerun.data.lazy import pd
from forerun.models.catalog import catalog
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.leaderboard.entries import Entry, Kind
from forerun.training.leaderboard.evaluated import Evaluation, entries_by_run, entries_of
from forerun.training.leaderboard.store import EvaluationRun, ResultStore
from forerun.training.protocols import protocols_of_dataset
from forerun.training.protocols.protocol import DatasetProtocols, Task

FACTS: Final = "entry.yaml"
PREDICTIONS: Final = ("predictions.csv", "predictions.parquet")
KEY: Final = ("task", "device", "metric", "seed")
NUMBERS: Final = ("measured", "predicted", "low", "high")
COLUMNS: Final = (*KEY, "row", *NUMBERS)


class ClaimedScore(Described):
    """The score of one task that the entry claims."""

    model_config = ConfigDict(extra="forbid")

    task: str
    device: str | None = None
    metric: str
    score: str
    """name of the score, such as mape"""
    value: float
    n: int = Field(ge=1)
    """number of held-out rows"""


class EntryFacts(Described):
    """Content of `entry.yaml`."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["forerun.entry/1"] = "forerun.entry/1"
    system: str = Field(min_length=1, max_length=80)
    """name of the predictor"""
    command: str = Field(min_length=1)
    """command that reproduces the predictions"""
    commit: str = Field(min_length=1)
    """version of the code"""
    environment: dict[str, str]
    """package -> version"""
    dataset: str
    digest: str
    """hash of the bundle, as printed by `forerun data describe`"""
    protocols: tuple[str, ...] = Field(min_length=1)
    """such as unseen_device"""
    date: AwareDatetime
    citation: str | None = None
    scores: tuple[ClaimedScore, ...] = Field(min_length=1)


def read_facts(folder: Path) -> EntryFacts:
    """Content of `entry.yaml`.

    Raises:
        BadEntry: it is missing or malformed; the message names the field.
    """
    path = folder / FACTS
    if not path.is_file():
        raise BadEntry(f"{folder} has no {FACTS}.")
    try:
        return EntryFacts.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        raise BadEntry(f"{path}: {first_fault(error)}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadEntry(f"{path} is not YAML: {' '.join(str(error).split())}") from None


def read_predictions(folder: Path) -> "pd.DataFrame":
    """The table of predictions, with the columns `COLUMNS`; the seed defaults to 0.

    Raises:
        BadEntry: the file is missing, exists in both formats, lacks a column, or has a cell that is
            not a number.
    """
    files = [folder / name for name in PREDICTIONS if (folder / name).is_file()]
    if len(files) != 1:
        raise BadEntry(f"{folder} needs one of {' and '.join(PREDICTIONS)}; it has {len(files)}.")
    read: Callable[[Path], pd.DataFrame] = (
        pd.read_csv if files[0].suffix == ".csv" else pd.read_parquet
    )
    try:
        table = read(files[0])
    except (OSError, ValueError) as error:
        raise BadEntry(f"Cannot read {files[0]}: {error}") from None
    table = table.assign(**{n: np.nan for n in ("low", "high") if n not in table})
    table = table.assign(**({} if "seed" in table else {"seed": 0}))
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise BadEntry(
            f"{files[0]} lacks {', '.join(missing)}; it has {', '.join(map(str, table))}."
        )
    table["device"] = table["device"].astype(object).where(table["device"].notna(), "")
    try:
        table["seed"] = table["seed"].astype("int64")
        numbers = {name: table[name].astype("float64") for name in NUMBERS}
        return table.assign(**numbers, row=table["row"].astype("int64"))
    except (TypeError, ValueError) as error:
        raise BadEntry(f"{files[0]}: a cell is no number: {error}") from None


TOLERANCE: Final = 1e-6
"""Largest relative difference between claimed and recomputed scores."""
Place = tuple[str, str, str]
"""Task, device (empty for several), metric."""


@dataclass(frozen=True)
class VerifiedEntry:
    """An entry whose rows and scores were confirmed with the dataset.

    Attributes:
        facts: content of `entry.yaml`.
        runs: evaluation run of each protocol, with its entries.
    """

    facts: EntryFacts
    runs: Sequence[tuple[EvaluationRun, Sequence[Entry]]]


def write_entry(folder: Path, evaluation: Evaluation) -> Path:
    """Write the predictions and scores of one predictor as an entry; returns the folder.

    Args:
        folder: created if necessary; files of an earlier entry are replaced.
        evaluation: evaluation of one predictor, without a support set.

    Raises:
        InputError: several predictors were evaluated, or they adapted to a support set.
    """
    names = list(dict.fromkeys(each.predictor for each in evaluation.predictions))
    if len(names) != 1:
        raise InputError(f"An entry is of one predictor; choose one of {', '.join(names)}.")
    if evaluation.shots or any(_draws(each.task) for each in evaluation.predictions):
        raise InputError("An entry has no support set; leave out --shots and few-shot protocols.")
    runs = list(entries_by_run(evaluation))
    entries_of_system = [
        entry for _, entries in runs for entry in entries if entry.predictor == names[0]
    ]
    facts = EntryFacts(
        system=names[0],
        command="; ".join(dict.fromkeys(entry.command or "" for entry in entries_of_system)),
        commit=entries_of_system[0].commit or "",
        environment=dict(entries_of_system[0].environment),
        dataset=evaluation.protocols.dataset,
        digest=evaluation.bundle.digest,
        protocols=tuple(dict.fromkeys(run.protocol for run, _ in runs)),
        date=datetime.now(UTC),
        scores=tuple(_claimed(entry) for entry in entries_of_system if entry.value is not None),
    )
    folder.mkdir(parents=True, exist_ok=True)
    _table(evaluation.predictions).to_csv(folder / PREDICTIONS[0], index=False)
    (folder / PREDICTIONS[1]).unlink(missing_ok=True)
    text = yaml.safe_dump(facts.model_dump(mode="json"), sort_keys=False, allow_unicode=True)
    (folder / FACTS).write_text(text, encoding="utf-8")
    return folder


def verify(folder: Path, data_dir: Path | None = None) -> VerifiedEntry:
    """Check an entry against the dataset: rows, measured values, and claimed scores.

    Args:
        folder: holds `entry.yaml` and the predictions.
        data_dir: folder of the bundle; the pulled or imported one when None.

    Raises:
        BadEntry: a file is missing or malformed, the entry was made on other data, rows are missing
            or were not held out, or a score does not follow from the predictions.
        MissingData: the dataset is not on this machine.
        UnknownDataset: the dataset has no protocols.
    """
    facts = read_facts(folder)
    table = read_predictions(folder)
    protocols = protocols_of_dataset(facts.dataset)
    bundle = find(facts.dataset, data_dir)
    if bundle.digest != facts.digest:
        raise BadEntry(
            f"{folder}: made on {facts.dataset} with digest {facts.digest[:12]}; the data here "
            f"have {bundle.digest[:12]}."
        )
    predictions = list(_rebuilt(folder, facts, table, protocols, bundle))
    seeds = len({each.seed for each in predictions})
    runs = [_entries(facts, protocol, predictions, bundle, seeds) for protocol in facts.protocols]
    _check_claims(folder, facts, [entry for _, entries in runs for entry in entries])
    return VerifiedEntry(facts, runs)


def add(folder: Path, store: ResultStore, data_dir: Path | None = None) -> VerifiedEntry:
    """Verify an entry and store its scores for the leaderboard.

    Raises:
        BadEntry, MissingData, UnknownDataset: see `verify`.
    """
    verified = verify(folder, data_dir)
    for run, entries in verified.runs:
        store.keep(run, entries)
    return verified


def _draws(task: Task) -> bool:
    """Whether the rows of a task depend on the draw of a support set."""
    return bool(task.support.shots) and task.support.pool is None


def _claimed(entry: Entry) -> ClaimedScore:
    assert entry.value is not None and entry.n is not None
    place = {"task": entry.task, "device": entry.device, "metric": entry.metric}
    return ClaimedScore(**place, score=entry.score, value=entry.value, n=entry.n)


def _place(task: Task) -> Place:
    return task.name, task.device or "", task.metric


def _table(predictions: Sequence[TaskPredictions]) -> "pd.DataFrame":
    """One row for each prediction, with the columns `COLUMNS`."""
    parts = []
    for each in predictions:
        key: dict[str, Any] = dict(zip(KEY, (*_place(each.task), each.seed), strict=True))
        columns = {name: np.asarray(column) for name, column in each.columns.items()}
        parts.append(pd.DataFrame(columns).assign(**key))
    whole = pd.concat(parts, ignore_index=True)
    return whole.assign(row=whole.groupby(list(KEY)).cumcount())[list(COLUMNS)]


def _rebuilt(
    folder: Path,
    facts: EntryFacts,
    table: "pd.DataFrame",
    protocols: DatasetProtocols,
    bundle: Bundle,
) -> Iterator[TaskPredictions]:
    """The predictions of the table on the tasks of the dataset, fold by fold.

    Raises:
        BadEntry: a row is missing, unknown, duplicated, without a prediction, or has another
            measured value.
    """
    groups = dict(iter(table.groupby(list(KEY))))
    counts: Counter[Place] = Counter()
    folds = protocols.folds(bundle, DeviceCatalog.load())
    for task in (t for f in folds if f.protocol in facts.protocols for t in f.tasks):
        place = _place(task)
        if _draws(task):
            raise BadEntry(f"{folder}: {task.name} draws a support set; it takes no entries.")
        wanted = range(counts[place], counts[place] + len(task.held_out))
        counts[place] = wanted.stop
        for seed in sorted(table["seed"].unique().tolist()):
            where = f"{folder}: {' '.join(filter(None, place))}, seed {seed}"
            if (*place, seed) not in groups:
                raise BadEntry(f"{where}: there is no prediction of this task.")
            rows = _taken(where, groups[*place, seed].set_index("row"), wanted)
            yield TaskPredictions(task, seed, _columns(where, task, rows), {}, facts.system)
    _check_no_more(folder, groups, counts)


def _taken(where: str, rows: "pd.DataFrame", wanted: range) -> "pd.DataFrame":
    missing = [row for row in wanted if row not in rows.index]
    if missing:
        raise BadEntry(
            f"{where}: {len(missing)} held-out rows are missing, the first is {missing[0]}."
        )
    if not rows.index.is_unique:
        raise BadEntry(f"{where}: row {rows.index[rows.index.duplicated()][0]} is there twice.")
    return rows.loc[list(wanted)]


def _columns(where: str, task: Task, rows: "pd.DataFrame") -> dict[str, Column]:
    columns = {name: rows[name].to_numpy() for name in NUMBERS}
    truth = task.held_out.values[task.metric]
    other = ~np.isclose(columns["measured"], truth, rtol=TOLERANCE, atol=0.0, equal_nan=True)
    if other.any():
        row = rows.index[np.flatnonzero(other)[0]]
        raise BadEntry(
            f"{where}: row {row} is not the held-out row of the dataset: measured "
            f"{columns['measured'][other][0]:g}, there {truth[other][0]:g}."
        )
    empty = ~np.isfinite(columns["predicted"]) & np.isfinite(truth)
    if empty.any():
        raise BadEntry(f"{where}: row {rows.index[np.flatnonzero(empty)[0]]} has no prediction.")
    return columns | {"measured": truth}


def _check_no_more(
    folder: Path, groups: "Mapping[Any, pd.DataFrame]", counts: Mapping[Place, int]
) -> None:
    """Reject rows that the protocols do not hold out."""
    for key, rows in groups.items():
        count = counts.get(key[:3], 0)
        if len(rows) > count:
            name = " ".join(filter(None, key[:3]))
            raise BadEntry(f"{folder}: {name} has {len(rows)} rows; {count} are held out.")


def _entries(
    facts: EntryFacts,
    protocol: str,
    predictions: Sequence[TaskPredictions],
    bundle: Bundle,
    seeds: int,
) -> tuple[EvaluationRun, list[Entry]]:
    """The evaluation run of one protocol, and its entries with the facts of `entry.yaml`."""
    of_protocol = [each for each in predictions if each.task.name.partition("/")[0] == protocol]
    if not of_protocol:
        raise BadEntry(f"{facts.dataset} has no protocol {protocol!r} with rows to hold out.")
    # The name differs from that of an evaluation here, whose file also holds scores of baselines.
    name = f"entry-{facts.system}"
    made = (bundle.digest, "an entry", facts.commit)
    run = EvaluationRun(facts.dataset, protocol, name, 0, seeds, *made)
    kind: Kind = "ours" if facts.system in catalog() else "published"
    said: dict[str, Any] = {"command": facts.command, "citation": facts.citation, "kind": kind}
    entries = entries_of(run, of_protocol, facts.date, facts.environment)
    return run, [replace(entry, **said) for entry in entries]


def _check_claims(folder: Path, facts: EntryFacts, entries: Sequence[Entry]) -> None:
    """Compare claimed scores with recomputed ones; every task must be claimed."""
    found = {(e.task, e.device, e.metric): e for e in entries}
    claims = {(c.task, c.device, c.metric): c for c in facts.scores}
    for key in found.keys() ^ claims.keys():
        what = "claims no score of" if key in found else "claims a score of an unknown task"
        raise BadEntry(f"{folder}/{FACTS} {what} {' '.join(filter(None, key))}.")
    for key, entry in found.items():
        claim = claims[key]
        value = {**entry.to_json(), **entry.further, entry.score: entry.value}.get(claim.score)
        same = isinstance(value, int | float) and isclose(value, claim.value, rel_tol=TOLERANCE)
        if not same or entry.n != claim.n:
            raise BadEntry(
                f"{folder}/{FACTS} claims {claim.score} {claim.value:g} of {claim.n} rows in "
                f"{entry.task}; the predictions give {value} of {entry.n}."
            )
