"""The Open Inference Protocol, version 2: its forms, and the answers of POST /v1/predict."""

import json

import pytest

from forerun import __version__
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK
from tests.service.answered import problem_of
from tests.service.conftest import linear_row

INFER = "/v2/models/forerun/infer"


def tensor(*questions, **changes):
    texts = [each if isinstance(each, str) else json.dumps(each) for each in questions]
    usual = {"name": "question", "datatype": "BYTES", "shape": [len(texts)], "data": texts}
    return {"inputs": [usual | changes]}


def outputs(answer):
    assert answer.status_code == 200, answer.text
    found = {one["name"]: one for one in answer.json()["outputs"]}
    for one in found.values():
        assert one["shape"] == [len(one["data"])]
    return {name: one["data"] for name, one in found.items()}


def test_the_server_is_described_and_says_that_it_is_ready(client):
    described = client.get("/v2").json()
    assert described == {"name": "forerun", "version": __version__, "extensions": []}
    assert client.get("/v2/health/live").json() == {"live": True}
    assert client.get("/v2/health/ready").json()["ready"] is True
    assert client.get("/v2/models/forerun/ready").json() == {"ready": True, "name": "forerun"}


def test_the_model_is_described_with_the_tensors_that_it_takes_and_gives(client):
    described = client.get("/v2/models/forerun").json()
    (version,) = described["versions"]
    assert described["inputs"] == [{"name": "question", "datatype": "BYTES", "shape": [-1]}]
    kinds = {one["name"]: one["datatype"] for one in described["outputs"]}
    assert kinds["answer"] == "BYTES"
    assert kinds["latency_ms"] == kinds["latency_ms_low"] == kinds["power_w_high"] == "FP64"
    assert client.get(f"/v2/models/forerun/versions/{version}").json() == described
    found = outputs(client.post(INFER, json=tensor(EXAMPLE)))
    assert set(found) == set(kinds)


def test_answers_are_those_of_predict(client):
    linear = {"workload": linear_row(64, None)["workload"], "device": "t4"}
    asked = [EXAMPLE, linear, EXAMPLE_NETWORK, linear]
    alone = [client.post("/v1/predict", json=each).json() for each in asked]
    found = outputs(client.post(INFER, json=tensor(*asked)))
    assert [json.loads(each) for each in found["answer"]] == alone
    for metric in ("latency_ms", "power_w"):
        for ending, field in (("", "value"), ("_low", "low"), ("_high", "high")):
            known = [each["metrics"].get(metric) or {} for each in alone]
            assert found[metric + ending] == [each.get(field) for each in known]
    assert any(found["latency_ms"])


def test_what_is_not_known_is_null(client):
    metric = {**EXAMPLE, "metrics": ["latency_ms"]}
    found = outputs(client.post(INFER, json=tensor(metric)))
    assert found["power_w"] == found["power_w_low"] == [None]


def test_only_the_outputs_that_are_asked_for_are_given_and_the_identifier_is_returned(client):
    body = tensor(EXAMPLE) | {"id": "one", "outputs": [{"name": "power_w"}, {"name": "answer"}]}
    answer = client.post(INFER, json=body)
    assert list(outputs(answer)) == ["power_w", "answer"]
    assert answer.json()["id"] == "one"
    assert answer.json()["model_name"] == "forerun"


def test_elements_may_be_nested_as_their_shape_is(client):
    texts = [json.dumps(EXAMPLE)] * 2
    flat = outputs(client.post(INFER, json=tensor(*texts)))
    for shape, data in (([2, 1], [[texts[0]], [texts[1]]]), ([1, 2], [texts]), ([2, 1], texts)):
        nested = client.post(INFER, json=tensor(shape=shape, data=data))
        assert outputs(nested) == flat


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "inputs"),
        ({"inputs": []}, "inputs"),
        (tensor(EXAMPLE, name="x"), "the one input is 'question'"),
        (tensor(EXAMPLE, datatype="FP32"), "BYTES, not 'FP32'"),
        (tensor(EXAMPLE, shape=[2]), "holds 2, not 1"),
        (tensor(shape=[0], data=[]), "0 questions"),
        (tensor("{"), "question 0: it is not valid JSON"),
        (tensor(shape=[1], data=[3]), "question 0: an element is a text"),
        (tensor(EXAMPLE, {**EXAMPLE, "device": "nonesuch"}), "question 1: No device named"),
        (tensor(EXAMPLE) | {"outputs": [{"name": "speed"}]}, "no output 'speed'"),
        (tensor(EXAMPLE, shape=[1] * 9), "shape"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_one_sentence_in_the_form_of_the_protocol(client, body, says):
    answer = client.post(INFER, json=body)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"] == answer.json()["detail"]
    assert says in answer.json()["error"]
    assert "\n" not in answer.json()["error"]


@pytest.mark.parametrize(
    "path",
    ["/v2/models/other", "/v2/models/other/ready", "/v2/models/forerun/versions/0/ready"],
)
def test_another_model_or_version_is_not_found(client, path):
    answer = problem_of(client.get(path), 404)
    assert "there is no" in answer["error"].lower()


def test_a_key_that_may_read_may_ask(client):
    from forerun.service.http.access import needed_scope

    for path in (INFER, "/v2/models/forerun/versions/1/infer"):
        assert needed_scope({"method": "POST", "path": path}) == "read"
    assert needed_scope({"method": "POST", "path": "/v2/other"}) == "write"


def test_a_client_of_triton_names_no_type_and_is_told_of_binary_tensors(client):
    content = json.dumps(tensor(EXAMPLE) | {"parameters": {"binary_data_output": True}})
    answer = client.post(INFER, content=content)
    assert outputs(answer) == outputs(client.post(INFER, json=tensor(EXAMPLE)))
    header = {"inference-header-content-length": str(len(content))}
    refused = problem_of(client.post(INFER, content=content + "x", headers=header), 422)
    assert "binary_data=False" in refused["error"]
    problem_of(client.post(INFER, content=content, headers={"content-type": "text/plain"}), 422)
