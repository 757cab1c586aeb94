"""Uploads: kept through a restart, refused with a clear line when they are no model."""

import random

import onnx
import pytest
from fastapi.testclient import TestClient
from onnx import TensorProto, helper

from forerun.service.app import create_app
from tests.service.conftest import GRAPH


def small_onnx(*, cyclic=False, dimension=4) -> bytes:
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [dimension, 8])
    target = helper.make_tensor_value_info("y", TensorProto.FLOAT, [dimension, 8])
    nodes = [
        helper.make_node("Add", ["x", "b" if cyclic else "x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    return helper.make_model(helper.make_graph(nodes, "g", [source], [target])).SerializeToString()


def test_what_was_acknowledged_survives_a_restart(client, digest, settings, loaded):
    with TestClient(create_app(settings, loaded)) as restarted:
        body = restarted.get(f"/v1/graphs/{digest}").json()
    assert body["operators"] == len(GRAPH)
    assert body["parameters"] == 4096 * 1024
    assert body["flops"] == pytest.approx(2 * 1024 * 4096 + 4096)


def test_the_same_graph_twice_is_one_graph(client, digest, settings):
    assert client.post("/v1/graphs", json=GRAPH.to_json()).json()["digest"] == digest
    assert len(list((settings.home / "graphs").iterdir())) == 1


def test_a_full_store_refuses_and_keeps_what_it_has(settings, loaded):
    tight = settings.model_copy(update={"graphs_kept": 1})
    with TestClient(create_app(tight, loaded)) as client:
        first = client.post("/v1/graphs", json=GRAPH.to_json()).json()["digest"]
        second = client.post("/v1/graphs", content=small_onnx())
        assert second.status_code == 507
        assert "FORERUN_GRAPHS_KEPT" in second.json()["detail"]
        assert client.get(f"/v1/graphs/{first}").status_code == 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a model",
        b"{}",
        b'{"format": "forerun.graph/1", "operators": []}',
        b"\x00" * 1000,
        small_onnx()[:-20],
        small_onnx(cyclic=True),
        small_onnx(dimension=0),
        small_onnx(dimension=2**60),
        b"[" * 100_000,
    ],
    ids=[
        "empty",
        "text",
        "json",
        "no operators",
        "zeros",
        "truncated",
        "cyclic",
        "zero dimension",
        "absurd dimension",
        "deep",
    ],
)
def test_what_is_no_model_gets_a_clear_4xx(client, content):
    answer = client.post("/v1/graphs", content=content)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].startswith("Cannot read")


def test_an_upload_over_the_limit_is_refused(client):
    answer = client.post("/v1/graphs", content=b"\x08" * (2 * 2**20))
    assert answer.status_code == 413
    assert "1 MiB" in answer.json()["detail"]


def test_damaged_files_never_crash_the_service(client):
    """Two hundred mutations of a real file: an answer or a clear 4xx, never a 5xx."""
    chance, good = random.Random(0), small_onnx()
    onnx.load_from_string(good)
    for _ in range(200):
        bad = bytearray(good)
        for _ in range(chance.randint(1, 8)):
            bad[chance.randrange(len(bad))] = chance.randrange(256)
        answer = client.post("/v1/graphs", content=bytes(bad[: chance.randint(1, len(bad))]))
        assert answer.status_code < 500, (bytes(bad), answer.text)
