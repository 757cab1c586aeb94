"""Answers to a router about single requests, which learn from the requests that it measures."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from forerun.data.columns import Column, Matrix
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery
from forerun.features.caches import Recent
from forerun.models.llm_serving.single_requests import (
    WINDOW,
    LearnedTime,
    ServerStates,
    ServerTimes,
    Time,
)
from forerun.service.answers.llm.question import DeploymentQuestion, DeviceNamed, question_of
from forerun.service.schemas.llm.routing import RoutedIn, RoutedOut, RouterEntryIn, RouterStateIn
from forerun.service.schemas.serving import LOADS
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import SUFFIX, DamagedRecord, Place, StoreFull, log_damage

FOLDER: Final = "routed"
MOST_DEPLOYMENTS: Final = 100
STATE: Final = (
    *("kv_cache_percentage", "input_token_length", "num_request_waiting", "num_request_running"),
    *("prefix_cache_score", "prefill_tokens_in_flight"),
)
"""Fields of a request in the order of `ServerStates`."""
TIMES: Final[tuple[Time, ...]] = ("ttft_ms", "tpot_ms")


class UnknownRouted(InputError):
    """No deployment of that name was stored for a router."""

    slug, status = "unknown-deployment", 404

    def __init__(self, name: str) -> None:
        super().__init__(
            f"No deployment {name!r:.80} is stored for a router; PUT /v1/llm-d/NAME stores one."
        )


@dataclass(frozen=True)
class Routed:
    """A deployment, and the latest requests that its router measured.

    Attributes:
        asked: the deployment.
        rows: (n, 8) `STATE` and both times in milliseconds, 0 where not measured.
    """

    asked: RoutedIn
    rows: Matrix

    def with_rows(self, rows: Matrix) -> "Routed":
        """With further rows; of each time, the latest `WINDOW` stay."""
        both = np.vstack([self.rows, rows])
        measured = both[:, -len(TIMES) :] > 0.0
        later = np.cumsum(measured[::-1], axis=0)[::-1]
        return replace(self, rows=both[(measured & (later <= WINDOW)).any(axis=1)])


@dataclass(frozen=True)
class _Learned:
    """What answers for a deployment, and what it was made of."""

    routed: Routed
    device: Device
    closed: ServerTimes
    times: Sequence[LearnedTime]

    @classmethod
    def of(cls, routed: Routed, question: DeploymentQuestion) -> "_Learned":
        query, rows = question.query, routed.rows
        closed, times = ServerTimes.of(query.deployment, query.device), []
        for time, measured in zip(TIMES, rows[:, -len(TIMES) :].T, strict=True):
            known = measured > 0.0
            parts = closed.parts(time, _states(rows[known]))
            times.append(LearnedTime.of(time, closed.prior(time), parts, measured[known]))
        return cls(routed, query.device, closed, times)


class Routing:
    """Deployments of routers by name; several processes may share a place.

    Args:
        place: where they are. What `add` returned from is in it, until `WINDOW` later rows replace
            it.
    """

    def __init__(self, place: Place) -> None:
        self._records = Records(
            place, _encoded, _decoded, log_damage, weigh=lambda one: 1, room=MOST_DEPLOYMENTS
        )
        self._learned: Recent[str, _Learned] = Recent(MOST_DEPLOYMENTS)

    def put(self, name: str, asked: RoutedIn, device_named: DeviceNamed) -> RoutedOut:
        """Store a deployment; the rows of another one of that name stay.

        Raises:
            StoreFull: there are too many.
            DiskFull, CannotStore: it could not be written.
            InputError: it cannot be answered; the message says why.
        """
        _question(asked, device_named)
        with self._records.writing():
            names = self._records.names()
            if _file(name) not in names and len(names) >= MOST_DEPLOYMENTS:
                raise StoreFull(f"{MOST_DEPLOYMENTS} deployments of routers are stored already.")
            try:
                stored = replace(self._get(name), asked=asked)
            except UnknownRouted:
                stored = Routed(asked, np.empty((0, len(STATE) + len(TIMES))))
            self._records.put(_file(name), stored)
        return self.described(name, device_named)

    def described(self, name: str, device_named: DeviceNamed) -> RoutedOut:
        """A deployment, and how many rows it learned from; raises as `predicted`."""
        routed = self._get(name)
        question = _question(routed.asked, device_named)
        ttft, tpot = (int(own) for own in (routed.rows[:, -len(TIMES) :] > 0.0).sum(axis=0))
        return RoutedOut(
            name=name,
            device=question.query.device.name,
            ttft_rows=ttft,
            tpot_rows=tpot,
            chosen=list(question.chosen),
        )

    def delete(self, name: str) -> None:
        """Delete a deployment and its rows.

        Raises:
            UnknownRouted: there is none of that name.
            CannotStore: it could not be deleted.
        """
        with self._records.writing():
            if not self._records.delete(_file(name)):
                raise UnknownRouted(name)

    def add(self, name: str, entries: Sequence[RouterEntryIn]) -> None:
        """Store measured requests, which the next answers learn from.

        Raises:
            UnknownRouted: there is no deployment of that name.
            DiskFull, CannotStore: they could not be written.
        """
        rows = [(*_state(e), e.actual_ttft_ms, e.actual_tpot_ms) for e in entries]
        with self._records.writing():
            routed = self._get(name)
            if rows:
                self._records.put(_file(name), routed.with_rows(np.array(rows, dtype=np.float64)))

    def predicted(
        self, name: str, states: Sequence[RouterStateIn], device_named: DeviceNamed
    ) -> tuple[Column, Column]:
        """Both times of n requests, shape (n,), milliseconds.

        Raises:
            UnknownRouted: there is no deployment of that name.
            InputError: it cannot be answered; the message says why.
        """
        learned = self._learned_of(name, device_named)
        asked = _states(np.array([_state(state) for state in states], dtype=np.float64))
        ttft, tpot = (
            own.quantile_ms(learned.closed.parts(time, asked))
            for time, own in zip(TIMES, learned.times, strict=True)
        )
        return ttft, tpot

    def _learned_of(self, name: str, device_named: DeviceNamed) -> _Learned:
        routed, known = self._get(name), self._learned.get(name)
        device = device_named(routed.asked.device)
        if known is not None and known.routed is routed and known.device == device:
            return known
        made = _Learned.of(routed, _question(routed.asked, device_named))
        self._learned.put(name, made)
        return made

    def _get(self, name: str) -> Routed:
        try:
            return self._records.get(_file(name))
        except (FileNotFoundError, DamagedRecord):
            raise UnknownRouted(name) from None


def _question(asked: RoutedIn, device_named: DeviceNamed) -> DeploymentQuestion:
    """The question about one worker of a deployment.

    Raises:
        InputError: a router cannot be answered about it; the message says why.
    """
    question = question_of(asked, device_named)
    if question.query.deployment.prefill is not None:
        raise UnanswerableQuery("A router needs workers that serve whole requests: omit prefill.")
    if question.query.device.kind == "cpu":
        raise UnanswerableQuery("A router is supported only on GPUs and other accelerators.")
    ServerTimes.of(question.query.deployment, question.query.device)
    return question


def _state(given: RouterStateIn) -> tuple[float, ...]:
    return tuple(float(getattr(given, field)) for field in STATE)


def _states(rows: Matrix) -> ServerStates:
    return ServerStates(*rows[:, : len(STATE)].T)


def _file(name: str) -> str:
    return f"{name}{SUFFIX}"


def _encoded(routed: Routed) -> str:
    asked = routed.asked.model_dump(mode="json", exclude_unset=True)
    return json.dumps({"deployment": asked, "rows": routed.rows.tolist()})


def _decoded(name: str, content: bytes) -> Routed:
    stored = json.loads(content)
    deployment = {k: v for k, v in stored["deployment"].items() if k not in LOADS}
    rows = np.array(stored["rows"], dtype=np.float64).reshape(-1, len(STATE) + len(TIMES))
    return Routed(RoutedIn.model_validate(deployment), rows)
