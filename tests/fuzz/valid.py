"""Valid requests of every endpoint and page: presets, documented examples, and a few more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import onnx

from forerun.data.named.networks import network_named
from forerun.features.readers import read_graph
from forerun.features.readers.language_model.reader import named_config
from forerun.service.http.schemas import EXAMPLE_INFERENCE
from forerun.service.presets import presets
from forerun.service.schemas.colocation import EXAMPLE_ALONE, EXAMPLE_WINDOW
from forerun.service.schemas.fields import example
from forerun.service.schemas.llm.replay import EXAMPLE_REPLAY
from forerun.service.schemas.llm.training import EXAMPLE_ESTIMATE, EXAMPLE_PLAN
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, OperatorIn
from forerun.service.schemas.serving import EXAMPLE_DEPLOYMENT, EXAMPLE_DIFFUSION, EXAMPLE_LLM
from tests.data.circuits.reference import stored
from tests.fuzz.asked import BINARY, Asked

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
PAGES = (
    *("/", "/compare", "/power", "/llm", "/plan", "/training", "/neighbours", "/leaderboard"),
    *("/devices", "/circuits"),
    *("/devices/l4", "/coverage", "/requests", "/docs", "/redoc", "/problems/bad-request"),
    *("/leaderboard/-/charts", "/leaderboard/torch_gpu", "/static/style.css"),
)  # fmt: skip
FORM = (
    "graph=resnet50&title=ResNet-50&devices=rtx-4090&devices=l4&batch_size=32&precision=amp"
    "&phase=training&runtime=compiled&optimizer=adamw&lora_rank=8&frozen_weights=int8"
    "&power_limit_w=200"
)
ONE_DEVICE = FORM.replace("devices=rtx-4090&devices=l4", "devices=a100-pcie-80gb")
LLM_FORM = (
    "device=h100-sxm-80gb&device_count=2&name=mixtral-8x7b&concurrency=8&max_sequences=64"
    "&quantization=fp8&tensor=2&expert=2"
)
NAMED_FORM = (
    "device=h100-sxm-80gb&name=llama-3.1-8b&input_tokens=512&output_tokens=128&requests_per_s=2"
    "&engine=sglang&quantization=fp8&tensor=2&usd_per_device_hour=3"
)
SHEETS = ("rtx-4090", "xeon-platinum-8480-plus", "mi300x")
SOFTWARE = {
    "framework": "torch",
    "version": "2.9.1",
    "runtime": "compiled",
    "layout": "nhwc",
    "cuda": "12.8",
    "driver": "570.1",
    "threads": 8,
}
INFERENCE = {"attention": "eager", "logits": "last", "cache_tokens": 512, "cache_precision": "fp16"}
TRAINING = {
    "optimizer": "adam",
    "accumulation": 2,
    "lora_rank": 8,
    "data_parallel": 2,
    "tensor_parallel": 2,
    "pipeline_parallel": 2,
    "zero_stage": 1,
    "attention": "eager",
    "dropout": 0.1,
    "checkpoint_segments": 2,
    "frozen_weights": "nf4",
    "adapter_precision": "fp32",
    "loss_chunks": 4,
    "sequence_parallel": True,
}
MODEL = (
    "device=l4&precision=amp&phase=training&runtime=compiled&optimizer=adam&data_parallel=2"
    "&zero_stage=1&power_limit_w=60"
)
PROGRAM: dict[str, Any] = {
    "name": "mine",
    "alone": EXAMPLE_ALONE,
    "working_set_mib": 64,
    "cpu_share": 0.9,
    "cpu_spread": 0.02,
    "threads": 2,
    "p_cpu_beside_cache": 0.8,
}
HOSTS = [
    {"name": "one", "residents": [PROGRAM], "window": EXAMPLE_WINDOW, "cpus": 4},
    {"name": "two", "residents": [PROGRAM | {"name": "other"}] * 2, "metrics": EXAMPLE_ALONE},
]

PLACED = {
    "Pod": {"metadata": {"name": "p", "annotations": {"forerun.dev/graph": "resnet50"}}},
    "Nodes": {"items": [{"metadata": {"name": "n", "labels": {"forerun.dev/device": "l4"}}}]},
}
SERVED = {
    "input-tokens": "1024",
    "output-tokens": "256",
    "concurrency": "16",
    "max-tpot-ms": "400",
    "program": "redis",
}
PLACED_LLM = PLACED | {
    "Pod": {
        "metadata": {
            "name": "s",
            "annotations": {"forerun.dev/llm": "llama-3.1-8b"}
            | {f"forerun.dev/{name}": text for name, text in SERVED.items()},
        },
        "spec": {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
    }
}


def valid_requests(client: httpx.Client) -> list[Asked]:
    """Requests that the application answers with 2xx in this order, in an empty home.

    Args:
        client: client of the application, whose OpenAPI document lists further examples.
    """
    found = [Asked.of_json(preset.endpoint, preset.request) for preset in presets()]
    found += _documented(client.get("/openapi.json").json())
    for asked in found:
        if asked.method == "PUT" and asked.path.startswith("/v1/llm-d/"):
            asked.sent(client)  # other examples are about the deployment that it stores
    found += [
        *_configurations(),
        Asked.of_json("/v1/predict:batch", {"items": [EXAMPLE, EXAMPLE_NETWORK]}),
        Asked.of_json("/v1/colocation", {"candidate": PROGRAM, "host": HOSTS[0]}),
        Asked.of_json("/v1/colocation/rank", {"candidate": PROGRAM, "hosts": HOSTS}),
        Asked.of_json("/v1/colocation/now", {"program": PROGRAM, "window": EXAMPLE_WINDOW}),
        Asked.of_json("/v1/circuit", stored("adder")),
        Asked.of_json("/v1/llm/replay", EXAMPLE_REPLAY),
        Asked.of_json("/v1/training/estimate", EXAMPLE_ESTIMATE),
        Asked.of_json("/v1/training/estimate", example("training_layout")),
        Asked.of_json("/v1/training/plan", EXAMPLE_PLAN),
        Asked.of_json("/v2/models/forerun/infer", EXAMPLE_INFERENCE),
        *(
            Asked.of_json(f"/v1/kubernetes/{verb}", placed)
            for verb in ("filter", "prioritize")
            for placed in (PLACED, PLACED_LLM)
        ),
        *(
            Asked.of_json("/v1/kubernetes/validate", review(pod["Pod"]))
            for pod in (PLACED, PLACED_LLM)
        ),
        *_all_fields(client),
        *_operators(),
        *_uploads(),
        *_read(client),
    ]
    return list(dict.fromkeys(found))


def review(pod: dict[str, Any]) -> dict[str, Any]:
    """A review of a pod, as an API server asks for it."""
    request = {"uid": "a", "kind": {"version": "v1", "kind": "Pod"}, "object": pod}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}


def _documented(document: dict[str, Any]) -> Iterator[Asked]:
    """The examples of bodies in the OpenAPI document."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            media = operation.get("requestBody", {}).get("content", {}).get("application/json", {})
            reference = media.get("schema", {}).get("$ref", "").rpartition("/")[2]
            bodies = [each["value"] for each in media.get("examples", {}).values()]
            bodies += document["components"]["schemas"].get(reference, {}).get("examples", [])
            for body in bodies:
                usual = "forerun" if path.startswith("/v2") else "l4"
                place = path.replace("{name}", str(body.get("name", usual)))
                yield Asked.of_json(place, body, method.upper())


