"""Predictors on disk: sealed folders of JSON and text files; loading runs no code.

A predictor inherits `save` and `load` from `StoredPredictor`. `seal` writes a folder's manifest,
`check` verifies it, and `bundled` loads the predictor that comes with the package.
"""

from forerun.models.artifact.codec import NOT_STORED
from forerun.models.artifact.sealed_folder import (
    LoadedPredictor,
    Manifest,
    bundled,
    check,
    load_predictor,
    load_sealed,
    seal,
)
from forerun.models.artifact.stored_predictor import StoredPredictor, load_part

__all__ = [
    "NOT_STORED",
    "LoadedPredictor",
    "Manifest",
    "StoredPredictor",
    "bundled",
    "check",
    "load_part",
    "load_predictor",
    "load_sealed",
    "seal",
]
