"""Measurements over HTTP: kept, learnt from, rolled back; wrong ones refused by row."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.app import create_app
from tests.service.conftest import GRAPH, linear_row

PATH = "/v1/devices/l4/measurements"


def asked(rows=777, device="l4"):
    return {"workload": linear_row(rows, None)["workload"], "device": device}


def value(client, **about):
    answer = client.post("/v1/predict", json=asked(**about))
    assert answer.status_code == 200, answer.text
    return answer.json()["metrics"]["latency_ms"]["value"]


def twice(client, sizes=range(64, 1344, 64), factor=2.0):
    return {"measurements": [linear_row(n, factor * value(client, rows=n)) for n in sizes]}


def test_a_device_is_adapted_from_then_on_and_others_are_not(adapting):
    before, other = value(adapting), value(adapting, device="t4")
    first = adapting.post("/v1/predict", json=asked()).json()["predictor"]
    assert first["adapted_rows"] == 0
    answer = adapting.post(PATH, json=twice(adapting))
    assert answer.status_code == 201, answer.text
    learnt = answer.json()
    assert (learnt["rows"], learnt["rows_in_use"], learnt["device"]) == (20, 20, "l4")
    error = learnt["errors"]["latency_ms"]
    assert error["mape_before"] == pytest.approx(50, abs=0.1)
    assert error["mape_after"] < 10
    assert 1.5 * before < value(adapting) < 2.1 * before
    assert value(adapting, device="t4") == other
    after = adapting.post("/v1/predict", json=asked()).json()["predictor"]
    assert after["version"] == learnt["version"] != first["version"]
    assert after["adapted_rows"] == 20
    assert adapting.get("/v1/models").json()["models"][0]["version"] == learnt["version"]


def test_a_rollback_gives_the_very_answer_back(adapting):
    before = adapting.post("/v1/predict", json=asked()).content
    made = adapting.post(PATH, json=twice(adapting)).json()
    assert adapting.post("/v1/predict", json=asked()).content != before
    undone = adapting.delete(f"{PATH}/{made['set']}")
    assert undone.status_code == 200
    assert undone.json()["undone"] is True
    assert adapting.post("/v1/predict", json=asked()).content == before
    assert adapting.delete(f"{PATH}/{made['set']}").status_code == 200, "twice is once"
    listed = adapting.get(PATH).json()
    assert [(s["set"], s["rows"], s["undone"]) for s in listed["sets"]] == [(made["set"], 20, True)]


def test_a_restart_loses_nothing(adapting, settings, trained):
    adapting.post(PATH, json=twice(adapting))
    answer = adapting.post("/v1/predict", json=asked()).content
    with TestClient(create_app(settings, trained)) as restarted:
        assert restarted.post("/v1/predict", json=asked()).content == answer


def test_twenty_networks_at_once_are_scored_in_both_metrics(adapting, light):
    models = [light / f"light_{name}.onnx" for name in ("squeezenet", "resnet50", "shufflenet")]
    digests = [
        adapting.post("/v1/graphs", content=model.read_bytes()).json()["digest"] for model in models
    ]
    chance = random.Random(0)
    rows = [
        {
            "workload": {"kind": "network", "graph": digests[n % 3], "batch_size": n + 1},
            "software": {"runtime": "compiled"},
            "metrics": {"latency_ms": 5.0 * chance.lognormvariate(0, 0.5), "power_w": 60.0},
        }
        for n in range(20)
    ]
    answer = adapting.post(PATH, json={"measurements": rows})
    assert answer.status_code == 201, answer.text
    assert set(answer.json()["errors"]) == {"latency_ms", "power_w"}


def test_posts_at_once_keep_all_rows_and_answers_go_on(adapting):
    bodies = [twice(adapting, sizes=range(n, n + 3)) for n in range(10, 60, 10)]
    with ThreadPoolExecutor(10) as many:
        posts = [many.submit(adapting.post, PATH, json=body) for body in bodies]
        questions = [many.submit(value, adapting, rows=n) for n in range(700, 720)]
        made = [post.result() for post in posts]
        assert all(question.result() > 0 for question in questions)
    assert [answer.status_code for answer in made] == [201] * 5
    listed = adapting.get(PATH).json()["sets"]
    assert {s["set"] for s in listed} == {answer.json()["set"] for answer in made}
    answer = adapting.post("/v1/predict", json=asked()).json()
    assert answer["predictor"]["adapted_rows"] == 15


def test_a_registered_device_is_adapted_and_an_unknown_one_is_not(adapting):
    sheet = {"name": "my-card", "vendor": "me", "kind": "gpu"}
    sheet |= {"memory_bandwidth_gbs": 900, "peak_tflops": {"fp32": 40}}
    body = {"measurements": [linear_row(64, 0.05)]}
    missing = adapting.post("/v1/devices/my-card/measurements", json=body)
    assert missing.status_code == 404
    near = adapting.post("/v1/devices/rtx-4091/measurements", json=body).json()
    assert "rtx-4090" in near["did_you_mean"]
    adapting.put("/v1/devices/my-card", json=sheet)
    made = adapting.post("/v1/devices/my-card/measurements", json=body)
    assert made.status_code == 201
    assert made.json()["errors"]["latency_ms"]["mape_after"] is None


def test_a_black_box_says_what_it_lacks(adapting):
    box = {"name": "black-box", "vendor": "me", "kind": "gpu"}
    assert adapting.put("/v1/devices/black-box", json=box).status_code == 200
    network = {"kind": "network", "graph": GRAPH.to_json()}
    body = {"measurements": [{"workload": network, "metrics": {"peak_memory_mib": 900.0}}]}
    refused = adapting.post("/v1/devices/black-box/measurements", json=body)
    assert refused.status_code == 422
    assert "memory_bandwidth_gbs" in refused.json()["detail"]
    assert adapting.get("/v1/devices/black-box/measurements").json()["sets"] == []


def test_a_black_box_is_no_fault_once_the_memory_of_another_device_is_known(adapting):
    network = {"kind": "network", "graph": GRAPH.to_json()}
    body = {"measurements": [{"workload": network, "metrics": {"peak_memory_mib": 900.0}}]}
    assert adapting.post(PATH, json=body).status_code == 201
    box = {"name": "black-box", "vendor": "me", "kind": "gpu"}
    body = adapting.post("/v1/predict", json={"workload": network, "device": box}).json()
    assert body["metrics"]["latency_ms"] is None
    assert "no spec sheet" in body["missing"]["latency_ms"]
    assert body["metrics"]["peak_memory_mib"]["value"] > 0
    assert body["fits"] is None, "its memory is not known"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": {"latency_ms": 0}}, "measurements.1.metrics.latency_ms is 0 ms"),
        ({"metrics": {"latency_ms": -1}}, "measurements.1.metrics.latency_ms is -1 ms"),
        ({"metrics": {"speed": 1}}, "measurements.1.metrics: No metric 'speed'"),
        ({"metrics": {}}, "measurements.1: nothing was measured"),
        ({"metrics": {"latency_ms": "fast"}}, "measurements.1.metrics.latency_ms"),
        ({"metrics": {"latency_ms": 1e30}}, "check the unit"),
        ({"workload": {"kind": "network", "graph": "0" * 32}}, "measurements.1: No graph"),
        ({"workload": {"kind": "poem"}}, "measurements.1.workload"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_kept(adapting, change, said):
    body = {"measurements": [linear_row(64, 0.05), linear_row(65, 0.05) | change]}
    refused = adapting.post(PATH, json=body)
    assert refused.status_code in (404, 422)
    assert said in refused.json()["detail"]
    assert adapting.get(PATH).json()["sets"] == []


def test_not_a_number_is_refused(adapting):
    body = '{"measurements": [{"workload": %s, "metrics": {"latency_ms": NaN}}]}'
    text = body % json.dumps(linear_row(64, None)["workload"])
    refused = adapting.post(PATH, content=text, headers={"Content-Type": "application/json"})
    assert refused.status_code == 422
    assert "latency_ms is nan" in refused.json()["detail"]


def test_there_is_a_most_and_a_least(adapting):
    assert adapting.post(PATH, json={"measurements": []}).status_code == 422
    many = {"measurements": [linear_row(64, 0.05)] * 1001}
    assert adapting.post(PATH, json=many).status_code == 422


def test_an_unknown_set_is_not_rolled_back(adapting):
    refused = adapting.delete(f"{PATH}/nothing")
    assert refused.status_code == 404
    assert refused.json()["type"] == "/problems/unknown-set"
