"""Loading of the predictors that come with the package, and of any other sealed folder."""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from forerun.models.artifact.sealed_folder import check
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import Scope
from forerun.models.predictor import Predictor

SUPPORT_FILE: Final = "support.json"


@dataclass(frozen=True, slots=True)
class LoadedPredictor:
    """A predictor with its provenance.

    Attributes:
        predictor: the loaded predictor.
        version: hash of its files.
        created: date on which it was sealed, ISO 8601.
        card: model card in Markdown; empty if there is none.
        record: the record of its training set; empty if there is none.
        support: measurements to which it is adapted before it answers, as JSON text; empty if there
            are none.
    """

    predictor: Predictor
    version: str
    created: str
    card: str
    record: TrainingRecord = field(default_factory=TrainingRecord)
    support: str = field(default="", repr=False)


def load_sealed(folder: Path, scope: Scope | None = None) -> LoadedPredictor:
    """The predictor in a sealed folder, after a check of the hashes of all files that it reads.

    Args:
        folder: the sealed folder.
        scope: what questions will be about; predictors that cannot answer are not loaded.

    Raises:
        BadArtifact: a file is missing, changed, unlisted or of a forbidden kind.
    """
    manifest = check(folder, scope)
    card, support = folder / "card.md", folder / SUPPORT_FILE
    return LoadedPredictor(
        predictor=load_part(folder, scope),
        version=manifest.version,
        created=manifest.created,
        card=card.read_text() if card.is_file() else "",
        record=TrainingRecord.read(folder),
        support=support.read_text() if support.is_file() else "",
    )


@cache
def bundled(scope: Scope | None = None) -> LoadedPredictor:
    """The predictors under `models/pretrained`, trained on real measurements.

    They are read once in a process, since predictors are immutable.

    Args:
        scope: what questions will be about; predictors that cannot answer are not loaded.

    Raises:
        BadArtifact: the installation is damaged.
    """
    with as_file(files("forerun.models") / "pretrained") as folder:
        return load_sealed(folder, scope)
