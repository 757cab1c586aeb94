"""`forerun evaluate`: score predictors under a dataset's protocols."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from forerun.service.cli import options as o
from forerun.service.cli.options import EngineOption, PredictorOption, ProtocolOption, engine_of
from forerun.service.cli.output import print_json, progress, screen, table, working

if TYPE_CHECKING:
    from forerun.data.bundle import Bundle
    from forerun.training.evaluation.predictions import TaskPredictions
    from forerun.training.protocols.protocol import DatasetProtocols


def evaluate(
    dataset: str,
    data: Path | None = None,
    shots: Annotated[int, typer.Option(min=0)] = 0,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    protocol: ProtocolOption = None,
    predictor: PredictorOption = None,
    by: str | None = None,
    rows: Path | None = None,
    entry: Path | None = None,
    engine: EngineOption = "local",
    json: o.Json = False,
) -> None:
    """Print errors of whole answers, their intervals and grades, and the errors of baselines.

    On a whole bundle, all predictors of the release that may answer are fitted again without what a
    protocol holds out, and their answers are scored; `--predictor` fits and scores one by
    itself. Fits are stored in FORERUN_HOME/fits. The scores on an imported table are stored for
    `forerun leaderboard`. On any other folder, and on a dataset that trains no predictor
    (torch_gpu), the answers in use are scored, without the rows that trained them. Graphs and other
    tables that describe workloads come from the pulled bundle if the folder has none. Rows that
    cannot be scored are counted by reason; if no row can be scored, the exit code is 2.

    Args:
        dataset: name of the dataset, as in `forerun data list`
        data: folder of a bundle; it may hold test rows only
        shots: support rows of the test device
        seeds: fits, or draws of support rows
        protocol: only this one; repeatable
        predictor: score this predictor alone, not whole answers; repeatable
        by: break scores down, such as family,batch,device,precision,interval
        rows: write every prediction to this .parquet or .csv file
        entry: write a leaderboard entry into this folder
        engine: where work runs: local, or ray for tasks of a Ray cluster
        json: print one JSON object
    """
    from forerun.service.loading import load_predictors, training_record
    from forerun.service.settings import Settings
    from forerun.training.evaluation.evaluate import evaluate as score

    settings = Settings.load()
    with engine_of(engine) as where, working(f"evaluating {dataset}"):
        result = score(
            dataset,
            current=load_predictors(settings),
            record=training_record(settings),
            data_dir=data,
            shots=shots,
            seeds=seeds,
            protocols=tuple(protocol or ()),
            predictors=tuple(predictor or ()),
            by=_names(by),
            rows_file=rows,
            keep=partial(_keep, entry, shots, seeds),
            progress=progress,
            engine=where,
        )
    print_json(result) if json else _print(result)
    _check(result, entry)


def _check(result: dict[str, Any], entry: Path | None) -> None:
    """End with exit code 2 where nothing was scored, or no entry could be written."""
    from forerun.data.errors import InputError
    from forerun.training.evaluation.evaluate import nothing_evaluated

    failed = nothing_evaluated(result)
    if failed is not None:
        typer.echo(failed, err=True)
        raise typer.Exit(2)
    if entry is not None and result["fitted_on"] is None:
        raise InputError(
            "No entry was written: one is of predictors that are fitted to the training rows of a "
            "whole dataset, and nothing was fitted on this folder."
        )


def _keep(
    folder: Path | None,
    shots: int,
    seeds: int,
    protocols: "DatasetProtocols",
    bundle: "Bundle",
    predictions: "Sequence[TaskPredictions]",
) -> None:
    """Store the entries of an imported table, and write them into a folder where one is named."""
    from forerun.data.datasets.imported import imported_tables
    from forerun.training.leaderboard.entry_folder import write_entry
    from forerun.training.leaderboard.evaluated import Evaluation, keep
    from forerun.training.leaderboard.store import ResultStore

    evaluation = Evaluation(protocols, bundle, predictions, shots, seeds)
    if predictions and protocols.dataset in imported_tables():
        keep(evaluation, ResultStore.default())
    if predictions and folder is not None:
        progress(f"entry written to {write_entry(folder, evaluation)}")


def _names(text: str | None) -> tuple[str, ...]:
    """The names in a comma-separated list."""
    return tuple(name.strip() for name in (text or "").split(",") if name.strip())


def _print(result: dict[str, Any]) -> None:
    """Print the scores, their breakdown, and the number of rows that were not scored, by reason."""
    if any(task.get("score") == "mae" for task in result["tasks"]):
        _show_p(result)
    else:
        _show(result)
    _show_breakdown(result)
    for reason, count in result["left_out"].items():
        typer.echo(f"not evaluated, {count:,} rows: {reason}")


def _show_breakdown(result: dict[str, Any]) -> None:
    """Print scores by group, and the scores of the worst tenth of the groups."""
    for task in result["breakdown"]:
        by, worst = task["by"], task["worst_decile"]
        title = f"{task['task']} {task['device'] or ''} {task['metric']}"
        figures_of = ("n", "mean", "median", "coverage 90", "ratio", "in domain")
        rows = table(*by, *figures_of, left=by, title=title)
        for group in task["groups"]:
            fields = ("mape", "median_ape", "coverage_90", "mean_interval_ratio", "in_domain")
            figures = [_figure(group[name], 2 if "ratio" in name else 1) for name in fields]
            rows.add_row(*(group["group"][name] for name in by), f"{group['n']:,}", *figures)
        screen().print(rows)
        if worst["groups"]:
            typer.echo(
                f"worst tenth of {worst['groups']} groups: "
                f"coverage {_figure(worst['coverage'])} %, error {_figure(worst['mape'])} %"
            )


def _show(result: dict[str, Any]) -> None:

    columns, title = _columns(result["tasks"]), f"{result['dataset']}, errors in %"
    rows = table(*columns, left=("task", "metric", "device"), title=title)
    for task in result["tasks"]:
        rows.add_row(*(text(task) for text in columns.values()))
    screen().print(rows)
    if any(task.get("mape_standard_error") is not None for task in result["tasks"]):
        typer.echo("after ±: the standard error of the mean over fits or draws of support rows")


def _columns(tasks: Sequence[dict[str, Any]]) -> dict[str, Callable[[dict[str, Any]], str]]:
    """Heading -> text of a task's field; columns that no task needs are left out."""
    columns: dict[str, Callable[[dict[str, Any]], str]] = {"task": lambda task: task["task"]}
    metrics = Counter((task["task"], task["device"], task["predictor"]) for task in tasks)
    if max(metrics.values(), default=0) > 1:
        columns["metric"] = lambda task: task["metric"]
    columns |= {
        "device": lambda task: task["device"] or "",
        "n": lambda task: f"{task['n']:,}",
        "mean": lambda task: _with_error(task, "mape"),
        "median": lambda task: _figure(task["median_ape"]),
        "SMAPE": lambda task: _figure(task["smape"]),
        "R2": lambda task: _figure(task["r2"], 3),
        "coverage 90": lambda task: _figure(task["coverage_90"]),
    }
    if any(task.get("median_interval_ratio") is not None for task in tasks):
        columns["ratio"] = lambda task: _figure(task.get("median_interval_ratio"), 2)
    if any("grades" in task for task in tasks):
        columns["A/B/C"] = _grades
    if any("rmse" in task.get("score", "") for task in tasks):
        columns["RMSE"] = lambda task: _with_error(task, task.get("score", ""), 3)
    if any("below_high" in task for task in tasks):
        # For memory, the upper end of the interval decides whether a run fits.
        columns["measured <= high"] = lambda task: _figure(task.get("below_high"))
    for name in dict.fromkeys(b for task in tasks for b in task["baselines"]):
        columns[f"{name} baseline" if name in columns else name] = partial(_baseline, name)
    return columns


