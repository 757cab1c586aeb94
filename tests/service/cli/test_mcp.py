"""`forerun mcp`, as a client of the Model Context Protocol speaks to it over standard streams."""

import asyncio
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.http.app import create_app
from forerun.service.schemas.serving import LlmEstimateIn
from forerun.service.settings import Settings

mcp = pytest.importorskip("mcp", reason="needs the mcp extra")
pytestmark = pytest.mark.slow
PROGRAM = "import sys; sys.argv = ['forerun', 'mcp']; from forerun.service.cli import main; main()"
NETWORK = {"kind": "network", "graph": "resnet50", "batch_size": 64, "precision": "amp"}
SERVED = {
    "model": "llama-3.1-8b",
    "device": "l4",
    "input_tokens": 1024,
    "output_tokens": 256,
    "concurrency": 8,
}
RANKED = {"workload": NETWORK, "devices": ["t4", "l4", "h100-sxm-80gb"]}
ASKED = [
    ("predict", "/v1/predict", {"workload": NETWORK, "device": "l4"}),
    ("llm_estimate", "/v1/llm/estimate", SERVED),
    ("rank_devices", "/v1/rank", RANKED),
    ("predict", "/v1/predict", {"workload": NETWORK, "device": "l40000"}),
    ("predict", "/v1/predict", {"workload": {**NETWORK, "batchsize": 3}, "device": "l4"}),
]


@pytest.fixture
def replies(tmp_path):
    """The tools, and the result of each call, of one session with a process of its own."""
    from mcp import Client, StdioServerParameters

    variables = {**os.environ, "FORERUN_HOME": str(tmp_path)}
    server = StdioServerParameters(command=sys.executable, args=["-c", PROGRAM], env=variables)
    calls = [(name, given) for name, _, given in ASKED]
    calls += [("list_devices", {"name": "h100"}), ("list_devices", {"kind": "cpu"}), ("no", {})]

    async def talk():
        async with Client(server) as client:
            tools = (await client.list_tools()).tools
            return tools, [await client.call_tool(*call) for call in calls]

    # Tests of pages leave a running loop in this thread.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(talk())).result()


def test_tools_answer_as_the_service_does_and_say_what_is_wrong(replies, tmp_path):
    tools, (*results, h100, cpus, unknown) = replies
    schemas = {tool.name: tool.input_schema for tool in tools}
    assert set(schemas) == {"predict", "llm_estimate", "rank_devices", "list_devices"}
    assert schemas["llm_estimate"] == LlmEstimateIn.model_json_schema()
    app = create_app(Settings(home=tmp_path / "other", port=0), bundled())
    with TestClient(app) as client:
        for (_, path, given), result in zip(ASKED, results, strict=True):
            answer = client.post(path, json=given)
            assert result.is_error is (answer.status_code != 200)
            assert json.loads(result.content[0].text) == result.structured_content
            if not result.is_error:
                assert result.structured_content == answer.json()
    latency = results[0].structured_content["metrics"]["latency_ms"]
    assert latency["low"] < latency["value"] < latency["high"]
    assert latency["grade"]
    assert "Did you mean l40" in results[3].structured_content["detail"]
    assert "did you mean batch_size?" in results[4].structured_content["detail"]
    names = [own["name"] for own in h100.structured_content["devices"]]
    assert "h100-sxm-80gb" in names
    assert all("h100" in name for name in names)
    assert {own["kind"] for own in cpus.structured_content["devices"]} == {"cpu"}
    assert unknown.is_error is True


def test_without_the_extra_the_command_says_what_to_install(forerun, monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.server.stdio", None)
    code, _, err = forerun("mcp")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "'mcp' extra" in err
