"""Requests that arrive faster than they can be answered wait without end, and answers say so."""

import re
from itertools import pairwise, product

import pytest
from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.http.app import create_app
from forerun.service.schemas.llm.answers import PoolMemoryOut
from forerun.service.settings import Settings

OPEN = {"model": "llama-3.1-8b", "device": "h100_sxm", "isl": 1024, "osl": 256, "tp": 1}
ENDLESS = ("ttft_ms", "request_latency_ms")
RATES = ("requests_per_s", "tokens_per_s", "tokens_per_s_per_device")


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    settings = Settings(home=tmp_path_factory.mktemp("arrivals"))
    with TestClient(create_app(settings, bundled())) as client:

        def asked(**changes):
            answer = client.post("/v1/llm/estimate", json={**OPEN, **changes})
            assert answer.status_code == 200, answer.text
            return answer.json()

        yield asked


@pytest.fixture(scope="module")
def capacity(ask):
    return ask(requests_per_s=1.0)["deployment"]["capacity"]


def test_the_capacity_does_not_depend_on_the_rate_that_is_asked(ask, capacity):
    assert capacity["low"] < capacity["requests_per_s"] < capacity["high"]
    for rate in (capacity["low"], capacity["requests_per_s"], 1e4):
        found = ask(requests_per_s=rate)["deployment"]["capacity"]
        assert found == pytest.approx(capacity)


def test_the_capacity_is_the_rate_of_a_closed_loop_that_takes_every_place(ask, capacity):
    taken, whole = (ask(concurrency=number)["metrics"] for number in (4096, 352))
    found = taken["requests_per_s"]["value"]
    assert capacity["requests_per_s"] == pytest.approx(found, rel=0.05)
    assert whole["requests_per_s"]["value"] < found
    assert ask(concurrency=8)["deployment"]["capacity"] is None


def test_requests_are_admitted_until_they_fill_the_memory(ask):
    """As many whole requests fit as `largest_concurrency`; further ones run at once until they
    fill the memory halfway through their answers, and a limit says how many wait.
    """
    assert ask(concurrency=352)["deployment"]["memory"][0]["largest_concurrency"] == 352
    few, many = (ask(concurrency=number) for number in (380, 512))
    assert many["limits"][0].startswith("512 requests are in flight, and 391 run at once")
    assert not any("run at once" in line for line in few["limits"])
    assert few["deployment"]["capacity"] is None
    assert not many["in_domain"]
    for load, said in (
        (100, "352 such requests"),
        (380, "at full length, fewer than are in flight"),
    ):
        memory = PoolMemoryOut(**ask(concurrency=load)["deployment"]["memory"][0])
        assert memory.sentence().endswith(said)


@pytest.mark.parametrize("device", ["h100_sxm", "l40s"])
def test_requests_in_flight_without_a_place_add_to_the_queue_and_not_to_the_rate(ask, device):
    few, many = (ask(device=device, concurrency=number) for number in (512, 4096))
    for own, number in ((few, 512), (many, 4096)):
        found, capacity = own["metrics"], own["deployment"]["capacity"]
        rate, latency = found["requests_per_s"], found["request_latency_ms"]
        ends = [rate[end] for end in ("value", "low", "high")]
        expected = [capacity[end] for end in ("requests_per_s", "low", "high")]
        assert ends == pytest.approx(expected)
        assert latency["value"] == pytest.approx(1e3 * number / rate["value"], rel=1e-6)
        tokens = 255 * found["tpot_ms"]["value"]
        assert found["ttft_ms"]["value"] + tokens == pytest.approx(latency["value"], rel=1e-6)
        for name in ("ttft_ms", "request_latency_ms"):
            assert found[name]["low"] < found[name]["value"] < found[name]["high"]
        assert found["requests_per_s"]["grade"] == "C"
        assert "the others wait" in own["limits"][0]
    same = ("requests_per_s", "tokens_per_s", "tpot_ms", "ttft_service_ms", "power_w")
    for name, end in product(same, ("value", "low", "high")):
        assert few["metrics"][name][end] == pytest.approx(many["metrics"][name][end])


EDGE = (0.5, 0.7, 0.75, 0.78, 0.8, 0.9, 0.98, 0.999, 1.001, 1.02, 1.1, 1.5, 4.0)
"""Requests in flight over places, from fewer than fit the memory with their answers on."""


@pytest.mark.parametrize(
    ("model", "device", "engine", "places"),
    [
        ("qwen3-8b", "h100_sxm", "vllm", 446),
        ("llama-3.1-8b", "h100_sxm", "vllm", 504),
        ("llama-3.1-8b", "l40s", "sglang", 233),
        ("qwen3-30b-a3b", "b200-sxm-180gb", "trtllm", 1009),
    ],
)
def test_no_more_load_is_answered_as_faster(ask, model, device, engine, places):
    asked = {"model": model, "device": device, "engine": engine}
    loads = [round(share * places) for share in EDGE]
    found = [ask(**asked, concurrency=load)["metrics"] for load in loads]
    for name in ("tpot_ms", "ttft_ms", "ttft_service_ms", "request_latency_ms", "tokens_per_s"):
        values = [one[name]["value"] for one in found]
        assert all(more >= (1 - 1e-9) * less for less, more in pairwise(values)), name


