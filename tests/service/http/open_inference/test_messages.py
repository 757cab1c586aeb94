"""Messages of gRPC stand for documents of HTTP, answered by the application."""

import asyncio
import json
import struct
from math import isnan

import numpy as np
import pytest

from forerun.data.errors import BadRequest, MissingExtra
from forerun.service.http.app import create_app, loaded_app
from forerun.service.http.in_process import InnerRequest, answer_of
from forerun.service.http.open_inference.grpc_service import (
    COMPILED,
    MESSAGES,
    document_of,
    response_of,
)
from tests.coroutines import run
from tests.house.sources import PYPROJECT

ANSWERED = {
    "model_name": "forerun",
    "model_version": "1",
    "id": "seven",
    "outputs": [
        {"name": "latency_ms", "shape": [2], "datatype": "FP64", "data": [1.5, None]},
        {"name": "answer", "shape": [2], "datatype": "BYTES", "data": ["{}", "é"]},
    ],
}


def request(*tensors, raw=(), **given):
    return MESSAGES["ModelInferRequest"](inputs=tensors, raw_input_contents=raw, **given)


def tensor(datatype, elements=(), shape=None, name="x"):
    contents = {"bytes_contents": elements} if elements else {}
    shape = [len(elements)] if shape is None else shape
    return {"name": name, "datatype": datatype, "shape": shape, "contents": contents}


def with_lengths(*elements):
    return b"".join(struct.pack("<I", len(each)) + each for each in elements)


def test_the_compiled_messages_are_those_of_the_file(tmp_path):
    protoc = pytest.importorskip("grpc_tools.protoc", reason="needs grpcio-tools")
    compiled = tmp_path / "compiled"
    source = COMPILED.with_suffix(".proto")
    assert not protoc.main(
        ["", f"-I{source.parent}", f"--descriptor_set_out={compiled}", source.name]
    )
    assert compiled.read_bytes() == COMPILED.read_bytes(), "run `make protocol`"


def test_fields_have_the_numbers_under_which_the_protocol_is_published():
    """As in open_inference_grpc.proto of kserve/open-inference-protocol."""
    published = {
        "ModelInferRequest": "model_name model_version id parameters inputs outputs "
        "raw_input_contents",
        "ModelInferResponse": "model_name model_version id parameters outputs raw_output_contents",
        "InferInputTensor": "name datatype shape parameters contents",
        "InferOutputTensor": "name datatype shape parameters contents",
        "InferTensorContents": "bool_contents int_contents int64_contents uint_contents "
        "uint64_contents fp32_contents fp64_contents bytes_contents",
        "ModelMetadataResponse": "name versions platform inputs outputs",
        "ServerMetadataResponse": "name version extensions",
    }
    nested = {
        "InferInputTensor": MESSAGES["ModelInferRequest"].InferInputTensor,
        "InferOutputTensor": MESSAGES["ModelInferResponse"].InferOutputTensor,
    }
    for name, fields in published.items():
        described = (nested.get(name) or MESSAGES[name]).DESCRIPTOR.fields
        assert [(each.name, each.number) for each in described] == [
            (field, number) for number, field in enumerate(fields.split(), 1)
        ]


def test_messages_of_the_same_names_may_be_loaded_next_to_ours():
    """Clients of other servers bring the package `inference` too, in the pool that is the usual."""
    from google.protobuf.descriptor_pool import Default

    with pytest.raises(KeyError):
        Default().FindMessageTypeByName("inference.ModelInferRequest")


def test_a_request_stands_for_the_document_with_its_identifier_and_outputs():
    asked = request(tensor("BYTES", ["é".encode(), b"{}"]), id="seven", outputs=[{"name": "y"}])
    assert document_of(asked) == {
        "id": "seven",
        "inputs": [{"name": "x", "datatype": "BYTES", "shape": [2], "data": ["é", "{}"]}],
        "outputs": [{"name": "y"}],
    }
    assert {"id", "outputs"}.isdisjoint(document_of(request(tensor("BYTES", [b"{}"]))))


def test_raw_text_has_its_length_before_it():
    raw = with_lengths(b"{}", b"", "é".encode())
    asked = request(tensor("BYTES", shape=[3]), raw=[raw])
    assert document_of(asked)["inputs"][0]["data"] == ["{}", "", "é"]


