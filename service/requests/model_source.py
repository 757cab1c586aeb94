"""The language model of a question, by what a command or a function is given."""

from pathlib import Path
from typing import Any


def described_model(source: str) -> dict[str, Any]:
    """The model of a request: by the content of its files, or by its name."""
    from forerun.features.readers.language_model.reader import model_files

    path = Path(source)
    if not path.is_dir() and not path.is_file() and path.suffix != ".json":
        return {"name": source}
    return model_files(path)


def title_of(source: str) -> str:
    """What a model is called in a table: its name, its folder, or its file."""
    path = Path(source)
    return path.resolve().parent.name if path.name == "config.json" else path.name or source
