"""Besides answering, a process follows the registry and what other processes write."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from itertools import chain
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import IO, Final

from forerun.data.errors import BadArtifact
from forerun.features.caches import Recent
from forerun.models.artifact.examples import check_examples
from forerun.models.artifact.sealed_folder import LoadedPredictor, bundled
from forerun.service.champion import Champion, ask, fetched, keep, kept
from forerun.service.http import shared_folder
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.cluster import Cluster
from forerun.service.http.state import State
from forerun.service.http.trial import Shares
from forerun.service.loading import load_version
from forerun.service.log import LINES, log
from forerun.service.settings import Settings
from forerun.service.stores.places import database_of

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
        self._loaded: Recent[str, LoadedPredictor] = Recent(KEPT)
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
            self._loaded.put(name, found)
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


TURN_S = 1
"""Time between two looks at what other processes did, seconds."""
LOCK = "registry.lock"


@asynccontextmanager
async def kept_up(state: State, answers: Answers) -> AsyncIterator[None]:
    """Follow the registry, other processes, the database and a cluster to the block's end."""
    tasks = [
        asyncio.create_task(_follow_measurements(state)),
        asyncio.create_task(_follow_database(state)),
        asyncio.create_task(_write_log()),
    ]
    settings = state.settings
    if settings.registry_uri is not None and settings.predictor_folder is None:
        versions = Versions(settings)
        enter()
        # A process that replaces a dead one has the predictors of the start of the service.
        await _take_over(state, answers, versions)
        tasks.append(asyncio.create_task(_follow_registry(state, answers, versions)))
        tasks.append(asyncio.create_task(_follow_champion(state, answers, versions)))
    api = settings.kubernetes_api
    if api is not None:
        state.cluster = Cluster(api)
        state.cluster.start()
    yield
    if state.cluster is not None:
        state.cluster.stop()
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            log().error("upkeep ended early", exc_info=ended)


async def _follow_measurements(state: State) -> None:
    """Adapt to measurements of other processes soon, rather than in the next question."""
    while True:
        await asyncio.sleep(TURN_S)
        of_all = [(own.adaptation, own.trial.adaptation) for own in state.all_answers()]
        for each in chain.from_iterable(of_all):
            if each is None or each.held() is not None:
                continue
            try:
                await state.adapt(each.current)
            except Exception as error:  # the next question will tell its client
                log().error("measurements were not taken over", exc_info=error)


async def _write_log() -> None:
    """Write lines of the log that wait for a reader, also when no further ones come."""
    while True:
        await asyncio.sleep(TURN_S)
        LINES.drain()


async def _follow_database(state: State) -> None:
    """Take over what other replicas changed in the database, so that no question waits for it."""
    if state.settings.database_url is None:
        return
    database = database_of(state.settings)
    with database.followed():
        while True:
            await asyncio.to_thread(database.look)
            await asyncio.sleep(TURN_S)


async def _follow_registry(state: State, answers: Answers, versions: Versions) -> None:
    """Ask the registry again and again, and keep what it says on disk, where all processes look.

    Of several processes one asks; when it ends, another one does.
    """
    with await _elected():
        while True:
            await _consider(state, answers, versions, await ask(state.settings))
            await asyncio.sleep(state.settings.registry_poll_seconds)


async def _consider(state: State, answers: Answers, versions: Versions, champion: Champion) -> None:
    """Keep what the registry said, with the version before where its champion cannot be used."""
    settings = state.settings
    if champion.problem is None:
        try:
            loaded = await state.adapt(lambda: versions.prepared(champion.version))
        except BadArtifact as error:
            before = kept(settings)
            version = None if before is None else before.version
            champion = champion.model_copy(update={"version": version, "problem": str(error)})
            log().error("the champion cannot be used; the one before answers", why=str(error))
        else:
            is_other = loaded.version != answers.adaptation.base_version
            if not keep(champion, settings) and is_other and shared_folder.in_use() is None:
                await state.adapt(lambda: state.swap(loaded))
            return
    keep(champion, settings)


async def _follow_champion(state: State, answers: Answers, versions: Versions) -> None:
    """Take over the champion that is kept on disk, at the same time as all other processes."""
    while True:
        await asyncio.sleep(LOOK_S)
        await _take_over(state, answers, versions)


async def _take_over(state: State, answers: Answers, versions: Versions) -> None:
    champion = kept(state.settings)
    if champion is None or versions.offered(champion) == answers.versions:
        return
    offered = versions.offered(champion)
    loaded = answers.adaptation.loaded
    try:
        if offered[0] != loaded.version:
            loaded = await state.adapt(lambda: versions.prepared(champion.version))
    except BadArtifact:
        await asyncio.sleep(TURN_S)  # The process that asks the registry says so and mends it.
        return
    candidate = await state.adapt(lambda: versions.candidate(offered[1]))

    def is_over() -> bool:
        now = kept(state.settings)
        return now is not None and versions.offered(now) != versions.offered(champion)

    if await all_prepared("~".join(filter(None, offered)), is_over):
        await state.adapt(lambda: state.swap(loaded, candidate))


async def _elected() -> IO[bytes]:
    """Wait until no other process of this service asks the registry; the lock ends with this one.

    Returns:
        The locked file; a process that serves alone needs none, and locks the null device.
    """
    folder = shared_folder.in_use()
    file = open(os.devnull if folder is None else folder / LOCK, "ab")  # noqa: SIM115, PTH123
    while folder is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            await asyncio.sleep(TURN_S)
    return file
