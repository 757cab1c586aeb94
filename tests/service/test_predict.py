"""POST /v1/predict: bounds, limits, versions, clear errors, and files that fix their batch."""

import pytest
from fastapi.testclient import TestClient
from onnx import TensorProto, helper

import forerun
from forerun.service.http.app import create_app
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.settings import Settings
from tests.service.answered import content_of, problem_of
from tests.service.conftest import GRAPH


def ask(digest, **changes):
    workload = {"kind": "network", "graph": digest, "batch_size": 8, "precision": "fp16"}
    return {"workload": workload | changes.pop("workload", {}), "device": "l4"} | changes


def test_the_example_in_the_documentation_works(client):
    body = content_of(client.post("/v1/predict", json=EXAMPLE))
    assert body["metrics"]["latency_ms"]["unit"] == "ms"
    assert body["metrics"]["latency_ms"]["value"] >= body["roofline"]["latency_ms"]
    assert body["predictor"] == {"name": "chosen", "version": "test", "adapted_rows": 0}


def test_an_uploaded_graph_is_asked_by_its_digest(client, digest):
    body = client.post("/v1/predict", json=ask(digest)).json()
    assert body["graph"] == digest == GRAPH.digest
    assert body["device"] == {"name": "l4", "origin": "catalog"}
    assert sum(body["breakdown_ms"].values()) == pytest.approx(
        body["metrics"]["latency_ms"]["value"]
    )


def test_a_graph_can_be_sent_in_place(client, digest):
    inline = client.post("/v1/predict", json=ask(GRAPH.to_json())).json()
    assert inline["metrics"] == client.post("/v1/predict", json=ask(digest)).json()["metrics"]


def test_a_spec_sheet_can_be_sent_in_place(client, digest):
    sheet = client.get("/v1/devices/l4").json()
    sheet |= {"name": "my-l4", "origin": "registered"}
    by_sheet = client.post("/v1/predict", json=ask(digest, device=sheet)).json()
    by_name = client.post("/v1/predict", json=ask(digest)).json()
    assert by_sheet["metrics"] == by_name["metrics"]


def test_another_batch_size_is_another_question(client, digest):
    values = [
        client.post("/v1/predict", json=ask(digest, workload={"batch_size": b})).json()
        for b in (1, 4096)
    ]
    one, many = (v["metrics"]["latency_ms"]["value"] for v in values)
    assert one < many


def test_what_is_not_answered_is_null_with_a_reason(client, digest):
    body = client.post("/v1/predict", json=ask(digest, metrics=["power_w"])).json()
    assert body["metrics"] == {"power_w": None}
    assert "power_w" in body["missing"]["power_w"]


@pytest.mark.parametrize(
    ("changes", "status", "slug", "said"),
    [
        ({"device": "rtx 4091"}, 404, "unknown-device", "rtx-4090"),
        ({"workload": {"graph": "0" * 32}}, 404, "unknown-graph", "POST /v1/graphs"),
        ({"workload": {"graph": "../../etc/passwd"}}, 404, "unknown-graph", "No graph"),
        ({"workload": {"graph": {"format": "x"}}}, 422, "unreadable-model", "format"),
        ({"workload": {"batch_size": 0}}, 422, "bad-request", "batch_size"),
        ({"workload": {"precision": "fp17"}}, 422, "bad-request", "precision"),
        ({"metrics": ["speed"]}, 422, "unknown-metric", "latency_ms"),
        ({"colour": "red"}, 422, "bad-request", "colour"),
    ],
)
def test_a_wrong_question_says_what_where_and_how_to_mend_it(
    client, digest, changes, status, slug, said
):
    answer = client.post("/v1/predict", json=ask(digest, **changes))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == f"/problems/{slug}"
    assert said in problem["detail"]
    assert client.get(problem["type"]).status_code == 200


def test_a_batch_answers_in_order_with_a_problem_for_each_wrong_item(client, digest):
    items = [ask(digest), ask(digest, device="abacus"), {"device": "l4"}, ask(digest, device="t4")]
    answer = content_of(client.post("/v1/predict:batch", json={"items": items}))
    first, second, third, fourth = answer["items"]
    assert first["device"]["name"] == "l4"
    assert second["status"] == 404
    assert "workload" in third["detail"]
    assert fourth["device"]["name"] == "t4"


def test_a_batch_has_a_limit(client, digest):
    problem_of(client.post("/v1/predict:batch", json={"items": [ask(digest)] * 1001}), 422)


def test_one_call_reads_a_real_network_and_answers(client, light):
    content = (light / "light_squeezenet.onnx").read_bytes()
    answer = client.post(
        "/v1/predict/model", params={"device": "l4", "batch_size": 8}, content=content
    )
    body = content_of(answer)
    # SqueezeNet 1.1 (Iandola et al. 2016) does about 0.35 GMAC an image at 224 x 224.
    assert body["metrics"]["latency_ms"]["value"] > 8 * 2 * 0.3e9 / 30.3e12 * 1e3
    assert body["unknown_operators"] == {}
    assert set(body["breakdown_ms"]) >= {"conv", "pool"}


def test_a_precision_that_the_device_lacks_is_said(client, digest):
    body = client.post(
        "/v1/predict", json=ask(digest, device="p4", workload={"precision": "bf16"})
    ).json()
    assert "the spec sheet has no bf16 peak; its fp32 peak is used" in body["limits"]
    assert not body["metrics"]["latency_ms"]["in_domain"]


FIXED = 4096


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    weights = [
        helper.make_tensor("a", TensorProto.FLOAT, (64, 256), [0.01] * 64 * 256),
        helper.make_tensor("b", TensorProto.FLOAT, (256, 64), [0.01] * 64 * 256),
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["p"]),
        helper.make_node("Relu", ["p"], ["q"]),
        helper.make_node("MatMul", ["q", "b"], ["y"]),
    ]
    shape = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [FIXED, 64]) for n in "xy"]
    graph = helper.make_graph(nodes, "fixed", shape[:1], shape[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "fixed.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.fixture
def bundled(file):
    with TestClient(create_app(Settings.load())) as client:
        yield client


def sentences(answer):
    return answer["limits"]


def test_python_takes_the_batch_of_the_file(file):
    own = forerun.predict(file, device="l4")
    assert own.batch_size == FIXED
    assert own.latency_ms == forerun.predict(file, device="l4", batch_size=FIXED).latency_ms
    assert not any("fixes" in str(limit) for limit in own.limits)
    scaled = forerun.predict(file, device="l4", batch_size=1)
    assert scaled.batch_size == 1
    assert any(
        "the file fixes its first dimension at 4,096" in str(limit) for limit in scaled.limits
    )
    (compared,) = forerun.compare(file, device=["l4"]).answers
    assert compared.batch_size == FIXED


def test_http_takes_the_batch_of_the_file(file, bundled):
    content = file.read_bytes()
    own = bundled.post("/v1/predict/model?device=l4", content=content).json()
    same = bundled.post(f"/v1/predict/model?device=l4&batch_size={FIXED}", content=content).json()
    assert own["metrics"] == same["metrics"]
    digest = bundled.post("/v1/graphs", content=content).json()["digest"]
    asked = {"workload": {"kind": "network", "graph": digest}, "device": "l4"}
    assert bundled.post("/v1/predict", json=asked).json()["metrics"] == own["metrics"]
    asked["workload"]["batch_size"] = 1
    scaled = bundled.post("/v1/predict", json=asked).json()
    assert any("fixes its first dimension" in s for s in sentences(scaled))
