"""Tenants of one service: the key of a request names one, whose stores and answers are its own."""

import asyncio
import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.pods import Neighbours
from forerun.service.log import log
from forerun.service.settings import Settings

if TYPE_CHECKING:
    from forerun.service.http.state import State

MOST_HELD: Final = 64
"""Tenants whose answers a process holds; those of others are made again when they ask."""


class Tenants:
    """The states of the tenants that asked last; lanes, limits and predictors are all tenants'.

    Args:
        service: the state for requests of no tenant, whose answers are loaded.
        make: makes the answers of a tenant from its settings and the predictor in use.
    """

    def __init__(
        self, service: "State", make: Callable[[Settings, LoadedPredictor], Answers]
    ) -> None:
        self._service, self._make = service, make
        self._held: OrderedDict[str, State] = OrderedDict()
        self._turn = asyncio.Lock()

    async def state(self, tenant: str) -> "State":
        """The state of a tenant, which is made where it is not held.

        Raises:
            Busy, DeadlineExceeded, ClientDisconnect: as `State.adapt`.
        """
        found = self.held(tenant)
        if found is None:
            async with self._turn:
                # Versions change on the same thread, so that none is missed in between.
                found = await self._service.adapt(lambda: self._kept(tenant))
        return found

    def held(self, tenant: str) -> "State | None":
        """The state of a tenant; None where it has to be made first."""
        found = self._held.get(tenant)
        if found is not None:
            self._held.move_to_end(tenant)
        return found

    def answers(self) -> Iterator[Answers]:
        """The answers of all tenants that are held."""
        for state in tuple(self._held.values()):
            if state.answers is not None:
                yield state.answers

    def swap(self, loaded: LoadedPredictor, candidate: LoadedPredictor | None) -> None:
        """Replace the predictors of all tenants; where that fails, the tenant is loaded anew."""
        for tenant, state in tuple(self._held.items()):
            assert state.answers is not None
            try:
                state.answers.swap(loaded, candidate)
            except Exception as error:
                log().error("a tenant is loaded anew", tenant=tenant, exc_info=error)
                self._forget(tenant)

    def close(self) -> None:
        """Forget all tenants."""
        for tenant in tuple(self._held):
            self._forget(tenant)

    def _kept(self, tenant: str) -> "State":
        found = self._held.get(tenant)
        if found is None:
            found = self._made(tenant)
            self._held[tenant] = found
            while len(self._held) > MOST_HELD:
                self._forget(next(iter(self._held)))
        return found

    def _made(self, tenant: str) -> "State":
        service = self._service
        assert service.answers is not None
        adaptation, trial = service.answers.adaptation, service.answers.trial.adaptation
        made = copy.copy(service)
        made.settings = service.settings.model_copy(update={"tenant": tenant})
        answers = self._make(made.settings, adaptation.loaded)
        answers.swap(adaptation.loaded, None if trial is None else trial.loaded)
        answers.adaptation.current()
        made.answers, made.neighbours = answers, Neighbours()
        made.table = None if service.table is None else service.table.of_other_answers()
        return made

    def _forget(self, tenant: str) -> None:
        state = self._held.pop(tenant)
        if state.answers is not None:
            state.answers.trial.close()
