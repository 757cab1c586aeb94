"""Rows of `llm_inference_bench` and `splitwise`, computed from the closed form."""

import itertools

import numpy as np
import pandas as pd

from forerun.models.llm_serving.latency import LlmLatency
from forerun.training.protocols.language_models.static_batches import RATE, benchmark_rows
from tests.devices import CATALOG

MODEL = "meta-llama/Meta-Llama-3-8B"
FACTORS = {
    "Nvidia A100 GPU": 0.8,
    "Nvidia H100 GPU": 0.7,
    "AMD MI250 GPU": 0.5,
    "Intel PVC GPU": 0.2,
}
"""Accelerator -> made-up rate over that of the closed form."""
RUN = {
    "model": "llama2-70b",
    "hardware": "a100-80gb",
    "tensor_parallel": 8,
    "prompt_size": 512,
    "token_size": 128,
    "batch_size": 4,
    "prompt_time_ms": 100.0,
    "token_time_ms": 40.0,
    "e2e_time_ms": 5000.0,
    "peak_power_frac_tdp": 1.0,
    "avg_power_frac_tdp": 0.8,
}


def row(**changes):
    plain = {
        "hardware": "Nvidia A100 GPU",
        "num_devices": 1,
        "framework": "vLLM",
        "model": MODEL,
        "in_out_len": 128,
        "batch_size": 16,
        "latency_s": 2.0,
        "throughput_tok_s": 2048.0,
    }
    return plain | changes


def benchmark_table(factors=FACTORS, noise=0.03, seed=0):
    """A row for each size, framework and accelerator, at a factor of the closed form."""
    sizes = itertools.product(factors, ("vLLM", "llama.cpp"), (128, 512, 2048), (1, 16, 64))
    rows = [
        row(hardware=hardware, framework=name, in_out_len=length, batch_size=size)
        for hardware, name, length, size in sizes
    ]
    frame = pd.DataFrame(rows)
    closed = LlmLatency().predict(benchmark_rows(frame, CATALOG)[0].queries).values[RATE]
    scatter = np.exp(noise * np.random.default_rng(seed).normal(size=len(frame)))
    frame["throughput_tok_s"] = 2.0 * closed * frame["hardware"].map(factors) * scatter
    many = np.where(frame["framework"] == "llama.cpp", 1, frame["batch_size"])
    frame["latency_s"] = 2.0 * frame["in_out_len"] * many / frame["throughput_tok_s"]
    return frame
