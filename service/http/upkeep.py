"""Besides answering, a process follows the registry and what other processes write."""

import asyncio
import fcntl
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO

from forerun.data.errors import BadArtifact
from forerun.models.artifact.loading import bundled
from forerun.service.champion import Champion, ask, keep, kept
from forerun.service.http import shared_folder
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.cluster import Cluster
from forerun.service.http.state import State
from forerun.service.loading import load_champion
from forerun.service.log import log
from forerun.service.stores.places import database_of

TURN_S = 1
"""Time between two looks at what other processes did, seconds."""
LOCK = "registry.lock"


@asynccontextmanager
async def kept_up(state: State, answers: Answers) -> AsyncIterator[None]:
    """Follow the registry, other processes, the database and a cluster to the block's end."""
    tasks = [
        asyncio.create_task(_follow_measurements(state, answers)),
        asyncio.create_task(_follow_database(state)),
        asyncio.create_task(_follow_registry(state, answers)),
    ]
    api = state.settings.kubernetes_api
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


async def _follow_measurements(state: State, answers: Answers) -> None:
    """Adapt to measurements of other processes soon, rather than in the next question."""
    while True:
        await asyncio.sleep(TURN_S)
        if answers.adaptation.held() is None:
            try:
                await state.adapt(answers.adaptation.current)
            except Exception as error:  # the next question will tell its client
                log().error("measurements were not taken over", exc_info=error)


async def _follow_database(state: State) -> None:
    """Take over what other replicas changed in the database, so that no question waits for it."""
    database = database_of(state.settings)
    if database is None:
        return
    with database.followed():
        while True:
            await asyncio.to_thread(database.look)
            await asyncio.sleep(TURN_S)


async def _follow_registry(state: State, answers: Answers) -> None:
    """Ask the registry again and again; a new champion takes over.

    Of several processes one asks; when it ends, another one does. It has the parent load the
    champion and replace all processes, so that they share its memory and have one version.
    """
    settings = state.settings
    if settings.registry_uri is None or settings.predictor_folder is not None:
        return
    with await _elected():
        while True:
            await _consider(state, answers, await ask(settings))
            await asyncio.sleep(settings.registry_poll_seconds)


async def _consider(state: State, answers: Answers, champion: Champion) -> None:
    """Keep what the registry said, and let its champion take over if it is another one."""
    settings = state.settings
    offered = champion.version or bundled().version
    if champion.problem is not None or offered == answers.adaptation.base_version:
        keep(champion, settings)
        return
    try:
        loaded = await state.adapt(lambda: load_champion(champion, settings))
    except BadArtifact as error:
        before = kept(settings)
        version = None if before is None else before.version
        keep(champion.model_copy(update={"version": version, "problem": str(error)}), settings)
        log().error("the champion cannot be used; the one before answers", why=str(error))
        return
    is_kept = keep(champion, settings)
    if shared_folder.in_use() is None:
        await state.adapt(lambda: answers.swap(loaded))
    elif is_kept:
        os.kill(os.getppid(), signal.SIGHUP)


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