@pytest.mark.parametrize(
    "asked, said",
    [
        (request(tensor("BYTES", [b"{}"], shape=[2])), "1 elements in place of 2"),
        (request(tensor("BYTES", [b"{}"], shape=[1, 1])), r"\[n\]"),
        (request(tensor("BYTES", [b"{}"], shape=[])), r"\[n\]"),
        (request(tensor("BYTES", shape=[0])), r"\[n\]"),
        (request(tensor("BYTES", shape=[1_001])), "up to 1,000"),
        (request(tensor("BYTES", [b"\xff"])), "UTF-8"),
        (request({"name": "x", "datatype": "TEXT", "shape": [1]}), "'TEXT'; it must be BYTES"),
        (request(tensor("BYTES", [b"{}"]), raw=[b"", b""]), "one entry for each"),
        (request(tensor("INT32", shape=[2]), raw=[b"\0" * 8]), "'INT32'; it must be BYTES"),
        (request(tensor("BYTES", shape=[1]), raw=[with_lengths(b"{}")[:-1]]), "within an element"),
        (request(tensor("BYTES", shape=[1]), raw=[b"\0\0\0"]), "within an element"),
        (request(tensor("BYTES", shape=[1]), raw=[with_lengths(b"", b"")]), "2 elements"),
    ],
)
def test_content_that_does_not_fit_is_refused_with_the_reason(asked, said):
    with pytest.raises(BadRequest, match=said):
        document_of(asked)


def test_reading_text_ends_once_there_are_too_many_elements():
    raw = with_lengths(*[b""] * 100_000)
    with pytest.raises(BadRequest, match="1001 elements"):
        document_of(request(tensor("BYTES", shape=[1]), raw=[raw]))


def test_a_response_has_what_the_document_has_and_nan_for_null():
    response = response_of(ANSWERED, raw=False)
    assert (response.model_name, response.model_version, response.id) == ("forerun", "1", "seven")
    latency, answer = response.outputs
    assert (latency.name, latency.datatype, list(latency.shape)) == ("latency_ms", "FP64", [2])
    first, second = latency.contents.fp64_contents
    assert first == 1.5
    assert isnan(second)
    assert list(answer.contents.bytes_contents) == [b"{}", "é".encode()]
    assert not response.raw_output_contents


def test_a_raw_response_has_the_same_elements_as_bytes_alone():
    response = response_of(ANSWERED, raw=True)
    assert not any(output.HasField("contents") for output in response.outputs)
    latency, answer = response.raw_output_contents
    np.testing.assert_array_equal(np.frombuffer(latency, "<f8"), [1.5, np.nan])
    assert answer == with_lengths(b"{}", "é".encode())


def test_the_compiled_messages_are_a_file_of_the_package():
    files = PYPROJECT["tool"]["setuptools"]["package-data"]["*"]
    assert f"*{COMPILED.suffix}" in files


def in_process_request(
    body=b"{}", *, error=None, method="POST", path="/v2/models/forerun/infer", headers=()
):
    async def made():
        if error is not None:
            raise error
        return body

    return InnerRequest(method, path, headers, "10.1.2.3", made)


@pytest.fixture
def app(settings, loaded):
    app = create_app(settings, loaded)

    async def asked(given):
        async with app.router.lifespan_context(app):
            return await answer_of(app, given)

    return lambda given: run(asked(given))


def test_the_answer_has_the_status_the_headers_and_the_body(app):
    answer = app(in_process_request(method="GET", path="/v2/health/live"))
    assert (answer.status, answer.content) == (200, b'{"live":true}')
    assert dict(answer.headers)[b"content-type"] == b"application/json"


def test_an_error_of_making_the_body_is_answered_as_any_error(app):
    answer = app(in_process_request(error=BadRequest("no such tensor")))
    assert (answer.status, json.loads(answer.content)["detail"]) == (422, "no such tensor")


def test_a_fault_is_answered_and_does_not_end_the_caller(app):
    answer = app(in_process_request(error=RuntimeError("boom")))
    assert answer.status == 500
    assert b"boom" not in answer.content


def test_no_body_is_made_for_a_request_that_is_not_let_in(settings, loaded):
    app = create_app(settings.model_copy(update={"auth": "required"}), loaded)

    async def asked():
        async with app.router.lifespan_context(app):
            return await answer_of(
                app, in_process_request(error=AssertionError("the body was made"))
            )

    assert run(asked()).status == 401


def test_a_body_over_the_limit_is_refused(app):
    assert app(in_process_request(b" " * (2**20 + 1))).status == 413


def test_a_handler_learns_that_its_client_has_left_and_ends_by_itself():
    events = []

    async def handler(scope, receive, send):
        assert (await receive())["body"] == b"{}"
        events.append("began")
        events.append((await receive())["type"])

    async def left():
        asked = asyncio.create_task(answer_of(handler, in_process_request()))
        while not events:
            await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        while len(events) < 2:
            await asyncio.sleep(0)

    run(left())
    assert events == ["began", "http.disconnect"]


def test_the_client_is_that_of_the_call():
    seen = {}

    async def handler(scope, receive, send):
        seen.update(scope)
        await send({"type": "http.response.start", "status": 204, "headers": []})

    headers = [(b"authorization", b"Bearer x")]
    run(answer_of(handler, in_process_request(headers=headers)))
    assert seen["client"][0] == "10.1.2.3"
    assert headers[0] in seen["headers"]


def test_a_port_for_grpc_without_grpc_is_refused_before_anything_is_loaded(settings, monkeypatch):
    monkeypatch.setattr("forerun.service.http.app.find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match="scripts/install grpc"):
        loaded_app(settings.model_copy(update={"grpc_port": 0}))
