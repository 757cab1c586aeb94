"""Predictors on disk: a folder of JSON and text files, sealed with hashes, without code.

predictor.json      name, parameters and format version (predictor.json.gz where it is long)
*.txt.xz            LightGBM boosters in LightGBM's text format, compressed
NAME/               parts of a composed predictor, each a folder like this one
card.md             the model card
manifest.json       SHA-256 of each file above; the version is the hash of these hashes
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from forerun.data.errors import BadArtifact
from forerun.models.catalog import predictor_class
from forerun.models.predictor import Predictor

FORMAT = "forerun.predictor/1"
FORMER_NAMES = {"inference_memory": "memory"}
"""Name of a predictor in artifacts of earlier versions -> its present name."""
ALLOWED = (".json", ".json.gz", ".txt", ".txt.gz", ".txt.xz", ".md", ".onnx", ".png")
LONG_BYTES = 100_000
"""Size of the JSON text from which on it is compressed, bytes."""


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


def write_content(folder: Path, name: str, parameters: Mapping[str, Any]) -> None:
    """Write `predictor.json`, or its compressed form, and create the folder if it is missing.

    Args:
        folder: folder of the predictor.
        name: name of the predictor.
        parameters: its parameters as JSON content.
    """
    folder.mkdir(parents=True, exist_ok=True)
    content = {"format": FORMAT, "name": name, "parameters": parameters}
    text = json.dumps(content, indent=1, sort_keys=True) + "\n"
    if len(text) < LONG_BYTES:
        (folder / "predictor.json").write_text(text)
    else:
        (folder / "predictor.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))


def read_content(folder: Path, name: str) -> dict[str, Any]:
    """Parameters that `write_content` wrote for the predictor of that name.

    Raises:
        BadArtifact: the file is missing, in another format, or that of another predictor.
    """
    content = _content(folder)
    if content["name"] != name:
        raise BadArtifact(f"{folder} holds {content['name']!r}, not {name!r}.")
    return dict(content["parameters"])


def load_part(folder: Path) -> Predictor:
    """The predictor in a folder, without a check of the hashes.

    Raises:
        BadArtifact: the folder is damaged, or no predictor has that name.
    """
    name = _content(folder)["name"]
    try:
        cls = predictor_class(name)
    except BadArtifact as error:
        raise BadArtifact(f"{folder} holds {name!r}, and {error}") from error
    try:
        return cls.load(folder)
    except KeyError as error:
        raise BadArtifact(
            f"{folder} was written by another version of forerun: {error} is not in it; "
            "fit it again."
        ) from error


def load_predictor(folder: Path) -> Predictor:
    """The predictor in a sealed folder, after a check of all hashes.

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
    files = _hashes(folder)
    manifest = Manifest(_version(files), created, files)
    content = {
        "version": manifest.version,
        "created": created,
        "files": dict(sorted(files.items())),
    }
    (folder / "manifest.json").write_text(json.dumps(content, indent=1) + "\n")
    return manifest


def check(folder: Path) -> Manifest:
    """The manifest of a sealed folder, after a check of the hashes of all files.

    Raises:
        BadArtifact: a file is missing, changed, unlisted or of a forbidden kind.
    """
    try:
        content = json.loads((folder / "manifest.json").read_text())
        manifest = Manifest(content["version"], content["created"], dict(content["files"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadArtifact(f"{folder} has no readable manifest.json: {error}") from None
    hashes = _hashes(folder)
    differing = sorted(
        name for name in {*hashes, *manifest.files} if hashes.get(name) != manifest.files.get(name)
    )
    if differing:
        raise BadArtifact(f"{folder}: {differing[0]} is missing, changed or not in manifest.json.")
    if _version(hashes) != manifest.version:
        raise BadArtifact(f"{folder}: manifest.json gives version {manifest.version} for others.")
    return manifest


def _content(folder: Path) -> dict[str, Any]:
    try:
        packed = folder / "predictor.json.gz"
        if packed.is_file():
            content = json.loads(gzip.decompress(packed.read_bytes()))
        else:
            content = json.loads((folder / "predictor.json").read_text())
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise BadArtifact(f"{folder} has no readable predictor.json: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise BadArtifact(f"{folder}/predictor.json is not in format {FORMAT}.")
    content["name"] = FORMER_NAMES.get(content.get("name", ""), content.get("name"))
    return content


def _hashes(folder: Path) -> dict[str, str]:
    files: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir() or name == "manifest.json":
            continue
        if path.is_symlink() or not name.endswith(ALLOWED):
            raise BadArtifact(f"{folder}: {name} is not allowed in an artifact.")
        files[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return files


def _version(files: Mapping[str, str]) -> str:
    listing = "\n".join(f"{name} {digest}" for name, digest in sorted(files.items()))
    return hashlib.sha256(listing.encode()).hexdigest()[:12]
