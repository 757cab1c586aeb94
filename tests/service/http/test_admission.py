"""What is let in: requests and bytes in flight, bounded queues, deadlines, clients that leave."""

import asyncio
from threading import Event

import httpx
import pytest
from starlette.requests import ClientDisconnect

from forerun.data.errors import DeadlineExceeded, ModelTooLarge
from forerun.features.deadline import check, check_operators, current
from forerun.service.http.lanes import Busy, Departure, Lane
from forerun.service.http.limits import Admission
from forerun.service.http.telemetry import Telemetry
from forerun.service.requests.record import RequestRecord, continued
from forerun.service.requests.record import current as current_record
from forerun.service.settings import Settings
from tests.coroutines import run
from tests.service.answered import problem_of
from tests.waiting import eventually

MIB = 2**20


class Slow:
    """An application that reads a body, and answers once it is released."""

    def __init__(self):
        self.received = self.reading = 0
        self.release = asyncio.Event()

    async def __call__(self, scope, receive, send):
        self.reading += 1
        while True:
            message = await receive()
            self.received += len(message.get("body", b""))
            if not message.get("more_body"):
                break
        await self.release.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})


def admitted(tmp_path, work, **limits):
    """Run `work(client, application)` against a slow application behind the limits."""

    async def main():
        app, telemetry = Slow(), Telemetry()
        guarded = Admission(app, Settings(home=tmp_path, **limits), telemetry, {"/upload"})
        transport = httpx.ASGITransport(guarded)
        async with httpx.AsyncClient(transport=transport, base_url="http://x") as client:
            await work(client, app)
        return telemetry

    return run(main())


async def started(app, number):
    while app.reading < number:
        await asyncio.sleep(0)


def test_a_request_over_the_number_in_flight_is_refused_and_health_is_not(tmp_path):
    async def work(client, app):
        open_ones = [asyncio.ensure_future(client.get("/")) for _ in range(2)]
        await started(app, 2)
        refused = await client.get("/")
        assert refused.status_code == 503
        assert refused.headers["retry-after"] == "1"
        assert refused.json()["type"] == "/problems/busy"
        watching = [asyncio.ensure_future(client.get(path)) for path in ("/healthz", "/metrics")]
        await started(app, 4)
        app.release.set()
        answers = await asyncio.gather(*open_ones, *watching)
        assert [answer.status_code for answer in answers] == [200] * 4
        assert (await client.get("/")).status_code == 200

    telemetry = admitted(tmp_path, work, requests_in_flight=2)
    count = telemetry.registry.get_sample_value("forerun_refused_total", {"limit": "requests"})
    assert count == 1


def test_bodies_that_are_half_sent_take_no_place(tmp_path):
    """Clients that send a part of what they declare keep nobody from an answer."""
    last = asyncio.Event()

    async def half():
        yield b"1234"
        await last.wait()
        yield b"5678"

    async def work(client, app):
        headers = {"content-length": "8"}
        slow = [
            asyncio.ensure_future(client.post("/", content=half(), headers=headers))
            for _ in range(5)
        ]
        await started(app, 5)
        whole = asyncio.ensure_future(client.post("/", content=b"12345678"))
        await started(app, 6)
        app.release.set()
        assert (await whole).status_code == 200
        last.set()
        assert [answer.status_code for answer in await asyncio.gather(*slow)] == [200] * 5

    admitted(tmp_path, work, requests_in_flight=2)


@pytest.mark.parametrize("declared", [True, False])
def test_bodies_over_the_bytes_in_flight_are_refused(tmp_path, declared):
    async def body():
        for _ in range(4):
            yield bytes(MIB)

    def content():
        return bytes(4 * MIB) if declared else body()

    async def work(client, app):
        first = asyncio.ensure_future(client.post("/upload", content=content()))
        await started(app, 1)
        while app.received < 4 * MIB:
            await asyncio.sleep(0)
        if declared:
            refused = await client.post("/upload", content=content())
            assert refused.status_code == 503
            assert "FORERUN_MIB_IN_FLIGHT" in refused.json()["detail"]
        else:
            with pytest.raises(Exception, match="FORERUN_MIB_IN_FLIGHT"):
                await client.post("/upload", content=content())
        app.release.set()
        assert (await first).status_code == 200
        assert (await client.post("/upload", content=content())).status_code == 200

    admitted(tmp_path, work, mib_in_flight=6)


def test_a_body_that_is_larger_than_all_may_be_is_let_in_alone(tmp_path):
    async def work(client, app):
        app.release.set()
        assert (await client.post("/upload", content=bytes(3 * MIB))).status_code == 200

    admitted(tmp_path, work, mib_in_flight=2)


@pytest.mark.parametrize("declared", [True, False])
def test_only_uploads_may_be_over_the_limit_of_a_request(client, declared):
    content = b"[" + b" " * (2 * MIB) + b"]"

    def chunks():
        yield content

    headers = {"Content-Type": "application/json"}
    given = content if declared else chunks()
    answer = client.post("/v1/predict", content=given, headers=headers)
    problem_of(answer, 413, slug="request-too-large")


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
