"""Kernels on four GPUs, with times by a known rule."""

from functools import lru_cache

import numpy as np

from forerun.data.language_models.kernel import ElementwiseKernel, GemmKernel, LlmKernel
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.llm_kernels.families import kernel_groups
from forerun.models.kernel_experts.llm_kernels import LlmKernels
from tests.devices import CATALOG

GPUS = ("a100-sxm-80gb", "h100-sxm-80gb", "h200-sxm-141gb", "l40s")


def kernels(name: str, count: int = 200, seed: int = 0) -> list[Query]:
    """Products in bf16 by two engines, and normalisations, on one GPU."""
    rng, device = np.random.default_rng(seed), CATALOG.get(name)
    queries = []
    for index in range(count):
        m, n, k = (int(size) for size in 2 ** rng.uniform((0, 7, 7), (13, 14, 14)))
        shape = ElementwiseKernel("norm", m, n) if index % 4 == 0 else GemmKernel(m, n, k)
        queries.append(Query(LlmKernel(shape, "vllm" if index % 2 else "sglang"), device))
    return queries


def timed(queries: list[Query], factor: float = 1.0, seed: int = 0) -> Measurements:
    """A launch of 3 us and 1.4 times the longer of both terms, by a factor, with 3 % noise."""
    milliseconds = np.empty(len(queries))
    for group in kernel_groups(queries):
        longest = group.table.parallel_s.max(axis=1)
        milliseconds[group.rows] = (3e-6 + 1.4 * longest) * 1e3
    noise = np.exp(np.random.default_rng(seed).normal(0, 0.03, len(queries)))
    device = np.array([query.device.name for query in queries])
    return Measurements(queries, {"latency_ms": milliseconds * factor * noise}, {"device": device})


@lru_cache(maxsize=1)
def training_rows() -> Measurements:
    """Kernels on A100, H100 and H200."""
    return timed([query for name in GPUS[:3] for query in kernels(name)])


@lru_cache(maxsize=1)
def fitted() -> LlmKernels:
    """A small predictor fitted to them."""
    return LlmKernels(trees=20, other_trees=20).fit(training_rows())
