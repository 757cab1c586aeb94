"""The model of a command about language models."""

from pathlib import Path
from typing import Any


def described_model(source: str) -> dict[str, Any]:
    """The model of a request: by the content of its files, or by its name."""
    from forerun.features.readers.language_model.reader import json_object

    path = Path(source)
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file() and file.suffix != ".json":
        return {"name": source}
    content: dict[str, Any] = {"config": dict(json_object(file))}
    block = file.with_name("hf_quant_config.json")
    if block.is_file():
        content["quantization"] = dict(json_object(block))
    return content


def title_of(source: str) -> str:
    """What a model is called in a table: its name, its folder, or its file."""
    path = Path(source)
    return path.resolve().parent.name if path.name == "config.json" else path.name or source
