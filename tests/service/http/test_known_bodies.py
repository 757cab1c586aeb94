"""Answers: kept by content and by bytes, as long as nothing changed, and never no number."""

import json
from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest
from fastapi.testclient import TestClient

from forerun.models.baselines.roofline import Roofline
from forerun.models.limit import LATENCY, POWER, Limit
from forerun.service.adaptation.predictor_in_use import Adaptation
from forerun.service.http import app as service
from forerun.service.http.answers import LARGEST_BYTES, Answers
from forerun.service.http.limits import ON_THE_LOOP_BYTES
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, PredictIn
from forerun.service.schemas.serving import EXAMPLE_DEPLOYMENT, LlmEstimateIn
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.places import Place
from tests.service.answered import problem_of
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


def test_a_deleted_device_or_graph_is_unknown_at_once(client, digest):
    client.put("/v1/devices/my-card", json=SHEET)
    for kind, path, asked in (
        ("device", "/v1/devices/my-card", EXAMPLE | {"device": "my-card"}),
        ("graph", f"/v1/graphs/{digest}", about(digest)),
    ):
        content = known(client, asked)
        assert client.delete(path).status_code == 204
        problem_of(send(client, content), 404, slug=f"unknown-{kind}")


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
    assert bodies.answer(kept) is not None
    assert bodies.answer(long) is bodies.answer(longer) is None


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"workload": 3}', b"\xff", b"[" * 99])
def test_what_is_no_request_gets_the_problem_of_every_other_route(client, content):
    answer, other = (
        client.post(path, content=content, headers=JSON) for path in ("/v1/predict", "/v1/rank")
    )
    assert answer.status_code == other.status_code
    assert answer.json()["type"] == other.json()["type"]


def test_one_process_asks_usual_questions_as_it_starts_and_the_rest_once_it_answers(
    settings, roofline_folder, monkeypatch
):
    asked = []

    def noted(answers, questions):
        asked.append([(own["device"], own["workload"].get("precision")) for own in questions])

    monkeypatch.setattr(service, "_ask", noted)
    app = service.loaded_app(settings.model_copy(update={"predictor_folder": roofline_folder}))
    assert asked[-1] == [("l4", "amp"), (service.MEASURED, "amp")]
    with TestClient(app) as client:
        assert client.get("/readyz").status_code == 200
        eventually(lambda: asked[-1] == [("l4", "fp32")])


@pytest.fixture
def answers(tmp_path, loaded):
    devices, graphs = (
        DeviceStore(Place(tmp_path) / "devices"),
        GraphStore(Place(tmp_path) / "graphs", 10),
    )
    adaptation = Adaptation(loaded, Place(tmp_path) / "measurements", devices, graphs.get, 10)
    return Answers(adaptation, devices, graphs, kept=3)


def about_network(**changes):
    return PredictIn.model_validate(EXAMPLE_NETWORK | changes)


def test_equal_content_is_one_question_however_it_was_named(answers):
    by_name = answers.question(about_network())
    sheet = answers.devices.get("rtx-4090")
    digest = answers.graphs.put(by_name.query.workload.graph)
    workload = EXAMPLE_NETWORK["workload"] | {"graph": digest}
    by_content = answers.question(about_network(device=sheet.model_dump(), workload=workload))
    assert by_content.key == by_name.key
    assert by_name.key != answers.question(about_network(device="l4")).key
    assert by_name.key != answers.question(about_network(metrics=["latency_ms"])).key
    kernel = answers.question(PredictIn.model_validate(EXAMPLE))
    assert kernel.key != by_name.key


def test_a_sheet_that_differs_in_one_figure_is_another_question(answers):
    sheet = answers.devices.get("rtx-4090").model_dump()
    more = sheet | {"l2_mib": sheet["l2_mib"] + 1}
    one, other = (answers.question(about_network(device=given)).key for given in (sheet, more))
    assert one != other


def test_the_longest_unused_answer_leaves_first(answers):
    questions = [
        answers.question(about_network(device=name)) for name in ("l4", "t4", "a30", "a40")
    ]
    for question in questions[:3]:
        answers.predict(question)
    assert answers.before(questions[0]) is not None
    answers.predict(questions[3])
    assert [answers.before(q) is None for q in questions] == [False, True, False, False]


def test_another_predictor_answers_from_the_next_question_on(answers, loaded):
    question = answers.question(about_network())
    first = json.loads(answers.predict(question))
    answers.swap(replace(loaded, version="next"))
    assert answers.before(question) is None
    second = json.loads(answers.predict(question))
    assert (first["predictor"]["version"], second["predictor"]["version"]) == ("test", "next")


def test_an_answer_begun_before_an_exchange_is_not_given_after_it(answers, loaded):
    """It is kept under the predictor that made it."""
    begun, exchanged = Event(), Event()

    class Slow(Roofline):
        def predict(self, queries):
            begun.set()
            assert exchanged.wait(10)
            return super().predict(queries)

    answers.swap(replace(loaded, predictor=Slow(), version="slow"))
    question = answers.question(about_network())
    worker = Thread(target=lambda: answers.predict(question))
    worker.start()
    assert begun.wait(10)
    answers.swap(replace(loaded, version="next"))
    exchanged.set()
    worker.join()
    assert answers.before(question) is None


def test_an_unknown_operator_alone_is_counted_too(answers):
    operator = EXAMPLE["workload"]["operator"] | {"kind": "unknown", "name": "mystery"}
    asked = EXAMPLE | {"workload": EXAMPLE["workload"] | {"operator": operator}}
    answer = json.loads(answers.predict(answers.question(PredictIn.model_validate(asked))))
    assert answer["unknown_operators"] == {"mystery": 1}
    assert not answer["in_domain"]
    assert "unknown" in answer["limits"][0]


def test_only_limits_of_the_requested_metrics_are_returned(answers, loaded):
    class Limited(Roofline):
        def predict(self, queries):
            batch = Limit("", LATENCY, feature="batch", value=9.0, low=1.0, high=2.0)
            limits = [(batch, Limit("not measured", POWER))]
            return replace(super().predict(queries), values={LATENCY: np.ones(1)}, limits=limits)

    answers.swap(replace(loaded, predictor=Limited()))
    answer = json.loads(answers.predict(answers.question(about_network())))
    assert answer["limits"] == ["batch is 9; the training set has 1 to 2"]
    (detail,) = answer["limit_details"]
    assert detail == {
        "metric": "latency_ms",
        "severity": "outside",
        "message": "batch is 9; the training set has 1 to 2",
        "feature": "batch",
        "value": 9.0,
        "low": 1.0,
        "high": 2.0,
    }
    assert answer["in_domain"] is False
    assert answer["metrics"]["latency_ms"]["in_domain"] is False


def test_what_was_estimated_is_kept_for_one_predictor(answers, loaded):
    request = EXAMPLE_DEPLOYMENT | {"device": answers.devices.get("l4")}
    asked = [LlmEstimateIn.model_validate(request)]
    questions = [answers.question(about_network())]
    (first,), (served,) = answers.predicted(questions), answers.served(asked)
    assert answers.predicted(questions)[0] is first
    assert answers.served(asked)[0] is served
    answers.swap(replace(loaded, version="next"))
    assert answers.predicted(questions)[0].predictor.version == "next"
    assert answers.served(asked)[0].predictor.version == "next"
