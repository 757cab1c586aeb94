"""What verbs print: JSON alone on standard output, progress on standard error."""

import json
import sys
from typing import Any

from rich.console import Console

PIPED_WIDTH = 180
"""Columns where standard output is no terminal, so that tables are not cut."""


def print_json(content: Any) -> None:
    """One JSON object on standard output and nothing else."""
    json.dump(content, sys.stdout, indent=1)
    sys.stdout.write("\n")


def screen() -> Console:
    """Standard output for people; no colour where it is no terminal."""
    return Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_WIDTH)


def progress(line: str) -> None:
    """One line on standard error."""
    Console(stderr=True, highlight=False).print(line, style="dim")
