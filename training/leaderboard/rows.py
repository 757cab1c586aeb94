"""Entries of the leaderboard from predictions, and from stored rows of `forerun evaluate`."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

import numpy as np

from forerun.data.datasets import DATASETS
from forerun.training.evaluation.evaluate import rows
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.leaderboard.entries import Entry, Kind
from forerun.training.protocols import DATASET_PROTOCOLS
from forerun.training.published.figures import PUBLISHED, published_for
from forerun.training.scores.errors import mean_and_standard_error

Row = Mapping[str, Any]
FIELDS = ("mape", "median_ape", "spearman", "coverage_90", "mean_interval_ratio")
_THEIRS = "published_"
_NO_SCORE = {"task", "device", "metric", "predictor", "score", "n", "unanswered", "baselines"}


def entries_of(
    dataset: str,
    protocol: str,
    predictions: Sequence[TaskPredictions],
    provenance: Mapping[str, Any],
) -> list[Entry]:
    """Entries of one evaluation run, and of the baselines on the same rows.

    Args:
        dataset: name of the bundle.
        protocol: name of the protocol.
        predictions: those of one predictor at one number of shots, of all folds and seeds.
        provenance: `seeds`, `date`, `commit` and `digest` of every entry.
    """
    entries = []
    systems = dict.fromkeys(system for a in predictions for system in a.baselines)
    for system in (None, *systems):
        of_system = [
            _as_if_by(a, system) for a in predictions if system is None or system in a.baselines
        ]
        shots = {
            (a.task.name, a.task.device, a.task.metric): a.shots or a.task.shots for a in of_system
        }
        per_seed: dict[tuple[str, str | None, str], list[Row]] = {}
        for seed in sorted({a.seed for a in of_system}):
            for score_row in rows([a for a in of_system if a.seed == seed]):
                key = (score_row["task"], score_row["device"], score_row["metric"])
                per_seed.setdefault(key, []).append(score_row)
        for task, seeds in per_seed.items():
            # A deterministic baseline on the same rows has one score, without a standard error.
            same = system is not None and not shots[task]
            row: Row = seeds[0] if same else _averaged(seeds)
            given = {**provenance, "shots": shots[task]} | ({"seeds": 1} if same else {})
            entry = _entry(dataset, protocol, row, system, given)
            if entry.kind == "published" and not entry.n:
                continue  # Nothing was published for these rows.
            entries.append(replace(entry, command=command(entry, predictions[0].predictor)))
    return entries


def shipped_entries(
    evaluations: Sequence[Row], digests: Mapping[str, str], manifest: Row
) -> Iterator[Entry]:
    """Entries of `scores.json`, which is stored with a saved predictor.

    Args:
        evaluations: content of `scores.json`.
        digests: dataset -> digest of the bundle that was trained on.
        manifest: content of `manifest.json`, whose date of creation is used.
    """
    names = {cls.dataset: cls().predictor_names[0] for cls in DATASET_PROTOCOLS}
    for evaluation in evaluations:
        dataset = evaluation["dataset"]
        for row in evaluation["tasks"]:
            ours = row.get("predictor") or names.get(dataset, "")
            given = {
                "seeds": evaluation.get("seeds", 1),
                "shots": evaluation.get("shots", 0),
                "date": evaluation.get("date") or manifest.get("created"),
                "commit": evaluation.get("commit"),
                "digest": evaluation.get("digest") or digests.get(dataset, "unknown"),
            }
            protocol = row.get("protocol")
            entry = _entry(dataset, protocol, {**row, "predictor": ours}, None, given)
            command_line = command(entry, ours)
            yield replace(entry, command=command_line)
            for system, mape in row["baselines"].items():
                if mape is None:
                    continue
                score = {name: row[name] for name in ("task", "device", "metric")}
                theirs = _entry(dataset, protocol, {**score, "mape": mape}, system, given)
                yield replace(theirs, n=row["n"], seeds=1, command=command_line)


def score_of(dataset: str, row: Row) -> str:
    """Name of the score that ranks a task: the row's own, the one others report, or `mape`."""
    named = row.get("score")
    if named:
        return str(named)
    reported = [figure.score for figure in published_for(dataset, row["task"])]
    candidates = (*(["mape"] if "mape" in reported else []), *reported, "mape", *row)
    return next((c for c in candidates if c not in _NO_SCORE and _known(row.get(c))), "mape")


def command(entry: Entry, predictor: str) -> str:
    """The command that prints an entry again.

    Args:
        entry: an entry of `predictor`, or of a baseline in the same evaluation.
        predictor: name of the predictor that was evaluated.
    """
    words = ["forerun", "evaluate", entry.dataset]
    if entry.protocol:
        words += ["--protocol", entry.protocol]
    words += ["--predictor", predictor]
    if entry.shots:
        words += ["--shots", str(entry.shots)]
    if (entry.seeds or 1) > 1:
        words += ["--seeds", str(entry.seeds)]
    return shlex.join(words)


def _as_if_by(prediction: TaskPredictions, system: str | None) -> TaskPredictions:
    """The same rows with the predictions of a baseline in place of the predictor's."""
    if system is None:
        return prediction
    nothing = np.full(len(prediction.columns["measured"]), np.nan)
    columns = {
        **prediction.columns,
        "predicted": prediction.baselines[system],
        "low": nothing,
        "high": nothing,
    }
    return replace(prediction, columns=columns, predictor=system)


def _averaged(seeds: Sequence[Row]) -> Row:
    """Mean of every score over seeds, and its standard error as `NAME_standard_error`."""
    row = dict(seeds[0])
    for name in [name for name in row if name not in _NO_SCORE]:
        if name.endswith("_standard_error"):
            continue
        values = [seed.get(name) for seed in seeds]
        if all(value is None or isinstance(value, int | float) for value in values):
            row[name], row[f"{name}_standard_error"] = mean_and_standard_error(values)
    return row


def _entry(
    dataset: str, protocol: str | None, row: Row, system: str | None, given: Mapping[str, Any]
) -> Entry:
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
            if field not in {*_NO_SCORE, *FIELDS, f"{score}_standard_error"} and _known(value)
        },
        citation=citation,
        **scores,
        **given,
    )


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
