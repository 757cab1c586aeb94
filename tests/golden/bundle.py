"""The bundled predictors, loaded once in a process."""

from functools import cache

from forerun.models.artifact.sealed_folder import LoadedPredictor, bundled


@cache
def predictors() -> LoadedPredictor:
    """The predictors under `models/pretrained`."""
    return bundled()
