"""Evaluations of whole answers as they are stored: in the scoreboard, and with a predictor.

The scoreboard, `training/scoreboard.json`, holds one evaluation of each dataset for the predictors
that come with the package. Another predictor has its own in the file `scores.json` of its folder.

Checks of a folder of your own rows: table and column names, and rows that are left out.

No row is dropped silently: those that a protocol cannot use are counted by reason.
"""

import difflib
import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.errors import BadTable, MissingData
from forerun.training.evaluation.predictions import TaskPredictions
from forerun.training.protocols import DatasetProtocols


def check_tables(dataset_protocols: DatasetProtocols, bundle: Bundle) -> None:
    """Reject a folder whose tables or columns have other names, with a message that gives them.

    Raises:
        MissingData: the folder holds none of the tables that the protocols read.
        BadTable: a table lacks a column.
    """
    if not dataset_protocols.reads:
        return
    available = bundle.tables()
    if not set(dataset_protocols.reads) & set(available):
        expected = " or ".join(f"{name}.parquet (or .csv)" for name in dataset_protocols.reads)
        raise MissingData(
            f"{bundle.folder} has no table that `forerun evaluate {dataset_protocols.dataset}` "
            f"reads: it wants {expected}, and there is "
            f"{', '.join(available)}.{_close(available, list(dataset_protocols.reads))}"
        )
    for table, wanted in dataset_protocols.reads.items():
        if table not in available:
            continue
        columns = [str(name) for name in bundle.table(table).columns]
        missing = [name for name in wanted if name not in columns]
        if missing:
            raise BadTable(
                f"{bundle.folder / table} lacks the column{'s' * (len(missing) > 1)} "
                f"{', '.join(missing)}; it needs {', '.join(wanted)} and has "
                f"{', '.join(columns)}.{_close(columns, missing)}"
            )


def _close(given: Sequence[str], wanted: Sequence[str]) -> str:
    """Suggested renames, for expected names that closely match a given one; empty for none."""
    pairs = [(difflib.get_close_matches(name, given, 1), name) for name in wanted]
    renames = [f"{close[0]} to {name}" for close, name in pairs if close and close[0] not in wanted]
    return f" Rename {', '.join(renames)}?" if renames else ""


def unanswered(predictions: Sequence[TaskPredictions]) -> dict[str, int]:
    """Reason -> number of measured rows for which a predictor gave no prediction, first seed."""
    counts: dict[str, int] = {}
    for prediction in predictions:
        if prediction.seed != predictions[0].seed:
            continue
        measured = np.isfinite(prediction.columns["measured"])
        missing = int((measured & ~np.isfinite(prediction.columns["predicted"])).sum())
        if missing:
            metric = prediction.task.metric
            reason = f"{prediction.task.name}: {prediction.predictor} gives no {metric} for them"
            counts[reason] = counts.get(reason, 0) + missing
    return counts


def nothing_evaluated(result: dict[str, Any]) -> str | None:
    """One line that explains why a result of `evaluate` holds no score; None where it holds one."""
    if any(task["n"] for task in result["tasks"]):
        return None
    reasons = "; ".join(f"{count:,} rows: {why}" for why, count in result["left_out"].items())
    return (
        f"Nothing could be evaluated. {reasons or 'The folder holds no row that can be evaluated'}."
    )


SCORES_FILE: Final = "scores.json"
"""File of the evaluations in the folder of a sealed predictor."""
Evaluations = list[dict[str, Any]]


def evaluations_text(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """The content of a file, with a line for each part of a list."""
    lines = []
    for one in evaluations:
        parts = []
        for name, value in one.items():
            text = json.dumps(value, sort_keys=True)
            if isinstance(value, list):
                text = "[" + ",\n".join(json.dumps(own, sort_keys=True) for own in value) + "]"
            parts.append(f"{json.dumps(name)}: {text}")
        lines.append("{" + ",\n".join(parts) + "}")
    return "[" + ",\n".join(lines) + "]\n"


def read_evaluations(file: Path) -> Evaluations:
    """The content of a file; empty where there is none."""
    found: Evaluations = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    return found


def released_artifact() -> Path:
    """Folder of the predictors that come with the package."""
    return Path(str(files("forerun.models"))) / "pretrained"


def scoreboard_file() -> Path:
    """The file of the scoreboard."""
    return Path(str(files("forerun.training"))) / "scoreboard.json"


def scoreboard() -> Evaluations:
    """The evaluations of the predictors that come with the package; empty without any."""
    return read_evaluations(scoreboard_file())


def stored_with(folder: Path) -> Evaluations:
    """The evaluations of a sealed predictor; empty without any.

    The scoreboard stands for the scores that the package was released with, also where a predictor
    made from the released one kept them.
    """
    own, released = folder / SCORES_FILE, released_artifact() / SCORES_FILE
    if not own.is_file():
        return []
    same = released.is_file() and own.read_bytes() == released.read_bytes()
    return scoreboard() if same else read_evaluations(own)
