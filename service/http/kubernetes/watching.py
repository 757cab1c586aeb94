"""Wait for another table than the one that a client has, without a thread or a place in a lane."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Protocol

from starlette.requests import ClientDisconnect

from forerun.service.http.answers import Answers
from forerun.service.http.departure import current_departure
from forerun.service.http.kubernetes.table import Table

LONGEST_WAIT_S: Final = 60.0
LOOK_S: Final = 0.5
"""Time between two looks at what the table depends on, seconds."""
MOST_WAITING: Final = 100
"""Requests of one process that wait; further ones are answered at once."""


class Run(Protocol):
    """Runs work on a thread, as `State.run`."""

    def __call__(self, work: Callable[[], str]) -> Awaitable[str]:
        """The result of the work."""


class WatchedTable:
    """A table, and those who wait for its next one.

    Args:
        table: the table.
        stopping: set when the process ends, which ends all waits.
    """

    def __init__(self, table: Table, stopping: asyncio.Event) -> None:
        self.table, self._stopping = table, stopping
        self._waiting = 0

    def of_other_answers(self) -> "WatchedTable":
        """A table of the same file, for the answers of somebody else."""
        return WatchedTable(self.table.of_other_answers(), self._stopping)

    async def tag(self, answers: Answers, run: Run) -> str:
        """The tag of the table; work is run only where something has changed."""
        known = self.table.known_tag(answers)
        return await run(lambda: self.table.tag(answers)) if known is None else known

    async def new_tag(self, known: str | None, wait_s: float, answers: Answers, run: Run) -> str:
        """The tag, once it is none of the known ones; or the same, when the time is over.

        Args:
            known: the header `If-None-Match`; None without one.
            wait_s: longest time to wait, seconds.
            answers: what the table depends on.
            run: runs work on a thread.

        Raises:
            ClientDisconnect: the client left.
            BadWorkloadClasses, UnknownDevice: as `Table.tag`.
        """
        tag = await self.tag(answers, run)
        if not wait_s or not is_known(tag, known) or self._waiting >= MOST_WAITING:
            return tag
        self._waiting += 1
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await self._until_another(tag, answers, run)
            return await self.tag(answers, run)
        finally:
            self._waiting -= 1

    async def _until_another(self, tag: str, answers: Answers, run: Run) -> None:
        """Return once the tag is another one, or the process ends.

        Raises:
            ClientDisconnect: the client left.
        """
        departure = current_departure()
        left = None if departure is None else asyncio.ensure_future(departure.left())
        ends = asyncio.ensure_future(self._stopping.wait())
        events = {ends} if left is None else {ends, left}
        try:
            while await self.tag(answers, run) == tag and not ends.done():
                await asyncio.wait(events, timeout=LOOK_S, return_when=asyncio.FIRST_COMPLETED)
                if left is not None and left.done():
                    raise ClientDisconnect
        finally:
            for event in events:
                event.cancel()


def is_known(tag: str, known: str | None) -> bool:
    """Whether a header `If-None-Match` lists a tag."""
    listed = (each.strip().removeprefix("W/") for each in (known or "").split(","))
    return any(each in ("*", f'"{tag}"') for each in listed)