def _all_fields(client: httpx.Client) -> Iterator[Asked]:
    """Questions that give every optional field of sheet, software and set-up."""
    own = {"name": "mine", "title": "Mine", "aliases": []}
    sheets = [client.get(f"/v1/devices/{name}").json() | own for name in SHEETS]
    graph = read_graph((LIGHT / "light_squeezenet.onnx").read_bytes()).to_json()
    network = {"kind": "network", "graph": graph, "batch_size": 8, "precision": "amp"}
    generates = network | {"graph": "gpt2", "inference": INFERENCE}
    trained = network | {"graph": "bert-base", "phase": "training", "training": TRAINING}
    for workload in (network, generates, trained):
        for sheet in sheets:
            asked = {"workload": workload, "device": sheet}
            yield Asked.of_json("/v1/predict", asked | {"software": SOFTWARE})
        limits = {"latency_ms": 1e6, "power_w": 1e4, "peak_memory_mib": 1e6, "in_domain_only": True}
        asked = {"workload": workload, "devices": ["l4", sheets[0]], "limits": limits}
        yield Asked.of_json("/v1/rank", asked | {"operation": {"power_limit_w": 100}})
    for sheet in sheets[::2]:
        yield Asked.of_json("/v1/llm/estimate", EXAMPLE_LLM | {"device": sheet})
        yield Asked.of_json("/v1/llm/estimate", EXAMPLE_DEPLOYMENT | {"device": sheet})
        yield Asked.of_json("/v1/diffusion/estimate", EXAMPLE_DIFFUSION | {"device": sheet})
        yield Asked.of_json("/v1/power/sweep", {"workload": network, "device": sheet})
    rows = [{"workload": network, "metrics": {"latency_ms": 3.5, "power_w": 60}, "spread": 0.02}]
    yield Asked.of_json("/v1/devices/t4/measurements", {"measurements": rows})
    answer = {"latency_ms": {"value": 3.3, "low": 3.0, "high": 4.0, "version": "a"}}
    observed = [rows[0] | {"answer": answer}, *rows]
    content = {"measurements": observed, "source": "observe"}
    yield Asked.of_json("/v1/devices/t4/measurements", content)
    yield from (Asked.of_json("/v1/devices/mine", sheet, "PUT") for sheet in sheets)


