"""No answer about a deployed language model is faster than its devices allow, nor any interval."""

from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.features.llm_serving.least_times import least_times
from forerun.service.answers.llm.estimates import llm_estimate
from forerun.service.answers.llm.question import question_of
from forerun.service.schemas.serving import LlmEstimateIn
from tests.devices import CATALOG
from tests.service.answers.llm.predictors import IN_USE, estimated

DEVICES = ("l40s", "l4", "rtx-4090", "a100-sxm-80gb", "a10g", "h100-sxm-80gb", "b200-sxm-180gb")
MODELS = ("llama-3.1-8b", "meta-llama/Meta-Llama-3.1-70B", "Qwen/Qwen3-30B-A3B")


@given(
    model=st.sampled_from(MODELS),
    device=st.sampled_from(DEVICES),
    quantization=st.sampled_from([None, "fp8", "int4"]),
    tensor_parallel_size=st.sampled_from([1, 4]),
    concurrency=st.integers(1, 300),
    input_tokens=st.integers(1, 20_000),
    output_tokens=st.integers(2, 4_000),
)
def test_no_end_of_an_interval_is_beyond_the_spec_sheet(quantization, **asked):
    model = {"name": asked.pop("model"), "quantization": quantization}
    given = LlmEstimateIn.model_validate({"model": model, **asked})
    query = question_of(given, CATALOG.get).query
    answer = llm_estimate(given, CATALOG.get, IN_USE)
    found = answer.metrics
    if not all(pool.fits for pool in answer.deployment.memory):
        assert set(found) == {"peak_memory_mib"}
        return
    least = least_times([query], np.ones(1))
    tpot_ms, ttft_ms = 999.99 * least.tpot[0], 999.99 * least.ttft[0]
    latency_ms = ttft_ms + (asked["output_tokens"] - 1) * tpot_ms
    assert found["tpot_ms"].low >= tpot_ms
    assert min(found["ttft_ms"].low, found["ttft_service_ms"].low) >= ttft_ms
    assert found["request_latency_ms"].low >= latency_ms
    assert found["requests_per_s"].high <= 1.01e3 * asked["concurrency"] / latency_ms
    tokens_ms = (asked["output_tokens"] - 1) * found["tpot_ms"].value
    latency = found["request_latency_ms"].value
    assert latency == pytest.approx(found["ttft_ms"].value + tokens_ms, rel=1e-3)
    rate = found["requests_per_s"].value
    assert rate == pytest.approx(1e3 * asked["concurrency"] / latency, rel=1e-3)
    assert "power_w" not in found or found["power_w"].value <= query.device.tdp_w


def test_prompts_are_answered_no_faster_than_the_arithmetic_peak():
    """Two operations for each of 7.5e9 weights and 1,024 tokens are 15.4 TFLOP; a peak of 989."""
    given = {"device": "h100-sxm-80gb", "input_tokens": 1024, "output_tokens": 1}
    for concurrency in (32, 256):
        found = estimated(model="llama-3.1-8b", **given, concurrency=concurrency).metrics
        assert found["requests_per_s"].high < 989.0 / 14.0
        assert found["requests_per_s"].value < 0.75 * 989.0 / 14.0
        assert "tpot_ms" not in found
        latency = found["request_latency_ms"].value
        assert latency == pytest.approx(1e3 * concurrency / found["requests_per_s"].value)
        assert found["ttft_ms"].value == pytest.approx(latency)


@pytest.mark.parametrize(("device", "tflops"), [("h100-sxm-80gb", 990.0), ("l4", 121.0)])
@pytest.mark.parametrize("count", [8, 64, 512])
@pytest.mark.parametrize("output_tokens", [1, 8])
def test_prompts_of_a_burst_are_read_one_after_the_other(device, tflops, count, output_tokens):
    """Two operations for each of 6.979e9 weights and 4,096 tokens, and causal attention."""
    prompt_ms = (2 * 6.979e9 * 4096 + 2 * 32 * 4096 * 4096**2) / tflops / 1e9
    given = {"device": device, "input_tokens": 4096, "output_tokens": output_tokens}
    found = estimated(model="llama-3.1-8b", **given, num_prompts=count).metrics
    for name in ("ttft_ms", "request_latency_ms"):
        assert found[name].value >= found[name].low >= prompt_ms * (count + 1) / 2
    assert found["requests_per_s"].high <= 1e3 / prompt_ms


APART = {"workers": 4, "prefill": {"workers": 1, "parallelism": {"tensor": 1}}}


