"""Score predictors under a dataset's protocol, with baselines and published systems beside them.

On a bundle that the current predictors were trained on, each protocol fits anew on the rows that it
allows. On any other folder nothing is fitted: the current predictors answer, rows that they have
seen are left out, and with `shots` they first adapt on that many rows of the device under test.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from forerun.data.bundle import Bundle, find
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.models.artifact.loading import LoadedPredictor
from forerun.models.baselines.constant import Constant
from forerun.models.predictor import Predictor
from forerun.training.evaluation.breakdown import broken_down, check_file, write_answers
from forerun.training.evaluation.own_rows import check_tables, unanswered
from forerun.training.evaluation.predictions import Answered, answer
from forerun.training.evaluation.square_errors import root_mean_squares, summed_rows
from forerun.training.protocols import DatasetProtocols, Fold, Task, protocols_of_dataset
from forerun.training.scores.choices import choice_scores
from forerun.training.scores.errors import capacity_scores, mean_and_standard_error, score
from forerun.training.scores.relative_speed import contention_scores
from forerun.training.tracking.record import TrainingRecord

Column = NDArray[np.float64]
Progress = Callable[[str], None]
AVERAGED = (
    *("mape", "median_ape", "within_10pct", "spearman", "coverage_90", "mean_interval_ratio"),
    *("r2", "smape"),
)


def evaluate(
    name: str,
    *,
    current: LoadedPredictor,
    record: TrainingRecord,
    data_dir: Path | None = None,
    shots: int = 0,
    seeds: int = 1,
    protocols: Sequence[str] = (),
    predictors: Sequence[str] = (),
    by: Sequence[str] = (),
    rows_file: Path | None = None,
    progress: Progress = lambda line: None,
) -> dict[str, Any]:
    """Scores of one dataset's tasks, ready for JSON.

    Args:
        name: dataset.
        current: the predictors in use, for folders that they were not trained on.
        record: what those were trained on.
        data_dir: folder with the bundle's files; the pulled bundle when None.
        shots: rows of the device under test to adapt on first; they are not scored.
        seeds: how many fits (or draws of shots) are averaged.
        protocols: protocols to run; all when empty.
        predictors: names of those that take the exams; the dataset's own when empty.
        by: keys of rows that scores are broken down by, as in `breakdown.broken_down`.
        rows_file: where every answer is written, `.parquet` or `.csv`; nowhere when None.
        progress: takes a line for people.

    Raises:
        InputError: no predictor of that name takes this exam, no exam has that protocol, or rows
            have no such key.
        UnknownDataset: no protocol is written for that name.
        MissingData: the bundle is not here, or holds no table that is read.
        BadTable: a table lacks a column.
    """
    if rows_file is not None:
        check_file(rows_file)
    judge = protocols_of_dataset(name)
    bundle = find(name, data_dir)
    whole = data_dir is None or judge.fits_any_folder or record.knows(bundle)
    left_out = _never_judged(judge, bundle) if whole else {}
    if whole:
        _check_protocols(judge, bundle, protocols)
        found = list(run_protocols(judge, bundle, shots, seeds, protocols, predictors, progress))
    else:
        seen = record.seen(name)
        check_tables(judge, bundle)
        tasks = list(judge.evaluation_tasks(bundle, DeviceCatalog.load(), seen))
        left_out |= judge.left_out(bundle, DeviceCatalog.load(), seen)
        named = [task.name.partition("/")[0] for task in tasks]
        _check_known(judge, named, protocols)
        wanted = [t for t, n in zip(tasks, named, strict=True) if not protocols or n in protocols]
        medians = record.medians.get(name, {})
        found = list(_judge_only(wanted, current.predictor, medians, shots, seeds, progress))
    if rows_file is not None:
        write_answers(rows_file, found)
    return {
        "dataset": name,
        "fitted_on": "the rows each protocol allows" if whole else None,
        "predictor": None if whole else current.version,
        "shots": shots,
        "seeds": seeds,
        "left_out": left_out | unanswered(found),
        "tasks": [*rows(found), *map(_whole_row, summed_rows(found))],
        "breakdown": broken_down(found, by) if by else [],
    }


def run_protocols(
    judge: DatasetProtocols,
    bundle: Bundle,
    shots: int = 0,
    seeds: int = 1,
    protocols: Sequence[str] = (),
    predictors: Sequence[str] = (),
    progress: Progress = lambda line: None,
) -> Iterator[Answered]:
    """Fit on what each protocol allows, then answer its tasks, once a seed.

    A protocol that this dataset does not have is passed over: others may.
    """
    _check_names(judge, predictors)
    for fold in judge.folds(bundle, DeviceCatalog.load()):
        if protocols and fold.protocol not in protocols:
            continue
        yield from run_fold(judge, fold, (shots,), seeds, predictors, progress)


def run_fold(
    judge: DatasetProtocols,
    fold: Fold,
    shots: Sequence[int] = (0,),
    seeds: int = 1,
    predictors: Sequence[str] = (),
    progress: Progress = lambda line: None,
) -> Iterator[Answered]:
    """One exam of `run_protocols`; each fit answers at every number of shots."""
    constant = Constant().fit(fold.train) if len(fold.train) else None
    for seed in range(seeds):
        for predictor in _chosen(judge, predictors, seed):
            rows_text = f"{len(fold.train):,} rows, seed {seed}"
            progress(f"{fold.protocol}: {predictor.name} learns from {rows_text}")
            fitted = predictor.fit(fold.train)
            for count in shots:
                for task in fold.tasks:
                    found = answer(task, fitted, constant, seed, count)
                    if found is not None:
                        yield found


def _never_judged(judge: DatasetProtocols, bundle: Bundle) -> dict[str, int]:
    """Reason -> rows that no protocol judges, of datasets whose protocols take any folder."""
    if not judge.fits_any_folder:
        return {}
    return dict(judge.left_out(bundle, DeviceCatalog.load(), {}))


def _chosen(judge: DatasetProtocols, names: Sequence[str], seed: int) -> Sequence[Predictor]:
    if not names:
        return (judge.predictor(seed),)
    return [p for p in judge.predictors(seed) if p.name in names]


def _check_names(judge: DatasetProtocols, names: Sequence[str]) -> None:
    known = [p.name for p in judge.predictors()]
    strange = [name for name in names if name not in known]
    if strange:
        raise InputError(
            f"No predictor {strange[0]!r} for {judge.dataset}; there are {', '.join(known)}."
        )


def _check_protocols(judge: DatasetProtocols, bundle: Bundle, names: Sequence[str]) -> None:
    """Refuse a wrong name before anything is fitted."""
    if not names:
        return
    _check_known(judge, [e.protocol for e in judge.folds(bundle, DeviceCatalog.load())], names)


def _check_known(judge: DatasetProtocols, found: Sequence[str], names: Sequence[str]) -> None:
    known = list(dict.fromkeys(found))
    strange = [name for name in names if name not in known]
    if strange:
        there = f"there are {', '.join(known)}" if known else "its rows allow none"
        raise InputError(f"No protocol {strange[0]!r} in {judge.dataset}; {there}.")


def _judge_only(
    tasks: Sequence[Task],
    predictor: Predictor,
    medians: Mapping[str, float],
    shots: int,
    seeds: int,
    progress: Progress,
) -> Iterator[Answered]:
    """Answers of a predictor that is fitted already; the training set's median stands beside."""
    for task in tasks:
        progress(f"{task.name}, {task.device or 'all devices'}: {len(task.judged):,} rows")
        for seed in range(seeds if shots or task.shots else 1):
            found = answer(task, predictor, None, seed, shots)
            if found is None:
                continue
            if task.metric in medians:
                constant = np.full(len(found.columns["measured"]), medians[task.metric])
                found = replace(found, baselines={**found.baselines, "training_median": constant})
            yield found


