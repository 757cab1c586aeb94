"""Bodies and parameters: values of the standard library, within bounds, misspelt names refused."""

import asyncio
import json
import time
from contextlib import asynccontextmanager
from threading import Event

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.exceptions import HTTPException

from forerun.service.http.app import create_app
from forerun.service.http.limits import (
    MOST_DEPTH,
    MOST_KEYS,
    MOST_VALUES,
    ON_THE_LOOP_BYTES,
    parsed,
)
from forerun.service.problems import WrongField
from forerun.service.schemas.colocation import MOST_METRICS, MOST_SECONDS
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.settings import Settings
from tests.coroutines import run
from tests.service.answered import problem_of

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=40
)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_values_are_those_of_the_standard_library(value, ascii_only, indent):
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert parsed(text.encode("utf-8", "surrogatepass")) == value


@pytest.mark.parametrize("many", ["", "[],"])
def test_a_mistake_is_located_in_the_text(many):
    text = f"[{many * MOST_DEPTH}{json.dumps([[n, n] for n in range(9)])[:-1].replace('7', '7x')}"
    with pytest.raises(json.JSONDecodeError) as located:
        parsed(text.encode())
    with pytest.raises(json.JSONDecodeError) as known:
        json.loads(text)
    assert located.value.pos == known.value.pos


def test_nesting_is_bounded_outside_of_strings():
    deepest = b"[" * MOST_DEPTH + b"]" * MOST_DEPTH
    assert parsed(deepest) == json.loads(deepest)
    object_around = b'{"a": ' + deepest + b"}"
    for inner in (deepest, rb'"\"", ' + deepest, b'"[", ' + deepest, object_around):
        with pytest.raises(HTTPException, match="deeper than 64"):
            parsed(b"[" + inner + b"]")
    for text in ("[" * 1000, "\\" + '"[{' * 1000):
        assert parsed(json.dumps(text).encode()) == text


def test_values_and_keys_are_bounded():
    with pytest.raises(HTTPException, match="values"):
        parsed(b"[" + b"0," * (MOST_VALUES + 1) + b"0]")
    commas = "," * (MOST_VALUES + 1)
    assert parsed(json.dumps(commas).encode()) == commas
    keys = {str(n): 0 for n in range(MOST_KEYS + 1)}
    with pytest.raises(HTTPException, match="keys"):
        parsed(json.dumps(keys).encode())


@pytest.mark.parametrize("content", [b'["\xff"]', b"[" + b"1" * 5000 + b"]", b'["a', b"[1,]"])
def test_what_python_cannot_read_is_refused(content):
    with pytest.raises((json.JSONDecodeError, HTTPException)):
        parsed(content)


@pytest.mark.parametrize("fields", [0, 2_000])
def test_a_field_with_two_values_is_refused_and_one_that_is_repeated_is_not(fields):
    between = b"".join(b'"k%d": {"x": [1, 2]}, ' % number for number in range(fields))
    same = b'{"a": {"n": 1}, %s"b": {"a": 2}, "a": {"n": 1}}' % between
    assert parsed(same) == json.loads(same)
    load = b'{"concurrency": 8, %s"concurrency": 9}' % between
    for content, place in (
        (load, ()),
        (b'{"load": %s}' % load, ("load",)),
        (b'[0, {"loads": [%s]}]' % load, (1, "loads", 0)),
        (b'[0, {%s"loads": [1, 2, %s]}]' % (between, load), (1, "loads", 2)),
    ):
        with pytest.raises(WrongField, match="given several times, as 8 and 9") as raised:
            parsed(content)
        assert raised.value.status_code == 400
        assert raised.value.field == (*place, "concurrency")


def test_an_object_that_a_second_value_hides_is_refused_by_the_field_that_hides_it():
    """The values are equal by their last fields."""
    content = b'{"load": {"n": 1, "n": 2}, "load": {"n": 2}, "end": 0}'
    with pytest.raises(WrongField) as raised:
        parsed(content)
    assert raised.value.field[0] == "load"


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/v1/predict/model", "device=l4&batchsize=8", "Did you mean batch_size?"),
        ("/v1/predict/model", "devcie=l4", "Did you mean device?"),
        ("/v1/predict/model", "device=l4&precison=amp", "Did you mean precision?"),
        ("/v1/predict", "device=l4", "takes none"),
    ],
)
def test_a_parameter_that_nobody_reads_is_refused(client, path, query, said):
    problem_of(client.post(f"{path}?{query}", json={}), 422, said, slug="unknown-parameter")


