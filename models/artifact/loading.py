"""Loading of the predictors that come with the package, and of any other sealed folder."""

from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

from forerun.models.artifact.sealed_folder import check
from forerun.models.artifact.stored_predictor import load_part
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.predictor import Predictor


@dataclass(frozen=True, slots=True)
class LoadedPredictor:
    """A predictor with its provenance.

    Attributes:
        predictor: the loaded predictor.
        version: hash of its files.
        created: date on which it was sealed, ISO 8601.
        card: model card in Markdown; empty if there is none.
        record: the record of its training set; empty if there is none.
    """

    predictor: Predictor
    version: str
    created: str
    card: str
    record: TrainingRecord = field(default_factory=TrainingRecord)


def load_sealed(folder: Path) -> LoadedPredictor:
    """The predictor in a sealed folder, after a check of all hashes.

    Raises:
        BadArtifact: a file is missing, changed, unlisted or of a forbidden kind.
    """
    manifest = check(folder)
    card = folder / "card.md"
    return LoadedPredictor(
        predictor=load_part(folder),
        version=manifest.version,
        created=manifest.created,
        card=card.read_text() if card.is_file() else "",
        record=TrainingRecord.read(folder),
    )


@cache
def bundled() -> LoadedPredictor:
    """The predictors under `models/pretrained`, trained on real measurements.

    They are read once in a process, since predictors are immutable.

    Raises:
        BadArtifact: the installation is damaged.
    """
    with as_file(files("forerun.models") / "pretrained") as folder:
        return load_sealed(folder)
