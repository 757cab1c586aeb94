"""Read and write stored evaluations of whole answers.

The scoreboard, `training/scoreboard.json`, holds one evaluation per dataset of the predictors that
come with the package. Any other predictor has its evaluations in `scores.json` in its own folder.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

SCORES_FILE: Final = "scores.json"
"""File with the evaluations in the folder of a sealed predictor."""
Evaluations = list[dict[str, Any]]


def evaluations_text(evaluations: Sequence[Mapping[str, Any]]) -> str:
    """Evaluations as JSON, with one line for each element of a list."""
    lines = []
    for evaluation in evaluations:
        parts = []
        for name, value in evaluation.items():
            text = json.dumps(value, sort_keys=True)
            if isinstance(value, list):
                text = "[" + ",\n".join(json.dumps(item, sort_keys=True) for item in value) + "]"
            parts.append(f"{json.dumps(name)}: {text}")
        lines.append("{" + ",\n".join(parts) + "}")
    return "[" + ",\n".join(lines) + "]\n"


def read_evaluations(file: Path) -> Evaluations:
    """The evaluations in a file; empty if the file does not exist."""
    found: Evaluations = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else []
    return found


def released_artifact() -> Path:
    """Folder of the predictors that come with the package."""
    return Path(str(files("forerun.models"))) / "pretrained"


def scoreboard_file() -> Path:
    """Path of `scoreboard.json`."""
    return Path(str(files("forerun.training"))) / "scoreboard.json"


def scoreboard() -> Evaluations:
    """The evaluations of the predictors that come with the package; may be empty."""
    return read_evaluations(scoreboard_file())


def stored_with(folder: Path) -> Evaluations:
    """The evaluations of a sealed predictor; empty if it has none.

    If its `scores.json` equals that of the release, the scoreboard is returned instead. This also
    applies to a predictor that was made from the released one and kept its scores.
    """
    file, released_file = folder / SCORES_FILE, released_artifact() / SCORES_FILE
    if not file.is_file():
        return []
    same = released_file.is_file() and file.read_bytes() == released_file.read_bytes()
    return scoreboard() if same else read_evaluations(file)
