"""Entries of the leaderboard from rows of `forerun evaluate`, such as those of a release."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import isfinite
from typing import Any

from forerun.data.datasets import DATASETS
from forerun.models.answers.whole import WholeAnswers
from forerun.training.leaderboard.entries import FIELDS, Entry, Kind
from forerun.training.published.figures import PUBLISHED, published_for

Row = Mapping[str, Any]
_THEIRS, _BASELINES = "published_", "baselines_"
NO_SCORE = {"task", "device", "metric", "predictor", "score", "n", "unanswered", "baselines"}
"""Fields of a row that are no scores."""


def shipped_entries(evaluations: Sequence[Row]) -> Iterator[Entry]:
    """Entries of stored evaluations."""
    for evaluation in evaluations:
        dataset = evaluation["dataset"]
        for row in evaluation["tasks"]:
            ours = row["predictor"]
            given = {
                name: evaluation[name] for name in ("seeds", "shots", "date", "commit", "digest")
            }
            protocol = row["task"].partition("/")[0]
            entry = entry_of(dataset, protocol, row, None, given)
            command_line = command(entry, ours)
            yield replace(entry, command=command_line)
            for system in row["baselines"]:
                scores = _scores_of_baseline(row, system)
                if scores["mape"] is None:
                    continue
                theirs = entry_of(dataset, protocol, scores, system, given)
                yield replace(theirs, n=row["n"], seeds=1, command=command_line)


def score_of(dataset: str, row: Row) -> str:
    """Name of the score that ranks a task: the row's own, the one others report, or `mape`."""
    named = row.get("score")
    if named:
        return str(named)
    reported = [figure.score for figure in published_for(dataset, row["task"])]
    candidates = (*(["mape"] if "mape" in reported else []), *reported, "mape", *row)
    return next((c for c in candidates if c not in NO_SCORE and _known(row.get(c))), "mape")


def command(entry: Entry, predictor: str) -> str:
    """The command that prints an entry again.

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
    """The row of a baseline or published system from that of the predictor, which names them."""
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
