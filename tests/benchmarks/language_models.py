"""What estimates of deployed language models cost over HTTP, one at a time and 1,000 at once."""

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.testclient import TestClient

from forerun.models.artifact.loading import bundled
from forerun.service.http.app import create_app
from forerun.service.settings import Settings

LIMITS = {
    "llm_estimate_p95_s": ("<", 0.02),
    "llm_estimate_over_bare": ("<", 16.0),
    "llm_1000_estimates_s": ("<", 2.0),
    "llm_1000_estimates_over_one": ("<", 300.0),
}
"""The yardstick of one estimate is an endpoint that returns a constant."""


def language_models() -> dict[str, float]:
    """Seconds of estimates that were not asked before, through the application without a socket."""
    bare = FastAPI()
    bare.post("/")(lambda: {})
    with tempfile.TemporaryDirectory() as home:
        app = create_app(Settings(home=Path(home)), bundled())
        with TestClient(app) as client, TestClient(bare) as other:
            ask = "/v1/llm/estimate"
            single = [_seconds(client, ask, _question(number)) for number in range(120)][20:]
            least = min(_seconds(other, "/", {}) for _ in range(100))
            batches = [
                {"items": [_question(1000 * run + number) for number in range(1000)]}
                for run in range(1, 4)
            ]
            together = min(_seconds(client, f"{ask}:batch", batch) for batch in batches)
    return {
        "llm_estimate_p95_s": statistics.quantiles(single, n=20)[-1],
        "llm_estimate_over_bare": min(single) / least,
        "llm_1000_estimates_s": together,
        "llm_1000_estimates_over_one": together / min(single),
    }


def _question(number: int) -> dict[str, Any]:
    models = ("meta-llama/Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-70B", "Qwen/Qwen3-30B-A3B")
    devices = ("h100-sxm-80gb", "a100-sxm-80gb", "l40s")
    return {
        "model": models[number % 3],
        "device": devices[number // 3 % 3],
        "tensor_parallel_size": (1, 2, 4, 8)[number // 9 % 4],
        "input_tokens": 100 + number,
        "output_tokens": 64 + number % 200,
        "max_concurrency": 1 + number % 64,
    }


def _seconds(client: TestClient, path: str, body: dict[str, Any]) -> float:
    start = time.perf_counter()
    client.post(path, json=body).raise_for_status()
    return time.perf_counter() - start
