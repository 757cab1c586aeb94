"""The service over gRPC: a real server of two processes, and a real client with a key."""

import json
import re
import socket
import struct
from math import isnan

import httpx
import numpy as np
import pytest

from forerun.models.artifact.sealed_folder import seal
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.http.open_inference.grpc_service import MESSAGES, SERVICE
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.places import Place
from tests.service.real_server import real_server

grpc = pytest.importorskip("grpc", reason="needs the grpc extra")
pytestmark = pytest.mark.slow
QUESTION = json.dumps(EXAMPLE).encode()
UNKNOWN = json.dumps({**EXAMPLE, "device": "nothing"}).encode()
TIMEOUT_S = 120


class Client:
    """Calls of one connection, with the metadata of a key."""

    def __init__(self, address, key):
        self.channel, self.key = grpc.insecure_channel(address), key

    def call(self, name, /, *, metadata=None, **fields):
        """The response, and the trailing metadata."""
        method = self.channel.unary_unary(
            f"/{SERVICE}/{name}",
            request_serializer=MESSAGES[f"{name}Request"].SerializeToString,
            response_deserializer=MESSAGES[f"{name}Response"].FromString,
        )
        metadata = [("authorization", f"Bearer {self.key}")] if metadata is None else metadata
        request = MESSAGES[f"{name}Request"](**fields)
        response, call = method.with_call(request, timeout=TIMEOUT_S, metadata=metadata)
        return response, dict(call.trailing_metadata())

    def refused(self, name, /, **fields):
        """Code and details of a call that fails."""
        with pytest.raises(grpc.RpcError) as error:
            self.call(name, **fields)
        return error.value.code().name, error.value.details()


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server that needs keys, with the roofline bound as its predictor."""
    folder, home = tmp_path_factory.mktemp("predictor"), tmp_path_factory.mktemp("home")
    Router((Roofline(),)).save(folder)
    seal(folder, "2026-01-01")
    _, key = KeyStore(Place(home) / "keys").create("one", "read")
    environment = {
        "FORERUN_PREDICTOR_FOLDER": str(folder),
        "FORERUN_GRPC_PORT": "0",
        "FORERUN_MAX_REQUEST_MIB": "1",
    }
    with real_server(home, workers=2, environment=environment) as server:
        yield server, key


@pytest.fixture(scope="module")
def client(server):
    running, key = server
    (address,) = re.findall(r"over gRPC on (\S+)", running.log.read_text())
    client = Client(address, key)
    with client.channel:
        yield client


@pytest.fixture(scope="module")
def expected(server):
    """The answer over HTTP."""
    running, key = server
    headers = {"authorization": f"Bearer {key}"}
    return httpx.post(f"{running.url}/v1/predict", json=EXAMPLE, headers=headers).json()


def question(*elements):
    contents = {"bytes_contents": elements}
    return {
        "name": "question", "datatype": "BYTES", "shape": [len(elements)], "contents": contents
    }  # fmt: skip


def test_answers_are_those_of_predict_and_not_a_number_where_there_is_none(client, expected):
    response, _ = client.call(
        "ModelInfer", model_name="forerun", id="seven", inputs=[question(QUESTION, QUESTION)]
    )
    found = {output.name: output.contents for output in response.outputs}
    latency = expected["metrics"]["latency_ms"]["value"]
    assert list(found["latency_ms"].fp64_contents) == [latency, latency]
    assert isnan(found["latency_ms_low"].fp64_contents[0])
    assert [json.loads(text) for text in found["answer"].bytes_contents] == [expected, expected]
    assert response.id == "seven"


def test_raw_inputs_get_the_same_answers_in_raw_form(client, expected):
    raw = struct.pack("<I", len(QUESTION)) + QUESTION
    response, _ = client.call(
        "ModelInfer",
        model_name="forerun",
        inputs=[{"name": "question", "datatype": "BYTES", "shape": [1]}],
        outputs=[{"name": "latency_ms"}],
        raw_input_contents=[raw],
    )
    (content,) = response.raw_output_contents
    assert np.frombuffer(content, "<f8") == expected["metrics"]["latency_ms"]["value"]


def test_who_watches_the_service_needs_no_key(client):
    live, _ = client.call("ServerLive", metadata=[])
    ready, _ = client.call("ServerReady", metadata=[])
    assert live.live
    assert ready.ready


def test_the_server_and_its_models_describe_themselves(client, server):
    running, key = server
    with httpx.Client(
        base_url=running.url, headers={"authorization": f"Bearer {key}"}
    ) as documents:
        server_over_http = documents.get("/v2").json()
        over_http = documents.get("/v2/models/forerun").json()
    described, _ = client.call("ServerMetadata")
    assert described.name == "forerun"
    assert described.version == server_over_http["version"]
    model, _ = client.call("ModelMetadata", name="forerun")
    assert list(model.versions) == over_http["versions"]
    assert model.platform == over_http["platform"]
    for ours, theirs in ((model.inputs, "inputs"), (model.outputs, "outputs")):
        assert [
            {"name": each.name, "datatype": each.datatype, "shape": list(each.shape)}
            for each in ours
        ] == over_http[theirs]
    ready, _ = client.call("ModelReady", name="forerun", version=model.versions[0])
    assert ready.ready


@pytest.mark.parametrize(
    "name, fields, code, said",
    [
        ("ModelReady", {"name": "forrun"}, "NOT_FOUND", "no model"),
        ("ModelMetadata", {"name": ""}, "NOT_FOUND", "no model"),
        ("ModelMetadata", {"name": "forerun/ready"}, "NOT_FOUND", "no model"),
        ("ModelReady", {"name": "forerun", "version": "old"}, "NOT_FOUND", "no version 'old'"),
        ("ModelInfer", {"model_name": "forerun"}, "INVALID_ARGUMENT", "inputs"),
        (
            "ModelInfer",
            {"model_name": "forerun", "inputs": [question(b"\xff")]},
            "INVALID_ARGUMENT",
            "UTF-8",
        ),
        (
            "ModelInfer",
            {"model_name": "forerun", "inputs": [question(QUESTION, UNKNOWN)]},
            "INVALID_ARGUMENT",
            "question 1: ",
        ),
        (
            "ModelInfer",
            {"model_name": "forerun", "inputs": [question(b" " * 2**20)]},
            "RESOURCE_EXHAUSTED",
            "larger than max",
        ),
        ("ServerMetadata", {"metadata": []}, "UNAUTHENTICATED", "needs a key"),
        (
            "ServerMetadata",
            {"metadata": [("authorization", "Bearer fr_x")]},
            "UNAUTHENTICATED",
            "needs a key",
        ),
    ],
)
def test_a_refused_call_has_the_code_and_the_reason(client, name, fields, code, said):
    assert client.refused(name, **fields)[0] == code
    assert said in client.refused(name, **fields)[1]


def test_a_large_request_is_converted_off_the_event_loop_and_answered(client):
    many = [QUESTION] * 600
    outputs = [{"name": "latency_ms"}]
    response, _ = client.call(
        "ModelInfer", model_name="forerun", inputs=[question(*many)], outputs=outputs
    )
    assert len(set(response.outputs[0].contents.fp64_contents)) == 1
    assert list(response.outputs[0].shape) == [600]


def test_a_call_is_logged_under_the_identifier_of_its_metadata(client, server):
    running, _ = server
    metadata = [("authorization", f"Bearer {client.key}"), ("x-request-id", "of-the-call")]
    _, trailing = client.call("ModelReady", name="forerun", metadata=metadata)
    assert trailing["x-request-id"] == "of-the-call"
    (line,) = [line for line in running.log.read_text().splitlines() if "of-the-call" in line]
    logged = json.loads(line)
    assert logged["route"] == "/v2/models/{name}/ready"
    assert logged["key_name"] == "one"
    assert logged["client"] == "127.0.0.1"


def test_all_processes_listen_on_the_port_and_no_other_service_can(client, server):
    running, _ = server
    (port,) = map(int, re.findall(r"over gRPC on \S+:(\d+)", running.log.read_text()))
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
