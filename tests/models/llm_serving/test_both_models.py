"""The closed form of steady states against the event model, on a grid of loads and lengths."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from forerun.data.language_models.deployment import Parallelism, Pool
from forerun.data.language_models.requests import Requests
from forerun.features.llm_serving.any_load import SCALARS, AnyLoad
from forerun.features.llm_serving.engine_settings import Limits
from forerun.models.llm_serving.continuous_batching import Rank, Request, Scheduler
from forerun.models.llm_serving.iteration_table import IterationTable
from forerun.models.llm_serving.replay import replay
from forerun.models.llm_serving.worker import Worker
from tests.features.llm_serving.deployments import (
    DEVICE,
    dense_model,
    deployment,
    expert_model,
    steady_state,
    with_engine,
)

LENGTHS = [(128, 16), (2000, 28), (500, 100), (1000, 200), (4000, 500), (200, 1000), (8000, 100)]
MODELS = {"dense": dense_model(), "experts": expert_model()}


def served(model, engine, given, written, **load):
    one = deployment(model, input_tokens=float(given), output_tokens=float(written), **load)
    return with_engine(one, name=engine)


def of_arrivals(one, count, seed=0):
    """Mean times per token and to the first one of Poisson arrivals, without the start and end."""
    load, random = one.load, np.random.default_rng(seed)
    arrival_s = np.cumsum(random.exponential(1.0 / load.requests_per_s, count))
    lengths = (np.full(count, int(own)) for own in (load.input_tokens, load.output_tokens))
    found = replay(Requests(arrival_s, *lengths), one, Worker.of(one, DEVICE))
    steady = slice(count // 5, count - count // 10)
    return np.array([found.tpot_s[steady].mean(), found.ttft_s[steady].mean()])


@pytest.mark.parametrize(
    "share, most", [(0.15, (0.02, 0.02)), (0.4, (0.03, 0.015)), (0.6, (0.04, 0.02))]
)
@pytest.mark.parametrize(("engine", "model"), [("vllm", "dense"), ("sglang", "experts")])
def test_times_of_arrivals_agree(engine, model, share, most):
    """Up to 60 % of the capacity, times differ by less in the median, and by 18 and 6 %."""
    errors = []
    for given, written in LENGTHS:
        one = served(MODELS[model], engine, given, written, requests_per_s=1.0)
        (any_load,) = AnyLoad.of_each([one], DEVICE)
        rate = share * any_load.grid[SCALARS.index("rate")].max()
        one = replace(one, load=replace(one.load, requests_per_s=rate))
        state = steady_state(one)
        count = int(np.clip(30 * state.others, 1500, 4000))
        errors.append(np.log(np.array([state.tpot, state.ttft]) / of_arrivals(one, count)))
    assert np.all(np.median(np.abs(errors), axis=0) < most)
    assert np.all(np.max(np.abs(errors), axis=0) < (0.18, 0.06))


def of_closed_loop(one, waves=10):
    """Mean times per token and to the first one of a closed loop, whose requests start together."""
    worker, load = Worker.of(one, DEVICE), one.load
    scheduler, number = Scheduler.of(one.engine, worker), int(load.concurrency)
    given, written = int(load.input_tokens), int(load.output_tokens)
    most = max(scheduler.max_batched_tokens, given)
    rank = Rank(scheduler, IterationTable.of(worker.time, most, number, given + written))
    every, active = [], []

    def start(at_s):
        every.append(Request(at_s, given, written))
        active.append(every[-1])
        rank.submit(every[-1])

    for _ in range(number):
        start(0.0)
    while active:
        rank.advance(rank.now_s + 1e-9)
        for one_ended in [own for own in active if own.finished_s == own.finished_s]:
            active.remove(one_ended)
            if len(every) < waves * number:
                start(one_ended.finished_s)
    first, last, arrival = (
        np.array([getattr(own, name) for own in every])
        for name in ("first_token_s", "finished_s", "arrival_s")
    )
    return np.array([((last - first) / (written - 1)).mean(), (first - arrival).mean()])


def test_times_of_closed_loops_that_stay_in_step_agree():
    """Where prompts come first: within 5 % for each token, and 20 to the first one."""
    for (given, written), number in product([(500, 50), (2000, 100), (9000, 60)], [1, 4, 24]):
        one = served(MODELS["dense"], "sglang", given, written, concurrency=float(number))
        state = steady_state(one)
        errors = np.log(np.array([state.tpot, state.ttft]) / of_closed_loop(one))
        assert np.all(np.abs(errors) < (0.05, 0.2)), (given, written, number)


def test_times_of_prompts_that_are_held_agree():
    """Within 4 % for each token and 6 to the first one; holding them makes the first one later."""
    for share, held in product((0.15, 0.4), (5.0, 15.0)):
        one = served(MODELS["dense"], "sglang", 1000, 200, requests_per_s=1.0)
        (any_load,) = AnyLoad.of_each([one], DEVICE)
        rate = share * any_load.grid[SCALARS.index("rate")].max()
        one = replace(one, load=replace(one.load, requests_per_s=rate))
        plain, one = steady_state(one), with_engine(one, hold_iterations=held)
        state = steady_state(one)
        errors = np.log(np.array([state.tpot, state.ttft]) / of_arrivals(one, 3000))
        assert np.all(np.abs(errors) < (0.04, 0.06)), (share, held, errors)
        assert state.ttft > plain.ttft


@pytest.mark.parametrize("tokens", [1, 16, 64])
def test_one_request_at_a_time_has_all_tokens_of_an_iteration(tokens):
    """Nothing else decodes while its prompt is processed: within 1 % of the event model."""
    one = with_engine(
        served(MODELS["dense"], "vllm", 128, 16, concurrency=1.0), max_batched_tokens=tokens
    )
    state = steady_state(one)
    assert [state.tpot, state.ttft] == pytest.approx(of_closed_loop(one), rel=0.01)


def test_times_of_closed_loops_that_wait_for_memory_agree():
    """Within 5 % for each token and 30 to the first one, where nothing is given up."""
    one = served(dense_model(layers=80, width=8192), "trtllm", 1000, 2000, concurrency=1.0)
    one = replace(one, pool=Pool(Parallelism(tensor=4)))
    places = Limits.of(one, DEVICE, one.pool.parallelism).sequences
    one = replace(one, load=replace(one.load, concurrency=float(int(2.5 * places))))
    state = steady_state(one)
    errors = np.log(np.array([state.tpot, state.ttft]) / of_closed_loop(one))
    assert state.held and state.ttft > 10.0
    assert np.all(np.abs(errors) < (0.05, 0.3))


@pytest.mark.parametrize("engine, gives_up", [("trtllm", False), ("vllm", True)])
def test_who_gives_requests_up_where_memory_runs_out(engine, gives_up):
    """TensorRT-LLM starts no request without memory for its whole answer; vLLM does."""
    one = served(dense_model(layers=80, width=8192), engine, 1000, 2000, requests_per_s=100.0)
    one = replace(one, pool=Pool(Parallelism(tensor=4)))
    size = np.full(200, 1.0)
    requests = Requests(np.zeros(200), *((own * size).astype(int) for own in (1000, 2000)))
    found = replay(requests, one, Worker.of(one, DEVICE))
    assert np.isfinite(found.tpot_s).all()
    assert (found.preemptions.sum() > 0) == gives_up
