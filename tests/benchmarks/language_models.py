"""What estimates of deployed language models cost over HTTP, one at a time and 1,000 at once."""

import gc
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import bundled
from tests.benchmarks.timing import clients, seconds

LIMITS = {
    "llm_estimate_p95_s": ("<", 0.02),
    "llm_estimate_over_bare": ("<", 16.0),
    "llm_1000_estimates_s": ("<", 2.0),
    "llm_1000_estimates_over_one": ("<", 300.0),
    "llm_arrivals_p95_s": ("<", 0.02),
    "llm_arrivals_over_closed_loop": ("<", 3.0),
    "llm_1000_arrivals_s": ("<", 2.0),
    "llm_1000_arrivals_over_one": ("<", 300.0),
}
"""The yardstick of one estimate is an endpoint that returns a constant; that of one with requests
which arrive at a rate, whose times follow from those of some ten closed loops, is one of a closed
loop."""


def figures() -> dict[str, float]:
    """Seconds of estimates that were not asked before, through the application without a socket."""
    with clients(bundled()) as (client, bare), _loaded_for_good():
        ask = "/v1/llm/estimate"
        least = min(_seconds(bare, "/", {}) for _ in range(100))
        single, arrivals = [], []
        for number in range(120):
            single.append(_seconds(client, ask, _question(number)))
            arrivals.append(_seconds(client, ask, _arrivals(number)))
        single, arrivals = single[20:], arrivals[20:]
        together, many_arrivals = (
            min(
                _seconds(client, f"{ask}:batch", {"items": [*map(question, numbers)]})
                for numbers in (range(1000 * run, 1000 * run + 1000) for run in range(1, 4))
            )
            for question in (_question, _arrivals)
        )
    return {
        "llm_estimate_p95_s": statistics.quantiles(single, n=20)[-1],
        "llm_estimate_over_bare": min(single) / least,
        "llm_1000_estimates_s": together,
        "llm_1000_estimates_over_one": together / min(single),
        "llm_arrivals_p95_s": statistics.quantiles(arrivals, n=20)[-1],
        "llm_arrivals_over_closed_loop": min(arrivals) / min(single),
        "llm_1000_arrivals_s": many_arrivals,
        "llm_1000_arrivals_over_one": many_arrivals / min(arrivals),
    }


@contextmanager
def _loaded_for_good() -> Iterator[None]:
    """What is loaded is never examined by the garbage collector, as in `forerun serve`."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _arrivals(number: int) -> dict[str, Any]:
    """The same deployments with requests that arrive at a rate."""
    closed = _question(number)
    del closed["max_concurrency"]
    return {**closed, "requests_per_s": 0.25 * (1 + number % 40)}


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
    return seconds(lambda: client.post(path, json=body).raise_for_status())