def rows(answered: Sequence[Answered]) -> list[dict[str, Any]]:
    """One row a task and device: folds are pooled, seeds averaged.

    Returns:
        Dictionaries with the fields of `forerun evaluate --json`; percentages are 0 to 100.
    """
    by_task: dict[tuple[str, str | None, str, str], list[Answered]] = {}
    for one in answered:
        task = one.task
        key = (task.name, task.device, task.metric, one.predictor)
        by_task.setdefault(key, []).append(one)
    return [_row(mine) for mine in by_task.values()]


def _row(answered: Sequence[Answered]) -> dict[str, Any]:
    task = answered[0].task
    per_seed, others, capacity, choices = [], [], [], []
    contention: list[Mapping[str, float | None]] = []
    for seed in sorted({a.seed for a in answered}):
        mine = [a for a in answered if a.seed == seed]
        columns = {c: np.concatenate([a.columns[c] for a in mine]) for c in mine[0].columns}
        per_seed.append(score(**columns))
        if task.bin_width:
            fits = (columns["measured"], columns["predicted"], columns["high"])
            capacity.append(capacity_scores(*fits, task.bin_width))
        if mine[0].repeats is not None:
            contention.append(_contention(mine, columns))
        choices += [_choices(one) for one in mine if one.alternatives is not None]
        others.append(
            {
                system: score(
                    columns["measured"],
                    np.concatenate([a.baselines[system] for a in mine]),
                )
                for system in mine[0].baselines
            }
        )
    row: dict[str, Any] = {"task": task.name, "device": task.device, "metric": task.metric}
    row["predictor"] = answered[0].predictor
    row["n"] = per_seed[0]["n"]
    row["unanswered"] = per_seed[0]["unanswered"]
    for field in AVERAGED:
        row[field] = _mean([s[field] for s in per_seed])
    row |= {name: _mean([c[name] for c in capacity]) for name in (capacity or [{}])[0]}
    row |= {name: _mean([c.get(name) for c in contention]) for name in (contention or [{}])[0]}
    row |= {"score": "mae"} if contention else {}
    row |= _mean_choices(choices)
    row["mape_standard_error"] = mean_and_standard_error([s["mape"] for s in per_seed])[1]
    for name, field in (("baselines", "mape"), ("baselines_median_ape", "median_ape")):
        row[name] = {system: _mean([o[system][field] for o in others]) for system in others[0]}
    row.update(root_mean_squares(answered))
    return row


