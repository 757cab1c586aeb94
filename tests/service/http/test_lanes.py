"""Lanes: bounded queues, deadlines, and work that ends when its client leaves."""

import asyncio
from threading import Event

import pytest
from starlette.requests import ClientDisconnect

from forerun.data.errors import DeadlineExceeded, ModelTooLarge
from forerun.features.deadline import check, check_operators, current
from forerun.service.http.lanes import Busy, Departure, Lane
from forerun.service.http.telemetry import Telemetry
from forerun.service.requests.record import RequestRecord, continued
from forerun.service.requests.record import current as current_record
from tests.coroutines import run
from tests.waiting import eventually

LONG_S = 600.0


@pytest.fixture
def telemetry():
    return Telemetry()


@pytest.fixture
def lane_of(telemetry):
    made = []

    def make(waiting=1, seconds=LONG_S, **more):
        made.append(Lane("tests", 1, waiting, "FORERUN_TESTS", seconds=seconds,
                         max_operators=5, telemetry=telemetry, **more))  # fmt: skip
        return made[-1]

    yield make
    for lane in made:
        lane.close()


def until_ended():
    """Work that only its deadline ends."""
    while True:
        check()


def in_progress(telemetry):
    return telemetry.registry.get_sample_value("forerun_work_in_progress", {"lane": "tests"})


def abandoned(telemetry, reason):
    return telemetry.registry.get_sample_value("forerun_abandoned_total", {"reason": reason})


def test_further_work_is_refused_at_once_when_the_queue_is_full(lane_of, telemetry):
    lane, release = lane_of(waiting=1), Event()

    async def main():
        running, waiting = (asyncio.ensure_future(lane.run(release.wait)) for _ in range(2))
        await asyncio.sleep(0)
        with pytest.raises(Busy, match="FORERUN_TESTS") as refusal:
            await lane.run(release.wait)
        assert (refusal.value.status, refusal.value.retry_after_s) == (503, 1)
        release.set()
        assert await running
        assert await waiting
        assert await lane.run(lambda: 3) == 3

    run(main())
    eventually(lambda: in_progress(telemetry) == 0)


def test_work_ends_at_its_deadline(lane_of, telemetry):
    with pytest.raises(DeadlineExceeded, match="FORERUN_ANSWER_SECONDS"):
        run(lane_of(seconds=0.1).run(until_ended))
    eventually(lambda: in_progress(telemetry) == 0)
    assert abandoned(telemetry, "deadline") == 1


def test_work_that_checks_nothing_is_answered_at_its_deadline_too(lane_of):
    release = Event()
    with pytest.raises(DeadlineExceeded):
        run(lane_of(seconds=0.1).run(release.wait))
    release.set()


def test_work_that_waits_past_its_deadline_never_starts(lane_of):
    lane, release, started = lane_of(seconds=0.1), Event(), []

    async def main():
        first = asyncio.ensure_future(lane.run(release.wait))
        second = asyncio.ensure_future(lane.run(lambda: started.append(1)))
        for work in (first, second):
            with pytest.raises(DeadlineExceeded):
                await work
        release.set()

    run(main())
    assert not started


def test_work_ends_when_its_client_leaves(lane_of, telemetry):
    messages = [{"type": "http.request", "body": b"", "more_body": False},
                {"type": "http.disconnect"}]  # fmt: skip

    async def receive():
        return messages.pop(0)

    async def main():
        with Departure(receive).watchable(), pytest.raises(ClientDisconnect):
            await lane_of().run(until_ended)

    run(main())
    eventually(lambda: in_progress(telemetry) == 0)
    assert abandoned(telemetry, "client left") == 1


def test_what_is_read_ahead_reaches_the_handler(lane_of):
    messages = [{"type": "http.request", "body": b"a", "more_body": True},
                {"type": "http.request", "body": b"b", "more_body": False}]  # fmt: skip
    wanted, release = list(messages), Event()

    async def receive():
        if not messages:
            release.set()
            await asyncio.Event().wait()
        return messages.pop(0)

    async def main():
        departure = Departure(receive)
        with departure.watchable():
            asyncio.get_running_loop().call_later(0.3, release.set)
            assert await lane_of().run(release.wait)
        assert [await departure.receive() for _ in wanted] == wanted

    run(main())


def test_work_of_a_lane_asks_the_same_lane_without_waiting(lane_of):
    lane = lane_of(waiting=0)
    assert run(lane.run(lambda: asyncio.run(lane.run(lambda: 3)))) == 3


def test_the_number_of_operators_is_limited_in_a_lane_and_nowhere_else(lane_of):
    check_operators(6, "a graph")
    with pytest.raises(ModelTooLarge, match="6 operators; 5 at most"):
        run(lane_of().run(lambda: check_operators(6, "a graph")))
    run(lane_of().run(lambda: check_operators(5, "a graph")))


def test_a_lane_may_let_its_work_go_on_to_its_end(lane_of):
    lane, release, ended = lane_of(seconds=0.1, ends_early=False), Event(), Event()

    def work():
        release.wait()
        check()
        ended.set()

    with pytest.raises(DeadlineExceeded):
        run(lane.run(work))
    release.set()
    assert ended.wait(LONG_S)


def test_a_failure_reaches_the_caller_and_makes_room(lane_of):
    lane = lane_of(waiting=0)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError):
            run(lane.run(lambda: 1 / 0))


def test_the_deadline_ends_with_the_work(lane_of):
    lane = lane_of()
    assert run(lane.run(current)).seconds == LONG_S
    assert current() is None


def test_what_waits_for_a_thread_is_counted_and_its_wait_is_timed(lane_of, telemetry):
    lane, release = lane_of(waiting=2), Event()

    def sample(name):
        return telemetry.registry.get_sample_value(name, {"lane": "tests"})

    async def main():
        first, second, third = (asyncio.ensure_future(lane.run(release.wait)) for _ in range(3))
        await asyncio.to_thread(eventually, lambda: sample("forerun_work_waiting") == 2)
        assert in_progress(telemetry) == 3
        third.cancel()
        await asyncio.to_thread(eventually, lambda: sample("forerun_work_waiting") == 1)
        release.set()
        await asyncio.gather(first, second)
        with pytest.raises(asyncio.CancelledError):
            await third

    run(main())
    eventually(lambda: in_progress(telemetry) == 0)
    assert sample("forerun_work_waiting") == 0
    assert sample("forerun_work_wait_seconds_count") == 2


def test_work_belongs_to_the_request_that_it_is_done_for(lane_of):
    lane = lane_of()
    record = RequestRecord("one", stages=[])

    async def main():
        with continued(record):
            assert await lane.run(current_record) is record
        assert await lane.run(current_record) is None

    run(main())
    assert [own.name for own in record.stages or ()] == ["queue"]
