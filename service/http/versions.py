"""Change of predictors while the service runs: all processes prepare, then all swap together."""

import asyncio
import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import Final

from forerun.models.artifact.examples import check_examples
from forerun.models.artifact.loading import LoadedPredictor, bundled
from forerun.service.champion import Champion
from forerun.service.http import shared_folder
from forerun.service.loading import load_champion
from forerun.service.log import log
from forerun.service.settings import Settings

KEPT: Final = 2
"""Predictors that stay loaded: those in use, and those before, to which a rollback goes back."""
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

    def prepared(self, champion: Champion) -> LoadedPredictor:
        """The predictors of a champion, checked, and warm from answering examples.

        Raises:
            BadArtifact: they are damaged, or answer otherwise than when they were sealed.
        """
        version = champion.version or bundled().version
        with self._lock:
            found = self._loaded.get(version)
            if found is None:
                found = load_champion(champion, self._settings)
                folder = champion.folder(self._settings)
                if folder is not None:
                    check_examples(folder, found.predictor)
            self._loaded[version] = found
            self._loaded.move_to_end(version)
            while len(self._loaded) > KEPT:
                self._loaded.popitem(last=False)
            return found


def enter() -> None:
    """Count this process among those that swap together."""
    folder = shared_folder.in_use()
    if folder is not None:
        (folder / f"{WORKER}{os.getpid()}").touch()


async def all_prepared(version: str) -> None:
    """Say that this process is prepared for a version, and wait until all processes are."""
    folder = shared_folder.in_use()
    if folder is None:
        return
    own = folder / f"{PREPARED}{version}-{os.getpid()}"
    for earlier in folder.glob(f"{PREPARED}*-{os.getpid()}"):
        if earlier != own:
            earlier.unlink(missing_ok=True)
    own.touch()
    end = monotonic() + LONGEST_WAIT_S
    while waiting := _unprepared(folder, version):
        if monotonic() > end:
            log().error("processes are not prepared for a version", count=len(waiting))
            return
        await asyncio.sleep(LOOK_S)


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
