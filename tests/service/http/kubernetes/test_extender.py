"""The wire form of a Kubernetes scheduler extender."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import BadRequest
from forerun.service.http.kubernetes.extender import ExtenderArgs, filter_result
from tests.service.http.kubernetes.requests import args, names, node, pod

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
        (b"{", "no JSON"),
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
