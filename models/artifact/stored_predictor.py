"""Stores predictors in folders: `predictor.json` with the fields, and separate files and folders.

A predictor inherits `save` and `load` from `StoredPredictor`. Fields that are predictors become
subfolders; ONNX models (`bytes`) and objects that satisfy `StoredInFiles` become files, named by
the path to the field: `boosters-residual-0.txt.xz`. In `predictor.json` they are replaced by
`{"$predictor": FOLDER}` or `{"$files": [NAME, ...]}`.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from json import JSONDecodeError
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol, Self, runtime_checkable

from forerun.data.errors import BadArtifact
from forerun.models.artifact.codec import CONVERTER, Pairs, checked, from_content, to_content
from forerun.models.catalog import Scope, predictor_class
from forerun.models.predictor import Estimator, Predictor

FORMAT = "forerun.predictor/2"
LONG_BYTES = 100_000
"""Size from which JSON text is compressed, bytes."""
CONTENT = {"format", "name", "names", "parameters"}
"""Keys of `predictor.json`."""
FILES, PREDICTOR = "$files", "$predictor"
_LEFT_OUT: Final = object()
"""Placeholder for a predictor that is not loaded."""
_PLAIN_NAME = re.compile(r"\w[\w.-]*", re.ASCII)


@runtime_checkable
class StoredInFiles(Protocol):
    """An object stored in separate files, such as boosters."""

    suffix: ClassVar[str]
    """Suffix of the files, one of `forerun.models.artifact.sealed_folder.ALLOWED`."""

    def to_files(self) -> tuple[bytes, ...]:
        """Contents of the files."""
        ...

    @classmethod
    def from_files(cls, contents: tuple[bytes, ...]) -> Self:
        """The object from the contents of its files.

        Raises:
            ValueError: a file is damaged.
        """
        ...


class StoredPredictor(Estimator):
    """Storage of a predictor that is a dataclass; its settings are fields like the others."""

    name: ClassVar[str]
    stored_names: ClassVar[Mapping[str, Sequence[str]]] = {}
    """Kind of names, such as features -> names that stored numbers refer to by position. Folders
    with different names are refused."""

    def save(self, folder: Path) -> None:
        """Write text and JSON files, but no pickles, from which `load` restores the predictor."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "format": FORMAT,
            "name": self.name,
            "names": {kind: list(names) for kind, names in self.stored_names.items()},
            "parameters": _Writer(folder).written(to_content(self)),
        }
        text = json.dumps(content, allow_nan=False)
        if len(text) < LONG_BYTES:
            text = json.dumps(content, allow_nan=False, indent=1)
            (folder / "predictor.json").write_text(text + "\n")
        else:
            (folder / "predictor.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))

    @classmethod
    def load(cls, folder: Path) -> Self:
        """The predictor that `save` wrote.

        Raises:
            BadArtifact: the folder is damaged, of another version or of another predictor.
        """
        return cls.restored(folder, _content(folder, partial(_leaf, folder)))

    @classmethod
    def restored(cls, folder: Path, content: Mapping[str, Any]) -> Self:
        """The predictor from the content of its `predictor.json`.

        Raises:
            BadArtifact: the content belongs to another predictor or another version.
        """
        if content["name"] != cls.name:
            raise BadArtifact(f"{folder} holds {content['name']!r}, not {cls.name!r}.")
        for kind, names in cls.stored_names.items():
            if content["names"].get(kind) != list(names):
                raise BadArtifact(f"{folder} was fitted with other {kind}; fit it again.")
        try:
            return from_content(cls, content["parameters"])
        except ValueError as error:
            raise BadArtifact(
                f"{folder} is damaged or was written by another version of forerun: {error}; "
                "fit it again."
            ) from error


def load_part(folder: Path, scope: Scope | None = None) -> Predictor:
    """The predictor in a folder, without verifying hashes.

    Args:
        folder: folder of a saved predictor.
        scope: kinds of upcoming queries; predictors in lists of a composed one, such as the parts
            of the router, are omitted if they cannot answer them. None for all.

    Raises:
        BadArtifact: the folder is damaged, or no predictor has that name.
    """
    content = _content(folder, partial(_leaf, folder, scope=scope))
    if scope is not None:
        content["parameters"] = {
            field: [x for x in value if x is not _LEFT_OUT] if isinstance(value, list) else value
            for field, value in content["parameters"].items()
        }
    try:
        cls = predictor_class(content["name"])
    except BadArtifact as error:
        raise BadArtifact(f"{folder} holds {content['name']!r}, and {error}") from error
    if issubclass(cls, StoredPredictor):
        return cls.restored(folder, content)
    return cls.load(folder)


def is_loaded(name: str, scope: Scope | None) -> bool:
    """Whether `load_part` reads a file or folder, given its path relative to the predictor's
    folder.

    Args:
        name: the path, with forward slashes.
        scope: kinds of upcoming queries; None for all.
    """
    part, inside, _ = name.partition("/")
    # The writer appends the predictor's name to folder names.
    return scope is None or not inside or scope.concerns(part.rpartition("-")[2])


def contained(folder: Path) -> list[tuple[str, Path]]:
    """Name and folder of each predictor that the one in this folder consists of.

    They are not loaded, since their version may not be supported.

    Raises:
        BadArtifact: a folder is damaged.
    """
    folders = sorted(path for path in folder.iterdir() if path.is_dir())
    return [(stored_name(path), path) for path in folders]


def stored_name(folder: Path) -> str:
    """Name of the predictor in a folder, without loading it.

    Raises:
        BadArtifact: the folder is damaged.
    """
    return str(_content(folder)["name"])


def _content(folder: Path, leaf: Callable[[dict[str, Any]], Any] | None = None) -> dict[str, Any]:
    """Content of `predictor.json`, with each object replaced by the result of `leaf`."""
    packed = folder / "predictor.json.gz"
    try:
        if packed.is_file():
            text = gzip.decompress(packed.read_bytes()).decode()
        else:
            text = (folder / "predictor.json").read_text()
        content = json.loads(text, object_hook=leaf)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, JSONDecodeError) as error:
        raise BadArtifact(f"{folder} has no readable predictor.json: {error}") from None
    if not isinstance(content, dict) or content.keys() != CONTENT:
        content = {}
    if content.get("format") != FORMAT:
        raise BadArtifact(f"{folder}/predictor.json is not in format {FORMAT}; fit it again.")
    return content


