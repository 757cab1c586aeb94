"""Besides answering, a process follows the registry and what other processes write."""

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from typing import IO

from forerun.data.errors import BadArtifact
from forerun.service.champion import Champion, ask, keep, kept
from forerun.service.http import shared_folder
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.cluster import Cluster
from forerun.service.http.state import State
from forerun.service.http.versions import LOOK_S, Versions, all_prepared, enter
from forerun.service.log import LINES, log
from forerun.service.stores.places import database_of

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
    database = database_of(state.settings)
    if database is None:
        return
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
