"""Questions over HTTP, answered in process by the service with the bundled predictors."""

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from forerun.service.http.app import create_app
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
            service = _Service(client)
            for request in content.get("before", ()):
                answer = client.post(request["post"], json=service.body(request["body"]))
                assert answer.status_code == 201, answer.text
            return {
                name: service.answer({"post": content["post"], **question})
                for name, question in content["questions"].items()
            }


class _Service:
    """A client that uploads each graph once.

    Args:
        client: of the service.
    """

    def __init__(self, client: TestClient) -> None:
        self.client = client
        self.digests: dict[str, str] = {}

    def answer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """The answer without the predictor's version, or the problem."""
        if "onnx" in question:
            sent = {"params": question["parameters"], "content": onnx_file(question["onnx"])}
        else:
            sent = {"json": self.body(question["body"])}
        answer = self.client.post(question["post"], **sent)
        content: dict[str, Any] = answer.json()
        if answer.status_code != 200:
            said = {name: content[name] for name in ("type", "detail")}
            return {"status": answer.status_code, **said}
        parts = (content, content.get("candidate"), content.get("program"))
        for limited in (*parts, *content.get("ranked", ()), *content.get("residents", ())):
            details = (limited or {}).pop("limit_details", None)
            assert (limited or {}).pop("level", 90.0) == 90.0, "no stored question gives another"
            assert details is None or [own["message"] for own in details] == limited["limits"]
        predictor = content.pop("predictor", {})
        if predictor.get("adapted_rows"):
            content["adapted_rows"] = predictor["adapted_rows"]
        return content

    def body(self, given: Any) -> Any:
        """What is sent: digests in the place of graphs that are named `folder/graph`."""
        if isinstance(given, Mapping):
            return {
                name: self.digest(value)
                if name == "graph" and isinstance(value, str) and "/" in value
                else self.body(value)
                for name, value in given.items()
            }
        return [self.body(one) for one in given] if isinstance(given, list) else given

    def digest(self, name: str) -> str:
        """Of a graph, uploaded the first time."""
        if name not in self.digests:
            answer = self.client.post("/v1/graphs", json=graph_named(name))
            assert answer.status_code == 201, answer.text
            self.digests[name] = answer.json()["digest"]
        return self.digests[name]