def test_one_request_more_changes_times_by_little(ask):
    for number in (348, 349, 350, 391, 392, 445, 446):
        one, two = (ask(model="qwen3-8b", concurrency=n)["metrics"] for n in (number, number + 1))
        for name in ("tpot_ms", "request_latency_ms", "requests_per_s"):
            assert two[name]["value"] == pytest.approx(one[name]["value"], rel=0.01), name
        rise = two["ttft_ms"]["value"] - one["ttft_ms"]["value"]
        assert 0.0 <= rise < 0.01 * one["request_latency_ms"]["value"]


def test_below_the_capacity_requests_are_answered_as_they_arrive(ask, capacity):
    rate = 0.5 * capacity["low"]
    own = ask(requests_per_s=rate)
    assert own["metrics"]["requests_per_s"]["value"] == rate
    assert own["metrics"]["requests_per_s"]["low"] == rate
    assert set(ENDLESS) <= set(own["metrics"])
    assert not any("queue" in line for line in own["limits"])


def test_replicas_are_as_many_as_keep_up_with_their_share_of_the_arrivals(ask, capacity):
    low = capacity["low"]
    for share, count in ((0.5, 1), (1.01, 2), (2.99, 3), (3.01, 4)):
        own = ask(requests_per_s=share * low)["deployment"]
        assert own["replicas"] == count
        alone = ask(requests_per_s=share * low / count)
        assert alone["deployment"]["replicas"] == 1
        assert set(ENDLESS) <= set(alone["metrics"])
    assert ask(concurrency=8)["deployment"]["replicas"] is None


def test_what_does_not_fit_keeps_up_with_no_rate(ask):
    own = ask(model="llama-3.3-70b", tensor_parallel_size=1, requests_per_s=3.0)
    assert not own["deployment"]["memory"][0]["fits"]
    assert own["deployment"]["capacity"] is None
    assert own["deployment"]["replicas"] is None
    assert not any("capacity" in line for line in own["limits"])


def test_above_the_capacity_rates_and_price_are_those_of_the_capacity(ask, capacity):
    own = ask(requests_per_s=100 * capacity["requests_per_s"], usd_per_device_hour=3.0)["metrics"]
    assert own["requests_per_s"]["value"] == pytest.approx(capacity["requests_per_s"])
    for name in (*RATES, "usd_per_million_tokens"):
        assert own[name]["low"] < own[name]["value"] < own[name]["high"]
        assert own[name]["grade"] == "C"


def test_above_the_capacity_what_limits_it_is_the_same_at_any_rate(ask, capacity):
    most = capacity["requests_per_s"]
    bounds = [ask(requests_per_s=share * most)["deployment"] for share in (0.5, 2.0, 3.0, 10.0)]
    below, *above = (own["limited_by"] for own in bounds)
    assert below == "arrival rate"
    assert len(set(above)) == 1
    assert above[0] != "arrival rate"


def test_above_the_capacity_memory_has_its_usual_reason(ask, capacity):
    below, above = (
        ask(requests_per_s=share * capacity["requests_per_s"])["metrics"]["peak_memory_mib"]
        for share in (0.1, 10.0)
    )
    assert below["low"] is above["low"] is None
    assert (below["grade"], below["grade_reason"]) == (above["grade"], above["grade_reason"])


def test_where_it_may_not_keep_up_times_are_known_and_rates_are_at_most_the_capacity(ask, capacity):
    rate = (capacity["low"] * capacity["requests_per_s"]) ** 0.5
    own = ask(requests_per_s=rate)
    below = ask(requests_per_s=0.5 * capacity["low"])["metrics"]
    for name in ENDLESS:
        one, two = own["metrics"][name], below[name]
        assert one["low"] < one["value"] < one["high"]
        assert one["high"] / one["low"] > two["high"] / two["low"]
    answered = own["metrics"]["requests_per_s"]
    assert answered["value"] == answered["high"] == pytest.approx(rate)
    assert answered["low"] == pytest.approx(capacity["low"])
    assert re.search("with a probability of [0-9]+ % the queue grows without", own["limits"][0])
    assert not any(limit["severity"] == "refusal" for limit in own["limit_details"])


