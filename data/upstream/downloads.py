"""Files of a public repository at a pinned commit, each checked by its SHA-256."""

import gzip
import hashlib
import io
import json
import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from forerun.data.errors import DamagedData, MissingData
from forerun.data.lazy import pd

if TYPE_CHECKING:
    from pooch import Pooch

RAW = "https://raw.githubusercontent.com"
MIRROR = "FORERUN_MIRROR"
PARALLEL_DOWNLOADS = 8


class SkippedFiles(UserWarning):
    """Some upstream files are missing; the tables are built from the others."""


@dataclass(frozen=True)
class RawFiles:
    """Upstream files in a local folder, plain or gzipped.

    Attributes:
        folder: the repository's root.
        paths: relative paths of available files, sorted.
    """

    folder: Path
    paths: tuple[str, ...]

    def matching(self, pattern: str) -> list[str]:
        """Paths that match a shell pattern; `*` also matches slashes."""
        return [path for path in self.paths if fnmatchcase(path, pattern)]

    def read(self, path: str) -> bytes:
        """Content of PATH, or else of PATH.gz decompressed.

        Raises:
            MissingData: neither exists.
            DamagedData: PATH.gz is not a complete gzip file.
        """
        content = read_plain_or_gzip(self.folder, path)
        if content is None:
            raise MissingData(f"No file {path} (or {path}.gz) in {self.folder}.")
        return content

    def text(self, path: str) -> str:
        """Content of a file as UTF-8 text."""
        return self.read(path).decode("utf-8")

    def json(self, path: str) -> Any:
        """The content of a JSON file."""
        return json.loads(self.read(path))

    def table(self, path: str, **options: Any) -> "pd.DataFrame":
        """The rows of a Parquet file, or else of a CSV file, to which the options apply."""
        content = io.BytesIO(self.read(path))
        return (
            pd.read_parquet(content)
            if path.endswith(".parquet")
            else pd.read_csv(content, **options)
        )


