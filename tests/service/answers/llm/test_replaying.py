"""Traces of requests over HTTP: percentiles of their times."""

import pytest

from forerun.data.language_models.engine_formats import not_run
from forerun.features.readers.language_model.quantization import with_formats
from forerun.features.readers.language_model.reader import named_language_model
from tests.devices import CATALOG

DEPLOYMENT = {
    "model": {"name": "llama-3.1-8b"},
    "device": "h100-sxm-80gb",
    "parallelism": {"tensor": 1},
}


def arrivals(count: int, gap_s: float, tokens: int = 500, written: int = 100) -> list[dict]:
    return [
        {"arrival_s": number * gap_s, "input_tokens": tokens, "output_tokens": written}
        for number in range(count)
    ]


def replayed(client, **more) -> dict:
    answer = client.post("/v1/llm/replay", json={**DEPLOYMENT, **more})
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client, **more) -> dict:
    answer = client.post("/v1/llm/replay", json={**DEPLOYMENT, **more})
    assert answer.status_code == 422, answer.text
    return answer.json()


def test_requests_far_apart_meet_no_one_and_take_what_an_estimate_says(adapting):
    found = replayed(adapting, requests=arrivals(20, gap_s=60.0))
    load = {"input_tokens": 500, "output_tokens": 100, "concurrency": 1}
    estimate = adapting.post("/v1/llm/estimate", json={**DEPLOYMENT, **load}).json()["metrics"]
    assert found["tpot_ms"]["p50"] == pytest.approx(estimate["tpot_ms"]["value"], rel=0.1)
    assert found["ttft_ms"]["p50"] == pytest.approx(found["ttft_ms"]["p99"], rel=1e-6)
    # Hardly any measured run had one request in flight.
    assert found["scales"]["basis"] == "transferred"
    assert (found["requests"], found["refused"], found["preempted"]) == (20, 0, 0)


def test_more_requests_at_a_time_wait_longer_and_write_more(adapting):
    slow, fast = (replayed(adapting, requests=arrivals(200, 0.05), speed=s) for s in (1.0, 20.0))
    assert fast["ttft_ms"]["p90"] > slow["ttft_ms"]["p90"]
    assert fast["tokens_per_s"] > slow["tokens_per_s"]
    assert fast["mean_sequences"] > slow["mean_sequences"]
    for found in (slow, fast):
        for name in ("ttft_ms", "tpot_ms", "request_latency_ms"):
            own = found[name]
            assert own["p50"] <= own["p90"] <= own["p99"]


def test_all_tokens_are_written_in_the_span(adapting):
    found = replayed(adapting, requests=arrivals(50, 0.1, written=64), workers=2)
    assert found["tokens_per_s"] * found["span_s"] == pytest.approx(50 * 64)
    assert found["tokens_per_s_per_device"] == pytest.approx(found["tokens_per_s"] / 2)
    assert found["device_count"] == 2


def test_two_workers_are_shared_in_turn_or_by_load(adapting):
    long_and_short = [
        {"arrival_s": 0.01 * n, "input_tokens": 100, "output_tokens": 2000 if n % 2 else 2}
        for n in range(200)
    ]
    turns, loads = (
        replayed(adapting, requests=long_and_short, workers=2, dispatch=dispatch)
        for dispatch in ("round_robin", "least_loaded")
    )
    assert loads["request_latency_ms"]["mean"] < turns["request_latency_ms"]["mean"]


def test_a_public_trace_is_known_by_name(adapting):
    found = replayed(adapting, trace="creation_025_llama")
    assert found["requests"] > 100


def test_without_fitted_times_the_closed_form_answers(client):
    found = replayed(client, requests=arrivals(5, 1.0))
    assert found["scales"] == {"prefill": 1.0, "decode": 1.0, "basis": "analytic"}


def test_a_request_longer_than_the_cache_is_refused_and_counted(adapting):
    long = [{"arrival_s": 0.0, "input_tokens": 3_000_000, "output_tokens": 10}]
    found = replayed(adapting, requests=[*arrivals(300, 1.0), *long])
    assert found["refused"] == 1
    assert found["ttft_ms"]["p99"] is not None


