"""The closed form of an open loop, next to the event model on the same load."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.language_models.requests import Requests
from forerun.models.llm_serving.open_loop import open_loop
from forerun.models.llm_serving.replay import replay
from forerun.models.llm_serving.statistics import Statistics
from forerun.models.llm_serving.worker import Worker
from tests.features.llm_serving.deployments import dense_model
from tests.models.llm_serving.naive import LinearTime

WORKER = Worker(LinearTime(), capacity_tokens=400_000)
CHAT = RequestLoad(1000, 200, requests_per_s=1.0, input_variation=0.8, output_variation=0.8)
CODE = RequestLoad(2000, 30, requests_per_s=1.0, input_variation=0.9, output_variation=1.0)
WRITING = RequestLoad(200, 1000, requests_per_s=1.0, input_variation=0.3, output_variation=0.5)


def deployed(load, share=None, engine=None, pool=None):
    deployment = LlmDeployment(dense_model(layers=1), load, engine or Engine(), pool or Pool())
    if share is None:
        return deployment
    capacity = open_loop(deployment, WORKER).capacity_requests_per_s
    return replace(deployment, load=replace(load, requests_per_s=share * capacity))


def simulated(deployment, count=2000, seeds=(1, 2, 3)):
    """Times of requests to the first token, of each further token, and to the last, and the rate,
    without those that meet a system that is not yet settled.
    """
    settled, times, rates = slice(count // 5, None), [], []
    for seed in seeds:
        found = replay(Requests.poisson(deployment.load, count, seed), deployment, WORKER)
        times.append([found.ttft_s[settled], found.tpot_s[settled], found.latency_s[settled]])
        rates.append(found.requests_per_s)
    return *(Statistics.of(np.concatenate(x)) for x in zip(*times, strict=True)), np.mean(rates)


@pytest.mark.parametrize("load", [CHAT, CODE, WRITING])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
@pytest.mark.parametrize("chunked", [True, False])
def test_the_closed_form_is_near_the_event_model_up_to_half_of_the_capacity(load, share, chunked):
    deployment = deployed(load, share, Engine(chunked_prefill=chunked))
    answer, (ttft, tpot, latency, _) = open_loop(deployment, WORKER), simulated(deployment)
    assert answer.ttft.mean == pytest.approx(ttft.mean, rel=0.12)
    assert answer.ttft.p50 == pytest.approx(ttft.p50, rel=0.25)
    assert answer.ttft.p90 == pytest.approx(ttft.p90, rel=0.25)
    short = load is CODE
    assert answer.tpot.mean == pytest.approx(tpot.mean, rel=0.4 if short else 0.1)
    assert answer.latency.mean == pytest.approx(latency.mean, rel=0.3 if short else 0.1)


@pytest.mark.parametrize("load", [CHAT, WRITING])
def test_it_is_near_up_to_seven_tenths_where_answers_are_long(load):
    deployment = deployed(load, 0.7)
    answer, (ttft, tpot, _, _) = open_loop(deployment, WORKER), simulated(deployment)
    assert answer.ttft.mean == pytest.approx(ttft.mean, rel=0.1)
    assert answer.tpot.mean == pytest.approx(tpot.mean, rel=0.1)


@pytest.mark.parametrize("load", [CHAT, CODE])
def test_the_capacity_is_the_rate_of_a_rank_that_always_has_requests_waiting(load):
    deployment = deployed(load, 1.5)
    answer, (*_, rate) = open_loop(deployment, WORKER), simulated(deployment)
    assert answer.capacity_requests_per_s == pytest.approx(rate, rel=0.25)
    assert answer.requests_per_s == answer.capacity_requests_per_s


def test_above_the_capacity_there_is_no_time_to_the_first_token():
    answer = open_loop(deployed(CHAT, 1.1), WORKER)
    assert answer.ttft is None
    assert answer.latency is None
    assert answer.utilisation == pytest.approx(1.1)
    assert answer.ttft_service_s > 0
    assert answer.tpot.mean > 0


def test_every_time_rises_with_the_rate():
    answers = [open_loop(deployed(CHAT, share), WORKER) for share in (0.01, 0.2, 0.4, 0.6, 0.7)]
    for times in (
        [a.ttft.mean for a in answers],
        [a.ttft.p99 for a in answers],
        [a.tpot.mean for a in answers],
        [a.latency.mean for a in answers],
        [a.sequences for a in answers],
    ):
        assert times == sorted(times)
        assert times[0] < times[-1]


def test_percentiles_rise_and_hold_the_mean():
    for share in (0.1, 0.5, 0.7):
        answer = open_loop(deployed(CHAT, share), WORKER)
        for times in (answer.ttft, answer.tpot, answer.latency):
            assert times.p50 <= times.p90 <= times.p99
            assert 0.5 * times.p50 < times.mean < times.p99


def test_an_almost_idle_rank_answers_as_fast_as_it_can():
    load = RequestLoad(500, 100, requests_per_s=1e-6)
    answer = open_loop(deployed(load), WORKER)
    prompt = 0.005 + 500 * 2e-5 + 500 * 501 / 2 * 1e-9
    assert answer.ttft.mean == pytest.approx(prompt, rel=1e-3)
    assert answer.ttft_service_s == pytest.approx(prompt, rel=1e-3)
    assert answer.tpot.mean == pytest.approx(0.005 + 1e-5 + 3e-8 * 550, rel=1e-3)
    assert answer.latency.mean == pytest.approx(prompt + 99 * answer.tpot.mean, rel=1e-3)


def test_ranks_share_the_arrivals():
    two = Pool(Parallelism(attention_data=2), workers=3)
    alone, spread = deployed(CHAT), deployed(replace(CHAT, requests_per_s=6.0), pool=two)
    one, six = open_loop(alone, WORKER), open_loop(spread, WORKER)
    assert six.capacity_requests_per_s == pytest.approx(6 * one.capacity_requests_per_s)
    assert six.ttft == one.ttft


def test_answers_of_one_token_have_no_time_per_further_token():
    answer = open_loop(deployed(RequestLoad(500, 1, requests_per_s=2.0)), WORKER)
    assert np.isnan(answer.tpot.mean)
    assert answer.latency.mean == pytest.approx(answer.ttft.mean)


def test_what_limits_the_sequences_is_named():
    assert open_loop(deployed(CHAT), WORKER).limited_by == "cache"
    assert (
        open_loop(deployed(CHAT, engine=Engine(max_sequences=8)), WORKER).limited_by == "sequences"
    )
    assert open_loop(deployed(CODE), WORKER).limited_by == "prompts"


def test_a_load_without_a_rate_is_no_open_loop():
    with pytest.raises(ValueError, match="rate of arrivals"):
        open_loop(LlmDeployment(dense_model(layers=1), RequestLoad(1, 1, concurrency=1.0)), WORKER)