def test_estimates_that_the_sheet_moves_keep_both_ends_of_their_intervals():
    """Prompts of one worker are answered no faster than it computes, however many wait."""
    given = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "isl": 1024, "osl": 256, "tp": 1}
    numbers = (128, 256, 1024, 1500)
    found = {number: estimated(**given, **APART, concurrency=number) for number in numbers}
    tpot = [found[number].metrics["tpot_ms"].value for number in (256, 1500)]
    assert tpot[0] == pytest.approx(tpot[1]), "the others wait for the worker with prompts"
    for answer in found.values():
        for name in ("requests_per_s", "tokens_per_s", "request_latency_ms", "ttft_ms"):
            own = answer.metrics[name]
            assert own.low < 0.8 * own.value, name
            assert own.high > 1.2 * own.value, name
        rate, latency = (answer.metrics[name] for name in ("requests_per_s", "request_latency_ms"))
        # A rate is at least that of fewer requests in flight, at the lower end of its interval too.
        assert rate.value / rate.low < 1.02 * latency.high / latency.value
    free, *moved = (answer.metrics["requests_per_s"] for answer in found.values())
    for own in moved:
        assert own.low / own.value == pytest.approx(free.low / free.value, rel=0.45)
    capacity = estimated(**given, **APART, requests_per_s=1.0).deployment.capacity
    assert capacity.low < 0.8 * capacity.requests_per_s
    assert 1.2 * capacity.requests_per_s < capacity.high


@given(output_tokens=st.integers(1, 300), tokens=st.integers(64, 4096))
def test_one_request_in_flight_and_rare_arrivals_are_the_same(output_tokens, tokens):
    given = {"model": "llama-3.1-8b", "device": "a100-sxm-80gb", "input_tokens": tokens}
    given["output_tokens"] = output_tokens
    closed, rare = (
        estimated(**given, **load).metrics
        for load in ({"concurrency": 1}, {"requests_per_s": 1e-4})
    )
    for name in ("ttft_ms", "ttft_service_ms"):
        assert closed[name].value == pytest.approx(rare[name].value, rel=0.1)
        assert closed[name].high == pytest.approx(rare[name].high, rel=0.1)
        assert closed[name].high / closed[name].low < 4.5, "it waits for no other prompt"
        assert rare[name].grade == "C", "no measured run has requests that arrive one by one"


def test_intervals_of_the_first_token_hold_lone_prompts_of_splitwise():
    """None of these rows trains the predictor of deployments."""
    table = pd.read_parquet(str(files("forerun.data") / "llm_tables/splitwise/perf_model.parquet"))
    lone = table[(table["batch_size"] == 1) & (table["token_size"] == 128)]
    lone = lone[lone["hardware"].isin(("a100-80gb", "h100-80gb"))]
    keys = ["model", "hardware", "tensor_parallel", "prompt_size"]
    measured = lone.groupby(keys)["prompt_time_ms"].median()
    assert len(measured) == 49
    held = 0
    for (model, hardware, tensor, tokens), ms in measured.items():
        name = {"llama2-70b": "llama-2-70b", "bloom-176b": "bloom"}[model]
        device = hardware.replace("-80gb", "-sxm-80gb")
        load = {"input_tokens": tokens, "output_tokens": 128, "concurrency": 1, "tp": tensor}
        engine = {"backend": "vllm", "engine": {"version": "0.2.2"}}
        found = estimated(model=name, device=device, **load, **engine).metrics["ttft_ms"]
        assert found.high / found.low < 4.5
        held += found.low <= ms <= found.high
    assert held >= 0.9 * len(measured)


def test_eight_billion_parameters_on_an_l40s_are_read_in_no_less_than_the_sheet_says():
    """15.0 GB of weights without the table of inputs at 864 GB/s, and the caches of 32 requests."""
    given = {"device": "l40s", "input_tokens": 1024, "output_tokens": 256, "concurrency": 32}
    found = estimated(model="llama-3.1-8b", **given).metrics["tpot_ms"]
    cache_gb = 30 * 32 * 2 * 8 * 128 * 2.0 * (1024 + 128) / 1e9
    assert (15.0 + cache_gb) / 0.864 < found.low < 0.8 * found.value


@pytest.mark.parametrize("model", ["llama-3.1-8b", "meta-llama/Meta-Llama-3.1-70B"])
@pytest.mark.parametrize("concurrency", [64, 256, 1024])
def test_prompts_and_answers_together_take_no_more_than_the_arithmetic_peak(model, concurrency):
    """Two operations for each weight of the layers and each token, of prompts and of answers."""
    weights, tensor = {"llama-3.1-8b": (6.98e9, 1)}.get(model, (68.5e9, 4))
    given = {"device": "a100-sxm-80gb", "input_tokens": 128, "output_tokens": 128, "tp": tensor}
    rate = estimated(model=model, **given, concurrency=concurrency).metrics["requests_per_s"]
    tflops = [2.0 * weights * 255 * each / tensor / 1e12 for each in (rate.value, rate.high)]
    assert tflops[0] < 0.78 * 312.0
    assert tflops[1] < 312.0
