"""Times of single requests: laws before and after learning, and what is learned."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import LlmDeployment, Parallelism, Pool, RequestLoad
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.llm_serving.single_requests import (
    SPREAD,
    LearnedTime,
    ServerStates,
    ServerTimes,
)

RNG = np.random.default_rng(0)
TIMES = ("ttft_ms", "tpot_ms")


def server(model="qwen3-32b", load=None):
    load = load or RequestLoad(1000.0, 300.0, concurrency=1.0)
    deployment = LlmDeployment(named_language_model(model), load, pool=Pool(Parallelism(1)))
    return ServerTimes.of(deployment, DeviceCatalog.load().get("h200"))


def states(n):
    waiting = RNG.integers(0, 100, n) * (RNG.random(n) < 0.5)
    return ServerStates(
        RNG.random(n),
        RNG.integers(1, 16_000, n).astype(float),
        waiting.astype(float),
        RNG.integers(0, 200, n).astype(float),
        RNG.random(n),
        RNG.integers(0, 100_000, n).astype(float),
    )


def learned(own, time, n):
    seen = states(n)
    parts = own.parts(time, seen)
    skew = np.array([2.0, 0.3, 1.4, 0.5, 0.7, 0.2])[: parts.shape[1]]
    measured = (parts @ skew) * np.exp(0.4 * RNG.standard_normal(n))
    return LearnedTime.of(time, own.prior(time), parts, measured)


@pytest.mark.parametrize("measured", [0, 3, 100, 1000])
@pytest.mark.parametrize("time", TIMES)
@pytest.mark.parametrize("model", ["qwen3-32b", "gpt-oss-20b"])
def test_more_work_never_takes_less_time(model, time, measured):
    own, asked = server(model), states(200)
    answers = learned(own, time, measured)
    before = answers.quantile_ms(own.parts(time, asked))
    for field, more in (
        ("input_tokens", 500.0),
        ("running", 10.0),
        ("waiting", 10.0),
        ("prefill_tokens", 5000.0),
        ("cache_share", 0.05),
    ):
        changed = np.minimum(getattr(asked, field) + more, 1.0 if field == "cache_share" else 1e9)
        after = answers.quantile_ms(own.parts(time, replace(asked, **{field: changed})))
        assert (after >= before * (1 - 1e-9)).all(), field


def test_nothing_learned_is_the_closed_form_with_its_spread():
    own, asked = server(), states(50)
    for time in TIMES:
        parts = own.parts(time, asked)
        found = LearnedTime.of(time, own.prior(time), parts[:0], np.empty(0)).quantile_ms(parts)
        assert found == pytest.approx(parts @ own.prior(time) * SPREAD[time])


@pytest.mark.parametrize("time", TIMES)
def test_the_quantile_of_what_was_measured_is_learned(time):
    own = server()
    answers = learned(own, time, 1000)
    asked = states(1000)
    parts = own.parts(time, asked)
    skew = np.array([2.0, 0.3, 1.4, 0.5, 0.7, 0.2])[: parts.shape[1]]
    truth = (parts @ skew) * np.exp(0.4 * RNG.standard_normal(1000))
    assert 0.82 < (truth <= answers.quantile_ms(parts)).mean() < 0.97


def test_one_row_moves_the_answers_little():
    own, asked = server(), states(50)
    parts = own.parts("ttft_ms", asked)
    prior = own.prior("ttft_ms")
    nothing = LearnedTime.of("ttft_ms", prior, parts[:0], np.empty(0)).quantile_ms(parts)
    one = LearnedTime.of("ttft_ms", prior, parts[:1], 100.0 * parts[:1] @ prior).quantile_ms(parts)
    assert (one < 10.0 * nothing).all()


def test_a_prefix_cache_is_believed_where_the_load_has_one():
    cached = RequestLoad(1000.0, 300.0, concurrency=1.0, cached_share=0.5)
    idle = ServerStates(*(np.array([own]) for own in (0.0, 8000.0, 0.0, 0.0, 0.9, 0.0)))
    with_cache, without = server(load=cached), server()
    times = [own.parts("ttft_ms", idle) @ own.prior("ttft_ms") for own in (with_cache, without)]
    assert times[0] < 0.5 * times[1]
