"""A model of the local cache of Hugging Face is named alike in Python, commands and HTTP."""

import json
import socket
import sys

import pytest
from fastapi.testclient import TestClient

import forerun as package
from forerun.data.collectors.runner.worker import finished
from forerun.data.errors import InputError
from forerun.features.readers.hugging_face_cache import cached_model
from forerun.features.readers.language_model.reader import named_config
from forerun.service.http.app import create_app
from forerun.service.requests.commands import fields_of
from forerun.service.settings import Settings
from tests.hugging_face import VIT, cache_in
from tests.zoo import needs_zoo

LLAMA = named_config("llama-3.1-8b") | {"num_hidden_layers": 16}
LOAD = {"input_tokens": 512, "output_tokens": 64, "concurrency": 4}
OPTIONS = [w for name, value in LOAD.items() for w in (f"--{name.replace('_', '-')}", value)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A cache with a network and a language model, on a machine without a network."""

    def refused(*_):
        raise AssertionError("a connection is made")

    cache_in(tmp_path / "hub", monkeypatch, vit=VIT, llama=LLAMA, **{"llama-FP8": LLAMA})
    monkeypatch.setattr(socket.socket, "connect", refused)


def asked_over_http(path, body):
    with TestClient(create_app(Settings.load())) as client:
        return client.post(path, json=body)


IN_A_SERVICE = """
import json, sys
from fastapi.testclient import TestClient
from forerun.service.http.app import create_app
from forerun.service.settings import Settings
with TestClient(create_app(Settings.load())) as client:
    for name in ("hf:me/vit", "me/vit"):
        workload = {"kind": "network", "graph": name, "precision": "fp16"}
        answer = client.post("/v1/predict", json={"workload": workload, "device": "l4"})
        print(answer.json()["metrics"]["latency_ms"]["value"])
print("torch" in sys.modules)
"""


@pytest.mark.slow
def test_a_network_of_the_cache_is_answered_alike_through_each_door(forerun, tmp_path, monkeypatch):
    """The service, in a process of its own, does not import torch."""
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    *served, torch = finished([sys.executable, "-c", IN_A_SERVICE]).stdout.splitlines()[-3:]
    assert torch == "False"
    for name, by_service in zip(("hf:me/vit", "me/vit"), map(float, served), strict=True):
        own = package.predict(name, device="l4", precision="fp16").latency_ms.value
        words = ("predict", name, "--device", "l4", "--precision", "fp16")
        by_command = forerun.json(*words)["metrics"]["latency_ms"]["value"]
        assert [by_command, by_service] == pytest.approx([own, own], rel=1e-9)


@needs_zoo
@pytest.mark.slow
def test_a_network_of_timm_is_answered_alike_by_commands_and_over_http(forerun):
    workload = {"kind": "network", "graph": "timm:resnet18"}
    answer = asked_over_http("/v1/predict", {"workload": workload, "device": "l4"}).json()
    code, out, _ = forerun("predict", "timm:resnet18", "--device", "l4", "--json")
    assert code == 0
    assert answer["metrics"] == json.loads(out)["metrics"]
    workload["graph"] = "timm:resnet18x"
    refused = asked_over_http("/v1/predict", {"workload": workload, "device": "l4"})
    assert refused.status_code == 422
    assert "Cannot read timm:resnet18x: timm cannot build it: " in refused.json()["detail"]


@pytest.mark.slow
def test_a_network_of_the_cache_that_cannot_be_traced_is_refused_without_paths(tmp_path):
    config = next((tmp_path / "hub").rglob("models--me--vit/**/config.json"))
    config.write_text('{"model_type": "of mine"}')
    workload = {"kind": "network", "graph": "hf:me/vit"}
    answer = asked_over_http("/v1/predict", {"workload": workload, "device": "l4"})
    assert answer.status_code == 422
    assert "Cannot read a model of the cache" in answer.json()["detail"]
    assert str(tmp_path) not in answer.text


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hf:me/llama", "me/llama"])
def test_a_language_model_of_the_cache_is_answered_alike_through_every_door(forerun, name):
    device, metric = "h100-sxm-80gb", "tpot_ms"
    by_file = package.llm(LLAMA, device=device, **LOAD).metrics[metric].value
    assert package.llm(name, device=device, **LOAD).metrics[metric].value == by_file
    words = ("llm", "estimate", "--model", name, "--device", device, *OPTIONS)
    assert forerun.json(*words)["metrics"][metric]["value"] == by_file
    body = {"model": {"name": name}, "device": device, **LOAD}
    answer = asked_over_http("/v1/llm/estimate", body).json()
    assert answer["metrics"][metric]["value"] == by_file
    words = ("train-step", "--model", name, "--device", device)
    trained = forerun.json(*words)["metrics"]["step_s"]["value"]
    assert trained == package.llm_training(LLAMA, device=device).step_s.value


@pytest.mark.parametrize("name", ["hf:me/gone", "me/gone", "hf:gone"])
def test_what_is_not_in_the_cache_is_refused_with_what_fetches_it(forerun, name):
    fetch = f"`hf download {name.removeprefix('hf:')} config.json`"
    with pytest.raises(InputError, match=fetch) as caught:
        package.predict(name, device="l4")
    assert str(caught.value) in forerun.refused("predict", name, "--device", "l4")
    workload = {"kind": "network", "graph": name}
    answer = asked_over_http("/v1/predict", {"workload": workload, "device": "l4"})
    assert (answer.status_code, fetch in answer.text) == (404, True)
    forerun("devices")  # takes the log of the service
    said = forerun.refused("llm", "estimate", name, "--device", "l4", *OPTIONS)
    assert fetch in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("name", ["/etc/passwd", "./x/config.json", "hf:", "hf:a/b/c", "hf:../x"])
def test_what_is_no_name_of_hugging_face_is_not_to_be_fetched(name):
    workload = {"kind": "network", "graph": name}
    for path, asked in (
        ("predict", {"workload": workload}),
        ("training/estimate", {"model": name}),
    ):
        said = asked_over_http(f"/v1/{path}", asked | {"device": "l4"}).json()["detail"]
        assert ("as ORG/MODEL, which this is not" in said, "hf download" in said) == (True, False)


def test_a_name_that_leads_out_of_the_cache_is_not_found(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    for name in ("hf:../..", "hf:me/../../..", "hf:/etc", "../hub", "me/vit/snapshots", "hf:"):
        assert cached_model(name) is None


def test_a_command_of_an_engine_names_a_model_of_the_cache_whole():
    for name, read in (("me/llama-FP8", "me/llama-FP8"), ("me/gone-FP8", "gone")):
        assert fields_of(f"vllm serve {name}")[0]["model"]["name"] == read