def test_from_the_capacity_on_no_time_with_queueing_is_known(ask, capacity):
    """A queue without bound has no steady time, and more likely than not there is one."""
    value, high = capacity["requests_per_s"], capacity["high"]
    for rate, words in [
        (1.001 * value, "with a probability of 50 % the queue grows"),
        ((value * high) ** 0.5, "% the queue grows without bound"),
        (1.001 * high, "can be answered: the queue grows without bound"),
        (100 * value, "can be answered: the queue grows without bound"),
    ]:
        own = ask(requests_per_s=rate)
        assert not set(ENDLESS) & set(own["metrics"])
        assert all(words in own["missing"][name] for name in ENDLESS)
        assert own["limit_details"][0]["severity"] == "refusal"
        assert not own["in_domain"]
        answered = own["metrics"]["requests_per_s"]
        assert answered["value"] == pytest.approx(value)
        assert answered["high"] == pytest.approx(min(rate, high))
    below = ask(requests_per_s=0.999 * value)
    assert set(ENDLESS) <= set(below["metrics"])


@pytest.mark.parametrize("level", [50, 99])
def test_sentences_about_the_capacity_have_its_range_at_the_level_that_is_asked(
    ask, capacity, level
):
    for share in (0.9, 1.3):
        own = ask(requests_per_s=share * capacity["requests_per_s"], level=level)
        held = own["deployment"]["capacity"]
        assert (held["low"] > capacity["low"]) == (level < 90)
        said = f"({held['low']:.3g} to {held['high']:.3g}) can be answered"
        assert said in own["limits"][0]
        reasons = [one["grade_reason"] for one in own["metrics"].values()]
        assert all(said in reason for reason in reasons if "can be answered" in reason)
        assert any(said in reason for reason in reasons)


def test_times_rise_without_a_step_up_to_those_of_a_full_deployment(ask, capacity):
    first, high = 0.9 * capacity["requests_per_s"], capacity["high"]
    shares = (0.0, 0.2, 0.4, 0.6, 0.8, 0.999, 1.001)
    rates = [first * (high / first) ** share for share in shares]
    every = [ask(requests_per_s=rate)["metrics"] for rate in rates]
    for name in ("tpot_ms", "ttft_service_ms"):
        own = [one[name]["value"] for one in every]
        assert all(before <= after for before, after in pairwise(own[:-1]))
        assert own[-2] == pytest.approx(own[-1], rel=0.02)


def test_twice_the_workers_keep_up_with_about_twice_as_much(ask, capacity):
    two = ask(requests_per_s=1.0, device_count=2, data_parallel_size=2)
    found = two["deployment"]["capacity"]["requests_per_s"] / capacity["requests_per_s"]
    assert found == pytest.approx(2.0, rel=0.3)


def test_requests_longer_than_the_context_of_the_model_are_said_to_be(ask):
    own = ask(model="llama-2-7b", isl=4000, osl=200, concurrency=1)
    (limit,) = [one for one in own["limit_details"] if "the model takes" in one["message"]]
    assert limit["severity"] == "refusal"
    assert limit["message"] == "requests have 4,200 tokens, and the model takes 4,096"
    shorter = ask(model="llama-2-7b", isl=3800, osl=200, concurrency=1)
    assert not any("the model takes" in line for line in shorter["limits"])


@pytest.mark.parametrize(
    ("model", "device", "tensor"),
    [
        ("deepseek-ai/DeepSeek-V2-Lite", "a100-sxm-80gb", 2),
        ("mistralai/Mixtral-8x7B-v0.1", "a100-sxm-80gb", 4),
        ("llama-3.1-8b", "h100-sxm-80gb", 1),
    ],
)
def test_no_closed_loop_has_a_greater_rate_than_the_capacity(ask, model, device, tensor):
    """Models with experts and latent attention are predicted to peak before their batch is full."""
    asked = {"model": model, "device": device, "tp": tensor}
    capacity = ask(**asked, requests_per_s=0.5)["deployment"]["capacity"]["requests_per_s"]
    for concurrency in (8, 32, 100, 194, 256, 310, 353, 512, 1000):
        rate = ask(**asked, concurrency=concurrency)["metrics"]["requests_per_s"]["value"]
        assert rate < 1.02 * capacity


def test_near_the_capacity_times_with_queueing_are_said_to_be_extrapolated(ask, capacity):
    most = capacity["requests_per_s"]
    for share in (0.9001, 0.97, 0.999):
        own = ask(requests_per_s=share * most)
        assert set(ENDLESS) <= set(own["metrics"])
        (note,) = [one for one in own["limit_details"] if "queueing formula" in one["message"]]
        assert f"at {100 * share:.4g} % of the capacity: from 90 % on" in note["message"]
        assert note["severity"] == "note"
    for share in (0.1, 0.5, 0.89, 10.0):
        own = ask(requests_per_s=share * most)
        assert not any("queueing formula" in line for line in own["limits"])


def test_arrivals_below_the_capacity_are_not_said_to_be_too_many(ask, capacity):
    own = ask(requests_per_s=0.9 * capacity["requests_per_s"])
    assert not any("closed form" in line for line in own["limits"])
