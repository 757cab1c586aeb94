"""Continuous batching: tiny cases by hand, a naive implementation, and what no schedule changes."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.language_models.requests import Requests
from forerun.models.llm_serving.continuous_batching import Rank, Request, Scheduler
from forerun.models.llm_serving.iteration_table import IterationTable
from tests.models.llm_serving.naive import LinearTime, naive_replay, random_requests

TIME = LinearTime()
TABLE = IterationTable.of(TIME, 4096, 256, 4096)
ROOMY = Scheduler(max_batched_tokens=512, max_sequences=64, block_tokens=16, blocks=10_000)


def served(scheduler, *requests, cached=0, table=TABLE):
    rank = Rank(scheduler, table)
    found = [Request(*request, cached) for request in requests]
    for request in found:
        rank.submit(request)
    rank.advance()
    return found, rank


def test_a_request_alone_takes_its_prompt_and_one_iteration_for_each_further_token():
    (request,), rank = served(ROOMY, (2.0, 100, 4))
    prompt = 0.005 + 100 * 2e-5 + 5050 * 1e-9
    steps = sum(0.005 + 1e-5 + 3e-8 * context for context in (100, 101, 102))
    assert request.first_token_s == pytest.approx(2.0 + prompt, rel=1e-12)
    assert request.finished_s == pytest.approx(2.0 + prompt + steps, rel=1e-12)
    assert rank.tokens == [100, 4]


def test_decoding_pauses_for_whole_prompts_where_they_are_not_divided():
    whole = replace(ROOMY, chunked_prefill=False)
    (first, second), _ = served(whole, (0.0, 100, 3), (0.001, 700, 2))
    prompts = [0.005 + n * 2e-5 + 1e-9 * n * (n + 1) / 2 for n in (100, 700)]
    assert second.first_token_s == pytest.approx(sum(prompts), rel=1e-12)
    both = 0.005 + 2e-5 + 3e-8 * 800
    assert second.finished_s == pytest.approx(sum(prompts) + both, rel=1e-12)
    assert first.finished_s == pytest.approx(second.finished_s + 0.00501 + 3e-8 * 101, rel=1e-12)


def test_the_last_admitted_gives_up_its_blocks_and_is_processed_again():
    tight = replace(ROOMY, blocks=4)
    (first, second), rank = served(tight, (0.0, 16, 30), (0.0, 16, 30))
    assert (first.preemptions, second.preemptions) == (0, 1)
    assert rank.tokens[1] == 60
    assert rank.tokens[0] > 32
    assert second.finished_s > first.finished_s
    assert rank.most_blocks == 4


def test_a_request_that_never_fits_is_refused():
    (long, short), _ = served(replace(ROOMY, blocks=4), (0.0, 60, 10), (0.0, 30, 10))
    assert np.isnan(long.finished_s)
    assert short.finished_s > 0


def test_drafted_tokens_that_are_accepted_save_iterations():
    drafting = replace(ROOMY, tokens_per_step=2.5)
    (plain,), _ = served(ROOMY, (0.0, 10, 101))
    (quick,), rank = served(drafting, (0.0, 10, 101))
    assert quick.finished_s - quick.first_token_s == pytest.approx(
        (plain.finished_s - plain.first_token_s) / 2.5, rel=1e-3
    )
    assert rank.tokens[1] == 101


LISTS = st.lists(
    st.tuples(st.floats(0, 0.2), st.integers(1, 300), st.integers(1, 120)), min_size=1, max_size=25
)


@given(LISTS, st.integers(27, 80), st.integers(1, 12), st.sampled_from((64, 200)), st.booleans())
def test_events_give_what_single_iterations_give(rows, blocks, sequences, budget, chunked):
    scheduler = Scheduler(budget, sequences, 16, blocks, chunked)
    gaps, inputs, outputs = (np.array(x) for x in zip(*rows, strict=True))
    requests = Requests(np.cumsum(gaps), inputs, outputs)
    first, last, preemptions = naive_replay(requests, scheduler, TIME, 0.3)
    rank = Rank(scheduler, TABLE)
    found = [
        Request(a, int(p), int(o), min(int(0.3 * p), int(p) - 1))
        for a, p, o in zip(requests.arrival_s.tolist(), inputs, outputs, strict=True)
    ]
    for request in found:
        rank.submit(request)
    rank.advance()
    assert [r.preemptions for r in found] == preemptions.tolist()
    np.testing.assert_allclose([r.first_token_s for r in found], first, rtol=1e-9)
    np.testing.assert_allclose([r.finished_s for r in found], last, rtol=1e-9)
    assert rank.tokens[1] == outputs.sum()
    assert rank._free == blocks
    assert rank._context == 0


def test_stopping_at_any_time_changes_nothing():
    rows = random_requests(load(20.0), 60, seed=3)
    at_once, in_steps = Rank(ROOMY, TABLE), Rank(ROOMY, TABLE)
    lists = [
        [Request(*row) for row in zip(*(c.tolist() for c in columns(rows)), strict=True)]
        for _ in range(2)
    ]
    for rank, requests in zip((at_once, in_steps), lists, strict=True):
        for request in requests:
            rank.submit(request)
    at_once.advance()
    for moment in np.arange(0, 30, 0.037):
        in_steps.advance(float(moment))
    in_steps.advance()
    times = [[r.finished_s for r in requests] for requests in lists]
    np.testing.assert_allclose(*times, rtol=1e-9)


def load(rate):
    from forerun.data.language_models.deployment import RequestLoad

    return RequestLoad(200, 50, requests_per_s=rate, input_variation=0.5, output_variation=0.5)


def columns(rows):
    return rows.arrival_s, rows.input_tokens, rows.output_tokens