def _leaf(folder: Path, content: dict[str, Any], scope: Scope | None = None) -> Any:
    """The files' contents, or the predictor, that an object in `predictor.json` refers to."""
    if content.keys() == {FILES}:
        names = content[FILES] if isinstance(content[FILES], list) else [content[FILES]]
        return tuple(_read(_within(folder, name)) for name in names)
    if content.keys() == {PREDICTOR}:
        part = _within(folder, content[PREDICTOR])
        if not is_loaded(f"{part.name}/", scope):
            return _LEFT_OUT
        return load_part(part)
    return content


def _within(folder: Path, name: Any) -> Path:
    """The file or folder of that name, which must not lead out of the folder."""
    if not isinstance(name, str) or not _PLAIN_NAME.fullmatch(name):
        raise BadArtifact(f"{folder}: {name!r} is not a file name.")
    return folder / name


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise BadArtifact(f"{path.parent} lacks {path.name}: {error}") from None


class _Writer:
    """Writes objects that are stored in separate files and folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.stems: set[str] = set()

    def written(self, content: Any, *path: object) -> Any:
        """The content with stored objects replaced by the names of their files and folders.

        Args:
            content: result of `to_content`, or a part of it.
            path: fields, keys and positions that lead to it.
        """
        # Most values are plain, and checking whether one satisfies a protocol is slow.
        if content is None or isinstance(content, str | int | float):
            return content
        if isinstance(content, Pairs):
            return [[key, self.written(value, *path, *_parts(key))] for key, value in content]
        if isinstance(content, dict):
            return {key: self.written(value, *path, key) for key, value in content.items()}
        if isinstance(content, list | tuple):
            width = len(str(len(content) - 1))
            return [
                self.written(value, *path, str(number).zfill(width))
                for number, value in enumerate(content)
            ]
        if isinstance(content, bytes):
            return {FILES: self._files(path, ".onnx", (content,))} if content else {FILES: []}
        if isinstance(content, StoredInFiles):
            return {FILES: self._files(path, content.suffix, content.to_files())}
        if isinstance(content, Predictor):
            name = self._stem((*path, content.name))
            content.save(self.folder / name)
            return {PREDICTOR: name}
        return content

    def _files(self, path: Sequence[object], suffix: str, contents: Sequence[bytes]) -> list[str]:
        stem = self._stem(path)
        names = [f"{stem}-{number}{suffix}" for number in range(len(contents))]
        for name, content in zip(names, contents, strict=True):
            (self.folder / name).write_bytes(content)
        return names

    def _stem(self, path: Sequence[object]) -> str:
        """The path as a file name that is not yet in use."""
        plain = "-".join(re.sub(r"\W+", "_", str(part), flags=re.ASCII) for part in path)
        stem, number = plain, 2
        while stem in self.stems:
            stem, number = f"{plain}_{number}", number + 1
        self.stems.add(stem)
        return stem


def _parts(key: Any) -> Sequence[object]:
    return key if isinstance(key, list | tuple) else (key,)


def _is_in_files(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "from_files")


def _is_in_a_folder(kind: Any) -> bool:
    return kind is Predictor or (isinstance(kind, type) and issubclass(kind, StoredPredictor))


def _unchanged(leaf: Any) -> Any:
    return leaf


CONVERTER.register_unstructure_hook(bytes, _unchanged)
CONVERTER.register_structure_hook(bytes, lambda files, _: b"".join(checked(files, tuple)))
CONVERTER.register_unstructure_hook_func(_is_in_files, _unchanged)
CONVERTER.register_structure_hook_func(
    _is_in_files, lambda files, kind: kind.from_files(checked(files, tuple))
)
CONVERTER.register_unstructure_hook_func(_is_in_a_folder, _unchanged)
CONVERTER.register_structure_hook_func(_is_in_a_folder, checked)
