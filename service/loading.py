"""Load the predictor: from a folder, the registry's champion, or the bundled one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.resources import as_file, files
from pathlib import Path

from forerun.data.errors import UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.models.artifact.loading import LoadedPredictor, bundled, load_sealed
from forerun.models.artifact.training_record import TrainingRecord
from forerun.service.adaptation.predictor_in_use import Adaptation, adaptation_of
from forerun.service.log import log
from forerun.service.settings import Settings
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore

FETCH_SECONDS = 300
IMPATIENT = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "30"}
"""MLflow retries an unreachable server for four minutes by default, and the service would wait."""


def load_predictors(settings: Settings) -> LoadedPredictor:
    """The predictor that the settings select, by default the bundled one.

    A short-lived process queries the registry, so that mlflow is never imported into this one.

    Raises:
        BadArtifact: the artifact is damaged.
    """
    if settings.predictor_folder is not None:
        return load_sealed(settings.predictor_folder)
    if settings.registry_uri is not None:
        folder = _champion(settings)
        if folder is not None:
            return load_sealed(folder)
    return bundled()


def adaptation_here(
    settings: Settings, graph_named: Callable[[str], OperatorGraph] | None = None
) -> tuple[Adaptation, DeviceStore]:
    """The predictor adapted to this user's measurements, for a command-line process.

    Args:
        settings: the predictor and the folder of measurements.
        graph_named: digest -> graph; it is tried before the user's uploaded graphs.

    Returns:
        The adaptation, and the store of devices.

    Raises:
        BadArtifact: the artifact is damaged.
    """
    devices = DeviceStore(settings.home / "devices")
    uploads = GraphStore(settings.home / "graphs", settings.graphs_kept)

    def named(digest: str) -> OperatorGraph:
        if graph_named is not None:
            with suppress(UnknownGraph):
                return graph_named(digest)
        return uploads.get(digest)

    return adaptation_of(settings, load_predictors(settings), devices, named), devices


def _champion(settings: Settings) -> Path | None:
    environment = {
        **IMPATIENT,
        **os.environ,
        "FORERUN_TRACKING_URI": settings.registry_uri or "",
        "FORERUN_HOME": str(settings.home),
    }
    try:
        completed = subprocess.run(
            [sys.executable, "-m", "forerun.training.release.registry", "fetch"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=FETCH_SECONDS,
            check=True,
        )
        # Libraries may print before the answer, which is the last line.
        champion = json.loads(completed.stdout.strip().splitlines()[-1])["path"]
    except (subprocess.SubprocessError, ValueError, LookupError) as error:
        why = getattr(error, "stderr", None) or str(error)
        log().error("the registry did not answer; the bundled predictors do", why=str(why)[-500:])
        return None
    if champion is None:
        log().warning("no champion in the registry; the bundled predictors answer")
        return None
    return Path(champion)


def training_record(settings: Settings) -> TrainingRecord:
    """The training record of the predictor in use; empty where the artifact has none."""
    if settings.predictor_folder is not None:
        return TrainingRecord.read(settings.predictor_folder)
    folder = _champion(settings) if settings.registry_uri is not None else None
    if folder is not None:
        return TrainingRecord.read(folder)
    with as_file(files("forerun.models") / "pretrained") as pretrained:
        return TrainingRecord.read(pretrained)
