"""Bursts: between one request and a full server, and their figures agree with each other."""

import pytest

BURST = {"model": "llama-3.1-8b", "device": "h100", "random_input_len": 1024, "osl": 128}


def ask(client, **given):
    answer = client.post("/v1/llm/estimate", json=BURST | given)
    assert answer.status_code == 200, answer.json()
    return {n: one and one["value"] for n, one in answer.json()["metrics"].items()}


def test_one_prompt_at_once_is_one_request_in_flight(client):
    burst = ask(client, num_prompts=1, request_rate="inf")
    alone = ask(client, concurrency=1)
    for name in ("ttft_ms", "tpot_ms", "request_latency_ms"):
        assert burst[name] == pytest.approx(alone[name], rel=0.15)


def test_more_prompts_wait_longer_and_are_written_faster(client):
    found = [ask(client, num_prompts=count) for count in (1, 8, 64, 512)]
    for name in ("ttft_ms", "tpot_ms", "request_latency_ms", "tokens_per_s"):
        values = [one[name] for one in found]
        assert values == sorted(values), name


def test_requests_without_a_place_wait_longer_than_those_with_one(client):
    found = [ask(client, num_prompts=count, max_num_seqs=128) for count in (128, 129, 140, 300)]
    for name in ("ttft_ms", "request_latency_ms"):  # one more round may lower the rate
        values = [one[name] for one in found]
        assert values == sorted(values), name


@pytest.mark.parametrize("tokens", [1, 8])
@pytest.mark.parametrize("changes", [{}, {"max_num_seqs": 64}, {"workers": 2}], ids=str)
def test_a_burst_is_answered_as_a_trace_of_it(client, tokens, changes):
    """Also where requests wait for a place; the only token of an answer ends the request."""
    given = {"model": BURST["model"], "device": "a100", **changes}
    own = ask(client, **given, osl=tokens, num_prompts=320)
    request = {"arrival_s": 0.0, "input_tokens": 1024, "output_tokens": tokens}
    replay = client.post("/v1/llm/replay", json=given | {"requests": [request] * 320}).json()
    for name in ("ttft_ms", "tpot_ms", "request_latency_ms"):
        assert own.get(name) == pytest.approx(replay[name]["mean"]), name
    for name in ("requests_per_s", "tokens_per_s"):
        assert own[name] == pytest.approx(replay[name]), name
    if tokens == 1:
        assert own["request_latency_ms"] == pytest.approx(own["ttft_ms"])
        assert "tpot_ms" not in own


def test_the_figures_of_a_burst_agree(client):
    own = ask(client, num_prompts=64)
    assert own["tokens_per_s"] == pytest.approx(128 * own["requests_per_s"])
    assert own["request_latency_ms"] == pytest.approx(
        own["ttft_ms"] + 127 * own["tpot_ms"], rel=0.01
    )
    assert own["tokens_per_s_per_device"] == own["tokens_per_s"]


def test_a_benchmark_with_another_load_is_a_run_without_an_end(client):
    limited = ask(client, num_prompts=64, max_concurrency=8, request_rate="inf")
    assert limited == ask(client, concurrency=8)


def test_the_rate_of_a_stream_counts_until_its_last_answer(client):
    steady = ask(client, request_rate=4)
    found = [ask(client, request_rate=4, num_prompts=count) for count in (2, 20, 2000)]
    rates = [one["requests_per_s"] for one in found]
    assert rates == sorted(rates)
    span_s = 19 / 4 + steady["request_latency_ms"] / 1e3
    assert rates[1] == pytest.approx(20 / span_s)
    assert rates[2] == pytest.approx(4, rel=0.01)
    for name in ("ttft_ms", "tpot_ms", "request_latency_ms"):
        assert [one[name] for one in found] == [steady[name]] * 3


def test_a_stream_faster_than_it_is_answered_is_between_a_trickle_and_a_burst(client):
    burst = ask(client, num_prompts=3000)
    streams = [ask(client, num_prompts=3000, request_rate=rate) for rate in (1e6, 400, 120)]
    for name in ("ttft_ms", "request_latency_ms"):
        values = [one[name] for one in streams]
        assert values[0] == pytest.approx(burst[name], rel=0.01), name
        assert values == sorted(values, reverse=True), name
    assert "ttft_ms" not in ask(client, request_rate=400)


def test_a_burst_on_a_processor_is_refused(client):
    asked = BURST | {"device": "epyc-9654", "num_prompts": 4}
    answer = client.post("/v1/llm/estimate", json=asked)
    assert answer.status_code == 422
