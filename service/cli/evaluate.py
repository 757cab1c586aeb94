"""`forerun evaluate`: score predictors under a dataset's protocol."""

from pathlib import Path
from typing import Annotated, Any

import typer

from forerun.service.cli.output import print_json, progress, screen


def evaluate(
    dataset: Annotated[str, typer.Argument(help="name, as in `forerun data list`")],
    data: Annotated[
        Path | None, typer.Option(help="folder of a bundle; may hold judged rows only")
    ] = None,
    shots: Annotated[int, typer.Option(help="rows of the judged device to adapt on", min=0)] = 0,
    seeds: Annotated[int, typer.Option(help="fits, or draws of shots, to average", min=1)] = 1,
    protocol: Annotated[list[str] | None, typer.Option(help="only these; repeat")] = None,
    predictor: Annotated[list[str] | None, typer.Option(help="these sit it; repeat")] = None,
    json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Errors, coverage of intervals, and baselines beside them.

    A whole bundle is judged by predictors fitted on what each protocol allows; any other folder by
    the predictors in use, without the rows that they were trained on.
    """
    from forerun.service.loading import load_predictors, training_record
    from forerun.service.settings import Settings
    from forerun.training.evaluate import evaluate as score

    settings = Settings.load()
    result = score(
        dataset,
        current=load_predictors(settings),
        record=training_record(settings),
        data_dir=data,
        shots=shots,
        seeds=seeds,
        protocols=tuple(protocol or ()),
        predictors=tuple(predictor or ()),
        progress=progress,
    )
    if json:
        print_json(result)
    elif any(task.get("score") == "mae" for task in result["tasks"]):
        _show_p(result)
    else:
        _show(result)


def _show(result: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=f"{result['dataset']}, errors in %")
    names = list(dict.fromkeys(b for task in result["tasks"] for b in task["baselines"]))
    for heading in ("task", "device", "n", "mean", "median", "SMAPE", "R2", "coverage 90", *names):
        left = heading in ("task", "device")
        table.add_column(heading, justify="left" if left else "right")
    for task in result["tasks"]:
        coverage = task["coverage_90"]
        table.add_row(
            task["task"],
            task["device"] or "",
            f"{task['n']:,}",
            _figure(task["mape"]),
            _figure(task["median_ape"]),
            _figure(task["smape"]),
            _figure(task["r2"], 3),
            _figure(coverage),
            *(_figure(task["baselines"].get(name)) for name in names),
        )
    screen().print(table)


def _show_p(result: dict[str, Any]) -> None:
    """Errors of P, a share itself: not in percent."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, title=f"{result['dataset']}, mean error of P")
    fields = {
        "mae": "error",
        "mae_of_repeats": "repeats",
        "mae_program_mean": "program mean",
        "auc_below_0.9": "AUC P < 0.9",
    }
    for heading in ("task", "predictor", "n", *fields.values(), "coverage 90"):
        table.add_column(heading, justify="left" if heading in ("task", "predictor") else "right")
    for task in result["tasks"]:
        errors = [_figure(task.get(field), 3) for field in fields]
        coverage = _figure(task["coverage_90"])
        table.add_row(task["task"], task["predictor"], f"{task['n']:,}", *errors, coverage)
    screen().print(table)


def _figure(value: float | None, decimals: int = 1) -> str:
    return "" if value is None else f"{value:.{decimals}f}"
