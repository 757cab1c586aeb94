"""Advice on nodes over HTTP, as a kube-scheduler asks for it."""

import pytest

from tests.service.http.kubernetes.requests import args, node, pod

RESNET = {"graph": "resnet50", "batch-size": "64", "precision": "amp"}
NODES = [
    node("h100", "NVIDIA-H100-80GB-HBM3"),
    node("t4", "Tesla-T4"),
    node("l4-a", "NVIDIA-L4"),
    node("l4-b", "NVIDIA-L4"),
    node("unknown", "NVIDIA-Z9000"),
    node("cpu"),
]


def asked(client, verb: str, request: dict):
    answer = client.post(f"/v1/kubernetes/{verb}", json=request)
    assert answer.status_code == 200, answer.text
    return answer.json()


def passing(result: dict) -> list[str]:
    return [one["metadata"]["name"] for one in result["Nodes"]["items"]]


def ranked(client, **more) -> dict[str, float]:
    """Device -> latency in milliseconds by POST /v1/rank."""
    workload = {"kind": "network", "graph": "resnet50", "batch_size": 64, "precision": "amp"}
    devices = ["h100-sxm-80gb", "t4", "l4"]
    answer = client.post("/v1/rank", json={"workload": workload, "devices": devices, **more})
    return {row["device"]["name"]: row["objective"]["value"] for row in answer.json()["ranked"]}


def test_scores_compare_each_device_with_the_best(adapting):
    scores = {
        row["Host"]: row["Score"] for row in asked(adapting, "prioritize", args(pod(RESNET), NODES))
    }
    latency = ranked(adapting)
    best = min(latency.values())
    assert scores["h100"] == 10
    assert scores["t4"] == round(10 * best / latency["t4"])
    assert scores["l4-a"] == scores["l4-b"] == round(10 * best / latency["l4"])
    assert scores["unknown"] == scores["cpu"] == 0


def test_what_is_maximised_scores_the_other_way_round(adapting):
    request = args(pod({**RESNET, "objective": "throughput_per_w"}), NODES)
    scores = {row["Host"]: row["Score"] for row in asked(adapting, "prioritize", request)}
    rates = ranked(adapting, objective="throughput_per_w")
    assert scores["t4"] == round(10 * rates["t4"] / max(rates.values()))
    assert max(scores.values()) == 10


def test_nodes_that_break_a_limit_fail_for_good_and_say_why(adapting):
    latency = ranked(adapting, risk="value")
    most = (latency["h100-sxm-80gb"] + latency["l4"]) / 2
    limits = {"max-latency-ms": str(most), "risk": "value"}
    result = asked(adapting, "filter", args(pod({**RESNET, **limits}), NODES))
    assert passing(result) == ["h100", "unknown", "cpu"]
    assert result["FailedNodes"] == {}
    reasons = result["FailedAndUnresolvableNodes"]
    assert set(reasons) == {"t4", "l4-a", "l4-b"}
    assert "latency_ms" in reasons["t4"]


def test_a_slice_too_small_for_the_network_fails(adapting):
    large = {**RESNET, "batch-size": "2048"}
    nodes = [node("whole", "NVIDIA-H100-80GB-HBM3")]
    whole = asked(adapting, "filter", args(pod(large, {"nvidia.com/gpu": "1"}), nodes))
    part = asked(adapting, "filter", args(pod(large, {"nvidia.com/mig-1g.10gb": "1"}), nodes))
    assert passing(whole) == ["whole"]
    assert "does not fit" in part["FailedAndUnresolvableNodes"]["whole"]


def test_what_is_not_known_keeps_no_pod_from_a_node(adapting):
    nodes = [node("slice", "NVIDIA-H100-80GB-HBM3-MIG-7g.80gb")]
    request = args(pod({**RESNET, "max-power-w": "1"}), nodes)
    assert passing(asked(adapting, "filter", request)) == ["slice"]
    assert asked(adapting, "prioritize", request) == [{"Host": "slice", "Score": 0}]


@pytest.mark.parametrize(
    "annotations", [{}, {"graph": "no-such-network"}, {"graph": "resnet50", "batch-size": "-1"}]
)
def test_a_pod_that_asks_nothing_or_nonsense_may_run_anywhere(adapting, annotations):
    request = args(pod(annotations), NODES)
    assert passing(asked(adapting, "filter", request)) == [one["metadata"]["name"] for one in NODES]
    assert {row["Score"] for row in asked(adapting, "prioritize", request)} == {0}


def test_programs_are_kept_from_nodes_where_one_would_be_slowed_too_much(adapting):
    alone = node("idle", residents="[]")
    crowded = node("crowded", residents='[{"name": "a", "threads": 64}]')
    request = args(pod({"program": "b", "min-relative-speed": "0.6"}), [alone, crowded, node("c")])
    result = asked(adapting, "filter", request)
    assert passing(result) == ["idle", "c"]
    assert "the least is 0.6" in result["FailedNodes"]["crowded"]
    scores = {row["Host"]: row["Score"] for row in asked(adapting, "prioritize", request)}
    assert scores["idle"] == 10
    assert scores["crowded"] < 6
    assert scores["c"] == 0


def test_device_and_neighbours_both_count(adapting):
    crowded = node("crowded", "NVIDIA-H100-80GB-HBM3", residents='[{"name": "a", "threads": 3}]')
    request = args(pod({**RESNET, "program": "b"}), [NODES[0], crowded])
    scores = {row["Host"]: row["Score"] for row in asked(adapting, "prioritize", request)}
    assert scores["h100"] == 10
    assert 0 < scores["crowded"] < 10


def test_a_body_that_is_no_request_is_a_problem(adapting):
    answer = adapting.post("/v1/kubernetes/filter", content=b'{"Pod": {}}')
    assert answer.status_code == 422
    assert "metadata" in answer.json()["detail"]


def test_requests_are_counted_by_the_routes_that_alerts_name(adapting):
    asked(adapting, "filter", args(pod({}), NODES))
    text = adapting.get("/metrics").text
    assert 'forerun_request_seconds_bucket{le="0.5",route="/v1/kubernetes/filter"}' in text
