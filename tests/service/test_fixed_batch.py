"""A file that fixes its batch is answered at it, through every door, and says when it is scaled."""

import json

import pytest
from fastapi.testclient import TestClient
from onnx import TensorProto, helper
from typer.testing import CliRunner

import forerun
from forerun.service.cli import app
from forerun.service.http.app import create_app
from forerun.service.settings import Settings

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


def test_the_command_takes_the_batch_of_the_file(file):
    own = CliRunner().invoke(app, ["predict", str(file), "--device", "l4"])
    assert own.exit_code == 0
    assert f"batch {FIXED}," in own.output
    given = ["--batch-size", "1", "--json"]
    scaled = CliRunner().invoke(app, ["predict", str(file), "--device", "l4", *given])
    assert any("fixes its first dimension" in s for s in sentences(json.loads(scaled.stdout)))


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
