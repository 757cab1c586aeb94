"""A home of its own for every test, a service that shares it, and a small real network."""

import pytest
from fastapi.testclient import TestClient
from onnx import TensorProto, helper, save

from forerun.service.http.app import create_app
from forerun.service.settings import Settings


@pytest.fixture(autouse=True)
def own_home(home):
    """Each test has a home of its own."""


@pytest.fixture
def client():
    with TestClient(create_app(Settings.load())) as client:
        yield client


@pytest.fixture(scope="session")
def squeezenet(tmp_path_factory):
    """An architecture that comes with the onnx package; its batch is fixed at 1."""
    from pathlib import Path

    import onnx

    return Path(onnx.__file__).parent / "backend/test/data/light/light_squeezenet.onnx"


@pytest.fixture
def tiny(tmp_path):
    """A matrix product and an activation with a free batch."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, (64, 32), [0.01] * 2048)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"]),
        helper.make_node("Relu", ["y"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["batch", 32])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    file = tmp_path / "tiny.onnx"
    save(model, file)
    return file