def _configurations() -> Iterator[Asked]:
    """Language models by their config.json: dense, of experts, hybrid, quantised, of two halves."""
    for name in ("llama-3.1-8b", "deepseek-r1", "nvidia/Qwen3-32B-NVFP4", "flan-t5-xl"):
        model = {"config": named_config(name), "max_sequences": 8, "tensor_parallel": 8}
        asked = {"model": model, "device": "b200", "device_count": 8}
        yield Asked.of_json("/v1/llm/estimate", asked)


def _operators() -> Iterator[Asked]:
    """One operator of every kind in two networks, alone on a device."""
    operators = {
        each["kind"]: {name: each[name] for name in each if name in OperatorIn.model_fields}
        for name in ("resnet50", "bert-base", "efficientnet-b0")
        for each in network_named(name).to_json()["operators"]
    }
    for device, precision in (("rtx-4090", "fp16"), ("xeon-platinum-8480-plus", "fp32")):
        for operator in operators.values():
            workload = {"kind": "kernel", "operator": operator, "precision": precision}
            yield Asked.of_json("/v1/predict", {"workload": workload, "device": device})


def _uploads() -> Iterator[Asked]:
    files = [(LIGHT / f"light_{name}.onnx").read_bytes() for name in ("squeezenet", "shufflenet")]
    for file in files:
        yield Asked("POST", "/v1/graphs", "batch_size=2&image_size=224", file, BINARY)
        yield Asked("POST", "/v1/predict/model", "device=l4&precision=amp", file, BINARY)
    yield Asked("POST", "/v1/predict/model", "device=xeon-platinum-8480-plus", files[0], BINARY)
    graph = Asked.of_json("/v1/graphs", example("graph"))
    yield graph
    yield Asked("POST", "/v1/predict/model", MODEL, graph.body)


def _read(client: httpx.Client) -> Iterator[Asked]:
    """Requests without a body: of the interface, and of pages with a filled form."""
    digest = client.post("/v1/graphs", json=example("graph")).json()["digest"]
    measured = "/v1/devices/l4/measurements"
    for path in ("/v1/workloads", "/v1/presets", "/v1/models", "/v1/devices/l4", measured,
                 "/v1/drift", "/v1/llm/support", f"/v1/graphs/{digest}", "/healthz", "/readyz",
                 "/metrics", "/v1/kubernetes/table", "/v2", "/v2/health/live", "/v2/health/ready",
                 "/v2/models/forerun", "/v2/models/forerun/ready", "/v1/llm-d/l4",
                 "/v1/llm-d/l4/status"):  # fmt: skip
        yield Asked("GET", path)
    yield Asked("GET", "/v1/devices", "kind=gpu&vendor=nvidia")
    yield Asked("GET", "/v1/leaderboard", "dataset=torch_gpu")
    for path in PAGES:
        yield Asked("GET", path)
    filled = {"/": FORM, "/curves": FORM, "/compare": FORM, "/power": ONE_DEVICE, "/llm": LLM_FORM}
    for path, form in (*filled.items(), ("/llm", NAMED_FORM)):
        yield Asked("GET", path, form)
