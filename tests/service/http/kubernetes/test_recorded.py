"""Requests that a kube-scheduler sent, and the types of the answers that it decodes.

They were recorded from kube-scheduler 1.20.2, as `test_real_scheduler` runs it; the Go types of
`k8s.io/kube-scheduler/extender/v1` are the same in later versions.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import BadRequest
from forerun.service.http.kubernetes.extender import ExtenderArgs, filter_result
from tests.service.http.kubernetes.requests import args, names, node, pod

RECORDED = Path(__file__).parent / "recorded"
FORMS = ("nodes", "names")


def recorded(verb: str, form: str) -> dict[str, Any]:
    return json.loads((RECORDED / f"{verb}-{form}.json").read_text())


def answer(client, verb: str, request: dict[str, Any]) -> Any:
    response = client.post(f"/v1/kubernetes/{verb}", json=request)
    assert response.status_code == 200, response.text
    assert response.headers["Content-Type"] == "application/json"
    return response.json()


def test_a_filter_answers_whole_nodes_with_all_fields_of_the_go_type(adapting):
    request = recorded("filter", "nodes")
    result = answer(adapting, "filter", request)
    by_name = {one["metadata"]["name"]: one for one in request["Nodes"]["items"]}
    assert result["NodeNames"] is None
    assert result["Nodes"]["metadata"] == request["Nodes"]["metadata"]
    assert result["Nodes"]["items"] == [by_name["medium"], by_name["small"]]
    check_rest(result)


def test_a_filter_by_names_answers_names_alone(adapting):
    request = {**recorded("filter", "names"), "NodeNames": ["medium", "small"]}
    result = answer(adapting, "filter", request)
    assert (result["Nodes"], result["NodeNames"]) == (None, ["medium", "small"])
    assert result["FailedAndUnresolvableNodes"] == {}


def check_rest(result: dict[str, Any]) -> None:
    """Names and types of the fields of `ExtenderFilterResult` other than the nodes that pass."""
    assert set(result) == {
        "Nodes",
        "NodeNames",
        "FailedNodes",
        "FailedAndUnresolvableNodes",
        "Error",
    }
    assert result["Error"] == ""
    assert result["FailedNodes"] == {}
    (failed,) = result["FailedAndUnresolvableNodes"].items()
    assert failed[0] == "large"
    assert "power_w" in failed[1]


@pytest.mark.parametrize("form", FORMS)
def test_scores_are_whole_numbers_from_0_to_10_for_every_node_that_was_sent(adapting, form):
    request = recorded("prioritize", form)
    scores = answer(adapting, "prioritize", request)
    sent = request["NodeNames"] or [one["metadata"]["name"] for one in request["Nodes"]["items"]]
    assert [row["Host"] for row in scores] == sent
    assert all(set(row) == {"Host", "Score"} for row in scores)
    assert all(type(row["Score"]) is int and 0 <= row["Score"] <= 10 for row in scores)


@pytest.mark.parametrize("verb", ["filter", "prioritize"])
def test_null_and_absent_fields_are_the_same(adapting, verb):
    for form in FORMS:
        request = recorded(verb, form)
        given = {name: value for name, value in request.items() if value is not None}
        assert answer(adapting, verb, given) == answer(adapting, verb, request)


def test_a_list_without_items_is_answered_without_items(adapting):
    pod = recorded("filter", "nodes")["Pod"]
    for items in (None, []):
        request = {"Pod": pod, "Nodes": {"metadata": {}, "items": items}, "NodeNames": None}
        assert answer(adapting, "filter", request)["Nodes"]["items"] == []
        assert answer(adapting, "prioritize", request) == []


POD = pod({"graph": "resnet50"})


def read(request: object) -> ExtenderArgs:
    return ExtenderArgs.of(json.dumps(request).encode())


def test_nodes_come_back_as_they_came_without_those_that_failed():
    nodes = [node("a", "NVIDIA-L4"), node("b", "Tesla-T4"), node("c")]
    asked = read(args(POD, nodes))
    result = json.loads(filter_result(asked, {"a": "busy"}, {"b": "too small"}))
    assert result == {
        "Nodes": {"metadata": {}, "items": [nodes[2]]},
        "NodeNames": None,
        "FailedNodes": {"a": "busy"},
        "FailedAndUnresolvableNodes": {"b": "too small"},
        "Error": "",
    }


@pytest.mark.parametrize("change", [str.lower, str.upper, str.title])
def test_keys_are_read_in_any_case(change):
    for request in (args(POD, [node("a", "NVIDIA-L4")]), names(POD, ["a"])):
        asked = read({change(key): value for key, value in request.items()})
        assert [one.name for one in asked.nodes] == ["a"]
        assert asked.pod.metadata.annotations == {"forerun.dev/graph": "resnet50"}


def test_labels_and_annotations_of_nodes_are_read():
    (found,) = read(args(POD, [node("a", "NVIDIA-L4", residents="[]")])).nodes
    assert found.labels["nvidia.com/gpu.product"] == "NVIDIA-L4"
    assert found.annotations == {"forerun.dev/residents": "[]"}


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"{", "not JSON"),
        (b"\xff", "no"),
        (b"[]", "object"),
        (b"{}", "Pod"),
        (b'{"Pod": {"metadata": {}}}', "Nodes"),
        (b'{"Pod": 7, "NodeNames": []}', "object"),
        (b'{"Pod": {"metadata": {}}, "NodeNames": [7]}', "str"),
        (b'{"Pod": {"metadata": {}}, "Nodes": {"items": [{}]}}', "metadata"),
        (b'{"Pod": {"metadata": {"labels": {"a": 7}}}, "NodeNames": []}', "labels"),
        (b'{"Pod": ' + b"[" * 100_000, "no"),
    ],
)
def test_what_is_no_request_is_refused_with_its_place(body, named):
    with pytest.raises(BadRequest, match=named):
        ExtenderArgs.of(body)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_are_anything_but_a_request_or_refused(body):
    with pytest.raises(BadRequest):
        ExtenderArgs.of(body)
