"""Replays over several ranks and pools."""

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
from forerun.features.llm_serving.engine_settings import tokens_per_iteration
from forerun.features.llm_serving.iteration import Iterations
from forerun.models.llm_serving.continuous_batching import Scheduler
from forerun.models.llm_serving.iteration_table import IterationTable
from forerun.models.llm_serving.replay import replay
from forerun.models.llm_serving.worker import Worker
from tests.features.llm_serving.deployments import dense_model
from tests.models.llm_serving.naive import LinearTime, naive_replay, random_requests

WORKER = Worker(LinearTime(), capacity_tokens=100_000)
LOAD = RequestLoad(300, 60, requests_per_s=12.0, input_variation=0.7, output_variation=0.7)
REQUESTS = random_requests(LOAD, 300, seed=2)
ALONE = LlmDeployment(dense_model(layers=1), LOAD)


def test_ranks_in_turn_serve_as_if_each_were_alone():
    three = replace(ALONE, pool=Pool(Parallelism(attention_data=3)))
    whole = replay(REQUESTS, three, WORKER)
    for rank in range(3):
        own = np.arange(rank, len(REQUESTS), 3)
        alone = replay(REQUESTS.take(own), ALONE, WORKER)
        np.testing.assert_allclose(whole.latency_s[own], alone.latency_s, rtol=1e-3)


def test_dispatch_to_the_least_loaded_shortens_the_longest_waits():
    four = replace(ALONE, pool=Pool(workers=4), engine=Engine(max_sequences=2))
    slow = replace(REQUESTS, arrival_s=REQUESTS.arrival_s * 2)
    turn, least = (replay(slow, four, WORKER, dispatch=d) for d in ("round_robin", "least_loaded"))
    assert np.percentile(least.ttft_s, 99) < np.percentile(turn.ttft_s, 99)


def test_a_pool_for_prompts_writes_the_first_token_and_hands_over():
    apart = replace(ALONE, prefill=Pool())
    lone = Requests(np.array([0.0]), np.array([200]), np.array([10]))
    found = replay(lone, apart, WORKER, WORKER, handover_s_per_token=1e-4)
    prompt = 0.005 + 200 * 2e-5 + 1e-9 * 200 * 201 / 2
    assert found.ttft_s[0] == pytest.approx(prompt, rel=1e-3)
    steps = sum(0.005 + 1e-5 + 3e-8 * (200 + n) for n in range(9))
    assert found.latency_s[0] == pytest.approx(prompt + 200e-4 + steps, rel=3e-3)


def test_prompts_elsewhere_do_not_delay_decoding():
    apart = replay(REQUESTS, replace(ALONE, prefill=Pool()), WORKER, WORKER)
    together = replay(REQUESTS, ALONE, WORKER)
    assert np.nanmean(apart.tpot_s) < np.nanmean(together.tpot_s)
    assert apart.refused == together.refused == 0


def test_a_pool_for_prompts_needs_times():
    with pytest.raises(ValueError, match="pool for prompts"):
        replay(REQUESTS, replace(ALONE, prefill=Pool()), WORKER)


def test_times_rise_with_the_rate():
    found = [
        replay(replace(REQUESTS, arrival_s=REQUESTS.arrival_s * stretch), ALONE, WORKER)
        for stretch in (4.0, 2.0, 1.0, 0.5)
    ]
    for name in ("ttft_s", "latency_s"):
        means = [getattr(one, name).mean() for one in found]
        assert means == sorted(means)


def test_requests_that_never_fit_are_counted_and_have_no_times():
    long = Requests(np.zeros(2), np.array([90, 5000]), np.array([5, 5]))
    found = replay(long, ALONE, replace(WORKER, capacity_tokens=1000))
    assert found.refused == 1
    assert np.isnan(found.ttft_s[1])
    assert found.ttft_s[0] > 0
    assert found.output_tokens == 5


def test_shares_and_rates_are_those_of_the_span():
    found = replay(REQUESTS, ALONE, WORKER)
    assert 0 < found.busy_share <= 1
    decoding_s = float(np.nansum(found.tpot_s * (REQUESTS.output_tokens - 1)))
    in_flight = found.mean_sequences * found.busy_share
    assert in_flight == pytest.approx(decoding_s / found.span_s, rel=1e-6)
    assert 0 < found.most_cache_share <= 1
    assert found.requests_per_s == pytest.approx(300 / found.span_s)
    assert found.tokens_per_s == pytest.approx(REQUESTS.output_tokens.sum() / found.span_s)


def test_the_engine_gives_the_limits_and_its_drafts_the_tokens_of_a_step():
    engine = Engine(max_batched_tokens=64, draft_tokens=2, draft_acceptance=0.5)
    scheduler = Scheduler.of(engine, WORKER)
    assert (scheduler.max_batched_tokens, scheduler.max_sequences) == (64, 64)
    assert scheduler.blocks == 6250
    assert tokens_per_iteration(engine) == 1.75
    assert tokens_per_iteration(Engine()) == 1.0


class RooflineTime(LinearTime):
    """Tokens cost nothing until arithmetic outweighs the weights; each prompt has a fixed cost."""

    def seconds(self, iterations):
        tokens = iterations.prefill_tokens + iterations.decode_sequences
        attention = 1e-9 * iterations.prefill_pairs + 3e-8 * iterations.decode_context
        prompts = 1e-5 * iterations.prefill_sequences
        return 1e-3 + np.maximum(8e-3, 3e-5 * tokens) + attention + prompts


def test_interpolated_times_are_within_a_few_percent_of_those_of_single_iterations():
    time = RooflineTime()
    worker = Worker(time, 100_000)
    found = replay(REQUESTS, ALONE, worker)
    first, last, _ = naive_replay(REQUESTS, Scheduler.of(Engine(), worker), time)
    assert found.ttft_s.mean() == pytest.approx((first - REQUESTS.arrival_s).mean(), rel=0.02)
    assert found.latency_s.mean() == pytest.approx((last - REQUESTS.arrival_s).mean(), rel=0.01)


def test_the_table_is_near_the_times_between_its_points():
    random = np.random.default_rng(0)
    time, count = RooflineTime(), 500
    table = IterationTable.of(time, 8192, 256, 4096)
    tokens, attended = random.integers(1, 8192, count), random.uniform(1, 4000, count)
    sequences, context = random.integers(0, 256, count), random.uniform(1, 4000, count)
    rows = [tokens, tokens * attended, np.ones(count), sequences, sequences * context]
    exact = time.seconds(Iterations(*(np.asarray(row, dtype=np.float64) for row in rows)))
    rows.pop(2)
    near = [table.mixed(*(x.item() for x in row)) for row in zip(*rows, strict=True)]
    np.testing.assert_allclose(near, exact, rtol=0.03)
