"""Questions over HTTP, answered in process by the service with the bundled predictors."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from forerun.service.app import create_app
from forerun.service.settings import Settings
from tests.golden.bundle import predictors
from tests.golden.graphs import graph_named, onnx_file


def answers_over_http(content: Mapping[str, Any]) -> dict[str, Any]:
    """Question -> answer.

    Args:
        content: `before`, requests that are sent first; `post`, the path of questions that name
            none; `questions`, name -> `body`, or `onnx` with `parameters`.
    """
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(home=Path(folder)), predictors())
        with TestClient(app, raise_server_exceptions=False) as client:
            for request in content.get("before", ()):
                answer = client.post(request["post"], json=_body(client, request["body"]))
                assert answer.status_code in (200, 201), answer.text
            return {
                name: _answered(client, {"post": content["post"], **question})
                for name, question in content["questions"].items()
            }


def _answered(client: TestClient, question: Mapping[str, Any]) -> dict[str, Any]:
    if "onnx" in question:
        sent = {"params": question["parameters"], "content": onnx_file(question["onnx"])}
    else:
        sent = {"json": _body(client, question["body"])}
    answer = client.post(question["post"], **sent)
    content: dict[str, Any] = answer.json()
    if answer.status_code != 200:
        return {"status": answer.status_code, "type": content["type"], "detail": content["detail"]}
    predictor = content.pop("predictor", {})
    if predictor.get("adapted_rows"):
        content["adapted_rows"] = predictor["adapted_rows"]
    return content


def _body(client: TestClient, given: Any) -> Any:
    """What is sent: graphs named `folder/graph` uploaded, and their digests in their place."""
    if isinstance(given, Mapping):
        return {
            name: _uploaded(client, value)
            if name == "graph" and isinstance(value, str) and "/" in value
            else _body(client, value)
            for name, value in given.items()
        }
    return [_body(client, one) for one in given] if isinstance(given, list) else given


def _uploaded(client: TestClient, name: str) -> str:
    answer = client.post("/v1/graphs", json=graph_named(name))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["digest"])