@pytest.mark.parametrize(
    ("more", "named"),
    [
        ({}, "requests or the name"),
        ({"requests": []}, "requests"),
        ({"requests": arrivals(1, 1.0), "trace": "splitwise_conv"}, "requests or the name"),
        ({"requests": [{"arrival_s": 0, "input_tokens": 1}]}, "request 1"),
        ({"requests": [*arrivals(2, 1.0), {"arrival_s": "x"}]}, "request 3"),
        ({"requests": [7]}, "request 1"),
        ({"trace": "nothing"}, "splitwise_conv"),
        ({"requests": arrivals(1, 1.0), "concurrency": 3}, "concurrency"),
        ({"requests": arrivals(1, 1.0), "engin": "vllm"}, "engin"),
        ({"requests": arrivals(1, 1.0), "speed": 0}, "speed"),
    ],
)
def test_what_cannot_be_read_is_named(adapting, more, named):
    assert named in refused(adapting, **more)["detail"]


def test_times_of_arrival_have_any_origin(adapting):
    found = [
        replayed(
            adapting, requests=[one | {"arrival_s": one["arrival_s"] + origin} for one in sent]
        )
        for sent in [arrivals(5, gap_s=0.01)]
        for origin in (-3.0, 0.0, 1e6)
    ]
    assert found[0]["ttft_ms"] == pytest.approx(found[1]["ttft_ms"])
    assert found[2]["ttft_ms"] == pytest.approx(found[1]["ttft_ms"], rel=1e-4)


def test_no_token_is_faster_than_the_memory(adapting):
    """Eight billion weights of two bytes and 100,000 tokens of cache take 8.39 ms at 3,350 GB/s."""
    found = replayed(adapting, requests=arrivals(1, gap_s=0.0, tokens=100_000))
    assert found["tpot_ms"]["p50"] >= 8.39


def test_requests_that_are_longer_than_the_model_takes_are_said(adapting):
    found = replayed(adapting, requests=arrivals(1, gap_s=0.0, tokens=140_000))
    assert any("the model takes 131,072" in limit for limit in found["limits"])
    short = replayed(adapting, requests=arrivals(1, gap_s=0.0))
    assert not any("the model takes" in limit for limit in short["limits"])


def test_processors_and_llama_cpp_are_refused(client):
    requests = arrivals(2, gap_s=1.0)
    assert "concurrency" in refused(client, requests=requests, device="epyc-9654")["detail"]
    llama = {"name": "llama.cpp"}
    assert "concurrency" in refused(client, requests=requests, engine=llama)["detail"]


@pytest.mark.parametrize(
    ("device", "engine", "weights"),
    [("h100", "sglang", "nvfp4"), ("a100", "trtllm", "nvfp4"), ("v100-sxm2-16gb", "vllm", "fp8")],
)
def test_what_an_engine_does_not_run_has_one_reason_and_no_figure_at_every_door(
    adapting, device, engine, weights
):
    given = {"model": {"name": "llama-3.1-8b", "quantization": weights}, "device": device}
    given |= {"engine": {"name": engine}}
    lengths = {"input_tokens": 500, "output_tokens": 100}
    model = with_formats(named_language_model("llama-3.1-8b"), weights=weights)
    reason = not_run(engine, CATALOG.get(device), model)
    why = refused(adapting, requests=arrivals(5, 1.0), **given)["detail"]
    assert why == f"{reason}."
    plan = {"model": given["model"], "engine": given["engine"], "devices": [device], **lengths}
    answer = adapting.post("/v1/llm/plan", json=plan | {"requests_per_s": 1})
    assert (answer.status_code, answer.json()["detail"]) == (422, why)
    for load in ({"concurrency": 4}, {"requests_per_s": 0.1}, {"num_prompts": 4}):
        estimate = adapting.post("/v1/llm/estimate", json=given | lengths | load).json()
        assert estimate["metrics"].keys() == {"peak_memory_mib"}
        assert set(estimate["missing"].values()) == {reason}
        first = estimate["limit_details"][0]
        assert (first["message"], first["severity"]) == (reason, "refusal")
