"""Evaluations of whole answers as they are stored: in the scoreboard, and with a predictor.

The scoreboard, `training/scoreboard.json`, holds one evaluation of each dataset for the predictors
that come with the package. Another predictor has its own in the file `scores.json` of its folder.
"""

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

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
