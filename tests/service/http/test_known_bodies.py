"""Answers by the bytes of a request: they are given as long as nothing changed."""

import json
from dataclasses import replace

import pytest

from forerun.service.http.answers import LARGEST_BYTES
from forerun.service.http.limits import ON_THE_LOOP_BYTES
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, PredictIn
from tests.service.conftest import GRAPH, linear_row
from tests.service.test_devices import SHEET
from tests.service.test_measurements import twice
from tests.waiting import eventually

JSON = {"Content-Type": "application/json"}


def about(digest: str) -> dict:
    return EXAMPLE_NETWORK | {"workload": EXAMPLE_NETWORK["workload"] | {"graph": digest}}


def answers_of(client):
    return client.app.state.forerun.answers


def send(client, content: bytes, **headers: str):
    return client.post("/v1/predict", content=content, headers=JSON | headers)


def known(client, asked: dict) -> bytes:
    """The bytes of a request that was sent until its answer is known by them."""
    content = json.dumps(asked).encode()

    def is_known() -> bool:
        assert send(client, content).status_code == 200
        return answers_of(client).bodies.answer(content) is not None

    # Right after a change of a store, nothing of it counts as unchanged.
    eventually(is_known, every_s=0.02)
    return content


def latency(answer) -> float:
    return answer.json()["metrics"]["latency_ms"]["value"]


@pytest.fixture
def unread(monkeypatch):
    """Make every request fail that is parsed."""

    def fail(content):
        raise AssertionError("the request was parsed")

    return lambda: monkeypatch.setattr(PredictIn, "model_validate", fail)


@pytest.mark.parametrize("of_network", [False, True])
def test_the_same_bytes_are_answered_alike_without_being_parsed(client, digest, unread, of_network):
    asked = about(digest) if of_network else EXAMPLE
    first = client.post("/v1/predict", json=asked)
    content = known(client, asked)
    counted = client.app.state.forerun.telemetry.known
    before = counted._value.get()
    unread()
    again = send(client, content)
    assert (again.status_code, again.content) == (first.status_code, first.content)
    assert {**again.headers, "x-request-id": ""} == {**first.headers, "x-request-id": ""}
    assert counted._value.get() == before + 1


def test_a_device_that_is_registered_anew_is_answered_by_its_new_sheet(client):
    client.put("/v1/devices/my-card", json=SHEET)
    content = known(client, EXAMPLE | {"device": "my-card"})
    before = latency(send(client, content))
    faster = SHEET | {"peak_tflops": {"fp32": 80}, "memory_bandwidth_gbs": 1800}
    client.put("/v1/devices/my-card", json=faster)
    assert latency(send(client, content)) == pytest.approx(before / 2)
    known(client, EXAMPLE | {"device": "my-card"})
    assert latency(send(client, content)) == pytest.approx(before / 2)


def test_a_deleted_device_is_unknown_at_once(client):
    client.put("/v1/devices/my-card", json=SHEET)
    content = known(client, EXAMPLE | {"device": "my-card"})
    assert client.delete("/v1/devices/my-card").status_code == 204
    assert send(client, content).json()["type"].endswith("unknown-device")


def test_a_deleted_graph_is_unknown_at_once(client, digest):
    content = known(client, about(digest))
    assert client.delete(f"/v1/graphs/{digest}").status_code == 204
    assert send(client, content).json()["type"].endswith("unknown-graph")


def test_a_graph_of_the_same_digest_that_was_read_in_another_way_is_answered_anew(client, digest):
    content = known(client, about(digest))
    answers_of(client).graphs.put(replace(GRAPH, assumptions=("the last layer was guessed",)))
    assert "the last layer was guessed" in " ".join(send(client, content).json()["limits"])


def test_measurements_change_the_answer_at_once_and_so_does_their_rollback(adapting):
    asked = linear_row(512, None)["workload"]
    content = known(adapting, {"workload": asked, "device": "l4"})
    before = send(adapting, content)
    measured = twice(adapting, sizes=range(64, 704, 64))
    made = adapting.post("/v1/devices/l4/measurements", json=measured).json()
    after = send(adapting, content).json()["predictor"]
    assert (after["version"], after["adapted_rows"]) == (made["version"], 10)
    known(adapting, {"workload": asked, "device": "l4"})
    adapting.delete(f"/v1/devices/l4/measurements/{made['set']}")
    assert send(adapting, content).content == before.content


def test_another_predictor_answers_what_was_known_before(client, loaded):
    content = known(client, EXAMPLE)
    answers_of(client).swap(replace(loaded, version="next"))
    assert send(client, content).json()["predictor"]["version"] == "next"


def test_known_bytes_of_another_type_or_path_are_no_known_request(client):
    content = known(client, EXAMPLE)
    assert send(client, content, **{"Content-Type": "text/plain"}).status_code == 422
    strange = client.post("/v1/predict?batch=3", content=content, headers=JSON)
    assert strange.json()["type"].endswith("unknown-parameter")


def test_long_requests_are_answered_and_not_kept(client):
    content = json.dumps(EXAMPLE).encode()
    kept, long = (content + b" " * (size - len(content)) for size in (LARGEST_BYTES, 5_000))
    longer = content + b" " * ON_THE_LOOP_BYTES
    for each in (kept, long, longer):
        assert [send(client, each).status_code for _ in range(3)] == [200] * 3
    bodies = answers_of(client).bodies
    assert [bodies.answer(each) is not None for each in (kept, long, longer)] == [
        True,
        False,
        False,
    ]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"workload": 3}', b"\xff", b"[" * 99])
def test_what_is_no_request_gets_the_problem_of_every_other_route(client, content):
    answer, other = (
        client.post(path, content=content, headers=JSON) for path in ("/v1/predict", "/v1/rank")
    )
    assert answer.status_code == other.status_code
    assert answer.json()["type"] == other.json()["type"]