def _contention(mine: Sequence[Answered], columns: Mapping[str, Column]) -> dict[str, float | None]:
    repeats = np.concatenate([a.repeats for a in mine if a.repeats is not None])
    named = {s: np.concatenate([a.baselines[s] for a in mine]) for s in mine[0].baselines}
    judged = columns["measured"], columns["predicted"], repeats, named
    return contention_scores(*judged, columns["low"])


def _choices(one: Answered) -> dict[str, Any]:
    assert one.alternatives is not None
    return choice_scores(one.columns["measured"], one.columns["predicted"], one.alternatives)


def _mean_choices(choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over seeds and folds; nothing where there was nothing to choose."""
    if not choices:
        return {}
    fields = ("choices", "chosen_within_2pct", "chosen_excess")
    rules = choices[0]["chosen_by_rule"]
    return {
        **{name: _mean([one[name] for one in choices]) for name in fields},
        "chosen_by_rule": {
            rule: _mean([one["chosen_by_rule"].get(rule) for one in choices]) for rule in rules
        },
    }


def _whole_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row with every field; those that do not apply to a sum are None."""
    nothing = dict.fromkeys(("unanswered", *AVERAGED, "mape_standard_error"))
    return {**nothing, "baselines": {}, **row}


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return float(np.mean(known)) if known else None
