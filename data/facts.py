"""Read the TOML file that holds the facts of a module and has its name."""

import tomllib
from pathlib import Path
from typing import Any


def facts_of(module: str | Path) -> dict[str, Any]:
    """The content of `NAME.toml` next to the module `NAME.py`."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