def test_a_parameter_of_a_list_is_refused_too(client):
    assert client.get("/v1/devices?kind=gpu").status_code == 200
    assert client.get("/v1/devices?king=gpu").json()["did_you_mean"] == ["kind"]
    assert client.get("/?from=elsewhere").status_code == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("device=l4&device=t4", "device takes one value and has 2: 'l4', 't4'"),
        ("device=l4&batch_size=8&batch_size=16", "batch_size takes one value and has 2: '8', '16'"),
    ],
)
def test_a_parameter_that_is_given_twice_is_refused_with_both_values(client, query, said):
    problem_of(client.post(f"/v1/predict/model?{query}", content=b""), 422, said)


def test_a_parameter_that_takes_several_values_may_be_repeated(client):
    assert client.get("/v1/leaderboard?dataset=hlsyn&dataset=neusight").status_code == 200


def test_several_devices_in_one_parameter_are_refused_with_what_a_file_allows(client):
    answer = client.post("/v1/predict/model?device=l4,t4", content=b"")
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (404, "/problems/unknown-device")
    assert problem["did_you_mean"] == ["l4", "t4"]
    assert "send this request once for each device" in problem["detail"]
    assert "as an item to POST /v1/predict:batch" in problem["detail"]
    assert "a request to :batch" not in problem["detail"]


JSON = {"Content-Type": "application/json", "X-Request-ID": "one"}


def padded(content: dict) -> bytes:
    return json.dumps(content).encode() + b" " * ON_THE_LOOP_BYTES


@asynccontextmanager
async def asynchronous(app):
    """A client in the event loop of an application."""
    transport = httpx.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://x", timeout=600) as client,
    ):
        yield client


def test_a_large_body_gets_the_answer_and_the_problems_of_a_small_one(client):
    wrong = EXAMPLE | {"device": "no such device"}
    for content in (EXAMPLE, wrong, {}, EXAMPLE | {"workload": 3}):
        small = client.post("/v1/predict", json=content, headers=JSON)
        large = client.post("/v1/predict", content=padded(content), headers=JSON)
        assert (large.status_code, large.json()) == (small.status_code, small.json())


def test_large_measurements_wait_for_the_lane_of_adaptations_only(client):
    answer = client.post(
        "/v1/devices/l4/measurements", content=padded({"measurements": [{}]}), headers=JSON
    )
    assert answer.status_code == 422


def test_a_large_body_is_answered_while_another_is_held(tmp_path, loaded):
    """One upload that takes long keeps no other from its answer."""
    app, begun, release = create_app(Settings(home=tmp_path), loaded), Event(), Event()

    def held():
        begun.set()
        return release.wait(60)

    async def main():
        async with asynchronous(app) as client:
            first = asyncio.ensure_future(app.state.forerun.upload(held))
            await asyncio.to_thread(begun.wait, 60)
            second = client.post("/v1/predict", content=padded(EXAMPLE), headers=JSON)
            answer = await asyncio.wait_for(second, 60)
            waited = not first.done()
            release.set()
            return answer.status_code, waited, await first

    assert run(main()) == (200, True, True)


def window_of(number: str) -> bytes:
    """A co-location request with the longest host window, about 14 MiB."""
    metrics = [f"metric {number}" for number in range(MOST_METRICS)]
    second = "[" + ",".join([number] * MOST_METRICS) + "]"
    window = (
        f'{{"metrics": {json.dumps(metrics)}, "seconds": [{",".join([second] * MOST_SECONDS)}]}}'
    )
    return f'{{"candidate": {{"name": "p"}}, "host": {{"window": {window}}}}}'.encode()


@pytest.mark.slow
@pytest.mark.parametrize("number", ["1.2345678", '"letters"'])
def test_other_requests_wait_for_a_small_part_of_the_work_on_a_large_body(tmp_path, loaded, number):
    """The longest time for which the event loop runs nothing else, as a share of the work.

    Both are CPU time of this process, so that other processes do not matter.
    """
    content = window_of(number)
    assert len(content) > 13 * 2**20
    whole_s, longest_s = run(_times(create_app(Settings(home=tmp_path), loaded), content))
    assert longest_s < 0.7 * whole_s  # in one piece, it is all of it


async def _times(app, content):
    longest_s = 0.0

    async def tick():
        nonlocal longest_s
        while True:
            start = time.process_time()
            await asyncio.sleep(0.001)
            longest_s = max(longest_s, time.process_time() - start)

    async with asynchronous(app) as client:
        ticking = asyncio.ensure_future(tick())
        start = time.process_time()
        answer = await client.post("/v1/colocation", content=content, headers=JSON)
        whole_s = time.process_time() - start
        ticking.cancel()
    assert answer.status_code == 422
    return whole_s, longest_s