def _grades(task: dict[str, Any]) -> str:
    """Shares of the grades A, B and C, percent."""
    found = task.get("grades", {})
    return "/".join(_figure(found.get(grade, {}).get("share", 0.0), 0) for grade in "ABC")


def _baseline(name: str, task: dict[str, Any]) -> str:
    return _figure(task["baselines"].get(name))


def _with_error(task: dict[str, Any], field: str, decimals: int = 1) -> str:
    """A score averaged over seeds, with its standard error where there are several."""
    value, error = _figure(task.get(field), decimals), task.get(f"{field}_standard_error")
    return value if error is None else f"{value} ± {error:.{decimals}f}"


def _show_p(result: dict[str, Any]) -> None:
    """Print absolute errors of P, which is itself a ratio, so not in percent."""
    fields = {
        "mae": "error",
        "mae_of_repeats": "repeats",
        "mae_program_mean": "program mean",
        "auc_below_0.9": "AUC P < 0.9",
    }
    heads = ("task", "predictor", "n", *fields.values(), "coverage 90")
    title = f"{result['dataset']}, mean error of P"
    rows = table(*heads, left=("task", "predictor"), title=title)
    for task in result["tasks"]:
        errors = [_figure(task.get(field), 3) for field in fields]
        coverage = _figure(task["coverage_90"])
        rows.add_row(task["task"], task["predictor"], f"{task['n']:,}", *errors, coverage)
    screen().print(rows)


def _figure(value: float | None, decimals: int = 1) -> str:
    return "" if value is None else f"{value:.{decimals}f}"
