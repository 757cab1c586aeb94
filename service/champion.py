"""The champion of the registry: ask for it within a time limit, and keep on disk what it said."""

import asyncio
import json
import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from forerun.data.errors import BadArtifact
from forerun.data.file_store import write_whole
from forerun.models.artifact.sealed_folder import check
from forerun.service.log import log
from forerun.service.settings import Settings
from forerun.training.tracking.stores import stamp

FOLDER = "registry"
FILE = "champion.json"
LONGEST_PROBLEM = 500
RETRIES = 2
"""MLflow asks an unreachable server for four minutes by default."""


class Champion(BaseModel):
    """What the registry said when it was asked last; it is kept for the next start."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    uri: str
    """address of the registry"""
    version: str | None
    """version of the champion fetched last; null for none, when the bundled predictors answer"""
    candidate: str | None = None
    """version of the candidate on trial; null for none"""
    asked: AwareDatetime
    """when the registry was asked last"""
    problem: str | None = None
    """why it did not give a champion; null where it answered"""
    stamp: str | None = None
    """what changes with the registry; null where that is not known"""

    def folder(self, settings: Settings) -> Path | None:
        """The champion's sealed folder; None without a champion."""
        return None if self.version is None else fetched(self.version, settings)


def fetched(version: str, settings: Settings) -> Path:
    """The folder of a version that was fetched from a registry."""
    return settings.home / FOLDER / version


def kept(settings: Settings) -> Champion | None:
    """What the registry of the settings said last; None if it never was asked."""
    with suppress(OSError, ValidationError):
        champion = Champion.model_validate_json(_file(settings).read_bytes())
        if champion.uri == settings.registry_uri:
            return champion
    return None


def keep(champion: Champion, settings: Settings) -> bool:
    """Keep on disk what the registry said.

    Returns:
        Whether it could be written; where not, the log says why.
    """
    try:
        _file(settings).parent.mkdir(parents=True, exist_ok=True)
        write_whole(_file(settings), champion.model_dump_json() + "\n")
    except OSError as error:
        log().error("the answer of the registry could not be kept", why=str(error))
        return False
    return True


async def ask(settings: Settings) -> Champion:
    """Ask the registry for its champion, and fetch it if it is not here yet.

    Where a look at the registry says that nothing changed since, that takes some milliseconds.
    Otherwise a short-lived process asks, so that mlflow is never imported into this one. It is
    ended after `registry_timeout_seconds`, or when this coroutine is cancelled.
    """
    assert settings.registry_uri is not None
    now, before = datetime.now(UTC), kept(settings)
    try:
        return await asyncio.wait_for(
            _answer(settings.registry_uri, settings, before), settings.registry_timeout_seconds
        )
    except TimeoutError:
        problem = f"it did not answer within {settings.registry_timeout_seconds:g} s"
    except (OSError, ValueError, LookupError) as error:
        problem = str(error)[-LONGEST_PROBLEM:]
    if before is None or before.problem != problem:
        log().error("the registry gave no champion; the one before answers", why=problem)
    if before is None:
        return Champion(uri=settings.registry_uri, version=None, asked=now, problem=problem)
    return before.model_copy(update={"asked": now, "problem": problem})


async def _answer(uri: str, settings: Settings, before: Champion | None) -> Champion:
    """What the registry says: the same as before, or what a process finds there."""
    now = datetime.now(UTC)
    mark = await asyncio.to_thread(stamp, uri, settings.registry_timeout_seconds)
    is_same = before is not None and before.problem is None and before.stamp == mark is not None
    if before and is_same and await asyncio.to_thread(_is_here, before, settings):
        return before.model_copy(update={"asked": now})
    found = await _fetched(settings)
    version, candidate = (None if folder is None else folder.name for folder in found)
    return Champion(uri=uri, version=version, candidate=candidate, asked=now, stamp=mark)


def _is_here(champion: Champion, settings: Settings) -> bool:
    """Whether all that it names was fetched and is whole."""
    versions = filter(None, (champion.version, champion.candidate))
    with suppress(BadArtifact):
        return all(check(fetched(own, settings)).version == own for own in versions)
    return False


async def _fetched(settings: Settings) -> tuple[Path | None, Path | None]:
    """The folders of the champion and of the candidate; None where the registry has none.

    Raises:
        ValueError: the registry failed; the message is that of the library.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "forerun.training.release.registry", "fetch",
        env=_environment(settings), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        raise ValueError(errors.decode(errors="replace").strip() or "the query failed")
    # Libraries may print before the answer, which is the last line.
    said = json.loads(output.decode().strip().splitlines()[-1])
    if said.get("problem"):
        log().error("the candidate cannot be tried", why=said["problem"])
    champion, candidate = said["path"], said.get("candidate")
    return champion and Path(champion), candidate and Path(candidate)


def _environment(settings: Settings) -> dict[str, str]:
    return {
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": str(RETRIES),
        "MLFLOW_HTTP_REQUEST_TIMEOUT": str(round(settings.registry_timeout_seconds)),
        **os.environ,
        "FORERUN_TRACKING_URI": settings.registry_uri or "",
        "FORERUN_HOME": str(settings.home),
    }


def _file(settings: Settings) -> Path:
    return settings.home / FOLDER / FILE