@dataclass(frozen=True)
class Upstream:
    """A public repository at a commit, and the files from which a dataset is built.

    Attributes:
        owner, repo, commit: repository on GitHub and its pinned commit.
        checksums: packaged JSON table in the folder of the datasets: path -> SHA-256.
        base_url: where raw files are served.
        retries: number of retries of a failed download, after 1, 2, ... seconds.
    """

    owner: str
    repo: str
    commit: str
    checksums: str
    base_url: str = RAW
    retries: int = 2

    @classmethod
    def at(cls, repository: str, checksums: str) -> "Upstream":
        """The repository written as OWNER/REPO@COMMIT."""
        place, _, commit = repository.partition("@")
        owner, _, repo = place.partition("/")
        return cls(owner, repo, commit, checksums)

    @cached_property
    def files(self) -> Mapping[str, str]:
        """Relative path -> SHA-256 of the upstream file."""
        table = files("forerun.data.datasets").joinpath("checksums", self.checksums)
        content: dict[str, str] = json.loads(table.read_text(encoding="utf-8"))
        return content

    @property
    def page(self) -> str:
        """Web page of the repository at that commit."""
        return f"https://github.com/{self.owner}/{self.repo}/tree/{self.commit}"

    def url(self, path: str) -> str:
        """Download address of a file, percent-encoded."""
        return f"{self.base_url}/{self.owner}/{self.repo}/{self.commit}/{quote(path)}"

    def fetch(self, cache: Path, mirror: Path | None = None) -> RawFiles:
        """All available files, verified by their checksums.

        Warns `SkippedFiles` with the names of missing files.

        Args:
            cache: folder for downloads.
            mirror: folder that holds OWNER/REPO/COMMIT/PATH, read instead of the network;
                `FORERUN_MIRROR` when None.

        Raises:
            MissingData: no file is available.
            DamagedData: a file's content does not match its checksum.
        """
        given = os.environ.get(MIRROR)
        mirror = mirror or (Path(given) if given else None)
        if mirror is None:
            raw, missing = self._download(cache)
        else:
            raw, missing = self._check_mirror(mirror)
        if not raw.paths:
            where = mirror if mirror is not None else self.page
            raise MissingData(f"None of the files of {self.owner}/{self.repo} is at {where}.")
        if missing:
            listed = ", ".join(missing)
            warnings.warn(
                f"{self.owner}/{self.repo}: {len(missing)} files are not there: {listed}",
                SkippedFiles,
                stacklevel=2,
            )
        return raw

    def _check_mirror(self, mirror: Path) -> tuple[RawFiles, list[str]]:
        expected = {**self.files, **self._mirrored(mirror)}
        folder = mirror / self.owner / self.repo / self.commit
        there, missing = [], []
        with _progress(f"checking {self.repo}", len(expected)) as step:
            for path in sorted(expected):
                content = read_plain_or_gzip(folder, path)
                step()
                if content is None:
                    missing.append(path)
                elif hashlib.sha256(content).hexdigest() != expected[path]:
                    raise DamagedData(
                        f"{folder / path} is damaged: its SHA-256 is not {expected[path]}; "
                        "copy the mirror again."
                    )
                else:
                    there.append(path)
        return RawFiles(folder, tuple(there)), missing

    def _mirrored(self, mirror: Path) -> dict[str, str]:
        """Path -> SHA-256 of the mirror's files, which may be a subset of upstream's."""
        manifest = mirror / "MANIFEST.json"
        if not manifest.is_file():
            return {}
        this_repository = (self.owner, self.repo, self.commit)
        return {
            entry["path"]: entry["sha256"]
            for entry in json.loads(manifest.read_text(encoding="utf-8"))
            if (entry["owner"], entry["repo"], entry["commit"]) == this_repository
            and entry["path"] in self.files
        }

    def _download(self, cache: Path) -> tuple[RawFiles, list[str]]:
        import pooch

        folder = cache / self.owner / self.repo / self.commit
        keeper = pooch.create(
            path=folder,
            base_url=self.base_url,
            registry={path: f"sha256:{sum_}" for path, sum_ in self.files.items()},
            urls={path: self.url(path) for path in self.files},
            retry_if_failed=self.retries,
        )
        pooch.get_logger().setLevel("WARNING")
        paths = sorted(self.files)
        with (
            _progress(f"downloading {self.repo}", len(paths)) as step,
            ThreadPoolExecutor(PARALLEL_DOWNLOADS) as pool,
        ):
            there = []
            tried = pool.map(lambda path: _download_one(keeper, path), paths)
            for path, found in zip(paths, tried, strict=True):
                step()
                if found:
                    there.append(path)
        return RawFiles(folder, tuple(there)), sorted(set(paths) - set(there))


def together(parts: Sequence[RawFiles]) -> RawFiles:
    """Files of several repositories as one folder, below their common path."""
    root = Path(os.path.commonpath([part.folder for part in parts]))
    paths = [
        (part.folder.relative_to(root) / path).as_posix() for part in parts for path in part.paths
    ]
    return RawFiles(root, tuple(sorted(paths)))


def read_plain_or_gzip(folder: Path, path: str) -> bytes | None:
    """Content of PATH, or else of PATH.gz decompressed, or else None.

    Raises:
        DamagedData: PATH.gz is not a complete gzip file.
    """
    plain, packed = folder / path, folder / f"{path}.gz"
    if plain.is_file():
        return plain.read_bytes()
    if not packed.is_file():
        return None
    try:
        return gzip.decompress(packed.read_bytes())
    except (OSError, EOFError, ValueError) as error:
        raise DamagedData(f"{packed} is damaged: {error}.") from error


def _download_one(keeper: "Pooch", path: str) -> bool:
    """Download a file unless it is cached; False if upstream does not have it."""
    import requests

    try:
        keeper.fetch(path)
    except requests.HTTPError as error:
        if error.response is not None and error.response.status_code == 404:
            return False
        raise MissingData(f"Cannot download {keeper.get_url(path)}: {error}") from error
    except requests.RequestException as error:
        raise MissingData(
            f"Cannot download {keeper.get_url(path)} ({type(error).__name__}); is the network "
            f"there? {MIRROR}=DIR reads a local copy."
        ) from error
    except ValueError as error:
        raise DamagedData(f"{keeper.get_url(path)} is damaged: {error}") from error
    return True


@contextmanager
def _progress(what: str, total: int) -> "Iterator[Callable[[], None]]":
    """A progress bar on standard error, only on a terminal."""
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda: bar.advance(task)
