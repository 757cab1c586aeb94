"""Predictors on disk: folders of JSON and text files, sealed with hashes; loading runs no code.

`seal` writes the manifest of a folder, `check` verifies it, and `bundled` loads the predictor that
comes with the package.
"""

from forerun.models.artifact.loading import LoadedPredictor, bundled, load_sealed
from forerun.models.artifact.sealed_folder import (
    Manifest,
    check,
    load_part,
    load_predictor,
    read_content,
    seal,
    write_content,
)

__all__ = [
    "LoadedPredictor",
    "Manifest",
    "bundled",
    "check",
    "load_part",
    "load_predictor",
    "load_sealed",
    "read_content",
    "seal",
    "write_content",
]
