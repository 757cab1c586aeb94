"""Facts that stand next to a module, in the TOML file of its name."""

import tomllib
from pathlib import Path
from typing import Any


def facts_of(module: str | Path) -> dict[str, Any]:
    """The content of `NAME.toml` for the path `NAME.py` of a module."""
    return tomllib.loads(Path(module).with_suffix(".toml").read_text(encoding="utf-8"))
