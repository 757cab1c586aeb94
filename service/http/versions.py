"""Change of predictors while the service runs: all processes prepare, then all swap together."""

import asyncio
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final

from forerun.data.errors import BadArtifact
from forerun.models.artifact.examples import check_examples
from forerun.models.artifact.loading import LoadedPredictor, bundled
from forerun.service.champion import Champion, fetched
from forerun.service.http import shared_folder
from forerun.service.http.trial.shares import Shares
from forerun.service.loading import load_version
from forerun.service.log import log
from forerun.service.settings import Settings

KEPT: Final = 3
"""Predictors that stay loaded: those in use, those before, for a rollback, and a candidate."""
LOOK_S: Final = 0.1
LONGEST_WAIT_S: Final = 60.0
"""Time after which a process swaps without those that are not prepared, seconds."""
WORKER, PREPARED = "worker-", "prepared-"


class Versions:
    """Predictors of this process by version; the last ones stay loaded.

    Args:
        settings: where champions are kept.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings, self._lock = settings, Lock()
        self._loaded: OrderedDict[str, LoadedPredictor] = OrderedDict()
        self._damaged: set[str] = set()

    def offered(self, champion: Champion) -> tuple[str, str | None]:
        """The versions that are to answer: the champion's, or the bundled one, and a candidate's.

        A candidate that is damaged is left out, as it is without a share of the questions.
        """
        version, candidate = champion.version or bundled().version, champion.candidate
        if not Shares.of(self._settings) or candidate == version or candidate in self._damaged:
            candidate = None
        return version, candidate

    def candidate(self, version: str | None) -> LoadedPredictor | None:
        """The predictors of a candidate; None without one, and where they cannot be used."""
        if version is None:
            return None
        try:
            return self.prepared(version)
        except BadArtifact as error:
            self._damaged.add(version)
            log().error("the candidate cannot be used", why=str(error))
            return None

    def prepared(self, version: str | None) -> LoadedPredictor:
        """The predictors of a version, checked, and warm from answering examples.

        Args:
            version: the version; None for the bundled predictors.

        Raises:
            BadArtifact: they are damaged, or answer otherwise than when they were sealed.
        """
        name = version or bundled().version
        with self._lock:
            found = self._loaded.get(name)
            if found is None:
                found = load_version(version, self._settings)
                if version is not None:
                    check_examples(fetched(version, self._settings), found.predictor)
            self._loaded[name] = found
            self._loaded.move_to_end(name)
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
            return found


def enter() -> None:
    """Count this process among those that swap together."""
    folder = shared_folder.in_use()
    if folder is not None:
        (folder / f"{WORKER}{os.getpid()}").touch()


async def all_prepared(version: str, is_over: Callable[[], bool]) -> bool:
    """Say that this process is prepared for a version, and wait until all processes are.

    Args:
        version: the version, or several as one name.
        is_over: whether other versions are to answer meanwhile, which ends the wait.

    Returns:
        Whether the version is to be used.
    """
    folder = shared_folder.in_use()
    if folder is None:
        return True
    own = folder / f"{PREPARED}{version}-{os.getpid()}"
    for earlier in folder.glob(f"{PREPARED}*-{os.getpid()}"):
        if earlier != own:
            earlier.unlink(missing_ok=True)
    own.touch()
    end = monotonic() + LONGEST_WAIT_S
    while waiting := _unprepared(folder, version):
        if monotonic() > end:
            log().error("processes are not prepared for a version", count=len(waiting))
            return True
        if is_over():
            return False
        await asyncio.sleep(LOOK_S)
    return True


def _unprepared(folder: Path, version: str) -> set[str]:
    """Process ids of living processes that are not prepared for a version."""
    names = [file.name for file in folder.iterdir()]
    running = {name.removeprefix(WORKER) for name in names if name.startswith(WORKER)}
    mark = f"{PREPARED}{version}-"
    return {
        pid
        for pid in running - {name.removeprefix(mark) for name in names if name.startswith(mark)}
        if _is_alive(int(pid))
    }


def _is_alive(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False
