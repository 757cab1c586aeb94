"""Predictors on disk: a folder of JSON and text files, sealed with hashes, without code.

predictor.json      format, name and parameters (predictor.json.gz where it is long)
*.txt.xz, *.onnx    LightGBM boosters in LightGBM's text format, compressed; neural networks
FIELD-NAME/         parts of a composed predictor, each a folder like this one
card.md             the model card
manifest.json       SHA-256 of each file above; the version is the hash of these hashes
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from forerun.data.errors import BadArtifact
from forerun.models.artifact.codec import from_content, to_content
from forerun.models.artifact.stored_predictor import is_loaded, load_part
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.catalog import Scope
from forerun.models.predictor import Predictor

MANIFEST: Final = "manifest.json"
ALLOWED = (".json", ".json.gz", ".txt", ".txt.gz", ".txt.xz", ".md", ".onnx", ".png")


@dataclass(frozen=True, slots=True)
class Manifest:
    """Contents of a sealed folder.

    Attributes:
        version: first 12 hexadecimal digits of the hash over all files.
        created: date on which it was sealed, ISO 8601.
        files: path relative to the folder -> SHA-256.
    """

    version: str
    created: str
    files: Mapping[str, str]


def load_predictor(folder: Path) -> Predictor:
    """The predictor in a sealed folder, after verifying all hashes.

    Raises:
        BadArtifact: a file is missing, changed, unlisted or of a forbidden kind.
    """
    check(folder)
    return load_part(folder)


def seal(folder: Path, created: str) -> Manifest:
    """Hash every file and write `manifest.json`.

    Args:
        folder: folder of a saved predictor.
        created: date, ISO 8601; the version does not depend on it.

    Raises:
        BadArtifact: a file is a link or has a forbidden suffix.
    """
    files = {name: _hash(path) for name, path in _paths(folder).items()}
    manifest = Manifest(_version(files), created, dict(sorted(files.items())))
    (folder / MANIFEST).write_text(json.dumps(to_content(manifest), indent=1) + "\n")
    return manifest


def sealed_version(folder: Path) -> str:
    """The version in a folder's manifest; hashes are not verified.

    Raises:
        BadArtifact: there is no readable manifest.
    """
    return _manifest(folder).version


def check(folder: Path, scope: Scope | None = None) -> Manifest:
    """Verify the names and hashes of all files in a sealed folder, and return its manifest.

    Args:
        folder: the sealed folder.
        scope: kinds of upcoming queries; files of predictors that `load_part` omits are not read or
            verified. None for all.

    Raises:
        BadArtifact: a file is missing, changed, unlisted or of a forbidden kind.
    """
    manifest = _manifest(folder)
    hashes = {
        name: _hash(path) if is_loaded(name, scope) else manifest.files.get(name, "")
        for name, path in _paths(folder).items()
    }
    differing = sorted(
        name for name in {*hashes, *manifest.files} if hashes.get(name) != manifest.files.get(name)
    )
    if differing:
        raise BadArtifact(f"{folder}: {differing[0]} is missing, changed or not in manifest.json.")
    if _version(hashes) != manifest.version:
        raise BadArtifact(f"{folder}: manifest.json gives version {manifest.version} for others.")
    return manifest


def _paths(folder: Path) -> dict[str, Path]:
    """Name -> path of every file except the manifest.

    Raises:
        BadArtifact: a file is a link or has a forbidden suffix.
    """
    files: dict[str, Path] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name == MANIFEST:
            continue
        if path.is_symlink() or not name.endswith(ALLOWED):
            raise BadArtifact(f"{folder}: {name} is not allowed in an artifact.")
        files[name] = path
    return files


def _manifest(folder: Path) -> Manifest:
    try:
        return from_content(Manifest, json.loads((folder / MANIFEST).read_text()))
    except (OSError, ValueError) as error:
        raise BadArtifact(f"{folder} has no readable manifest.json: {error}") from None


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _version(files: Mapping[str, str]) -> str:
    listing = "\n".join(f"{name} {digest}" for name, digest in sorted(files.items()))
    return hashlib.sha256(listing.encode()).hexdigest()[:12]


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
        support: measurements, as JSON text, to which it is adapted before answering; empty if
            there are none.
    """

    predictor: Predictor
    version: str
    created: str
    card: str
    record: TrainingRecord = field(default_factory=TrainingRecord)
    support: str = field(default="", repr=False)


def load_sealed(folder: Path, scope: Scope | None = None) -> LoadedPredictor:
    """The predictor in a sealed folder, after verifying the hashes of all files that it reads.

    Args:
        folder: the sealed folder.
        scope: kinds of upcoming queries; predictors that cannot answer them are not loaded.

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
    """The predictors in `models/pretrained`, trained on real measurements.

    They are read once per process, since predictors are immutable.

    Args:
        scope: kinds of upcoming queries; predictors that cannot answer them are not loaded.

    Raises:
        BadArtifact: the installation is damaged.
    """
    with as_file(files("forerun.models") / "pretrained") as folder:
        return load_sealed(folder, scope)
