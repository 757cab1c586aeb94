"""One rate from two predictors, and figures of one answer that agree with each other."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import Pool
from forerun.data.query import Operation, Query
from forerun.features.readers.language_model.named import named_language_model
from forerun.features.serving_features import TOKENS, slower_at_lengths
from forerun.models.answers.in_use import InUse
from forerun.models.artifact.loading import bundled
from forerun.models.limit import Limit
from forerun.models.llm_serving.time_columns import TimeColumns
from forerun.models.prediction import Estimate, Prediction
from forerun.service.answers.llm.agreement import agreed, comparable
from forerun.service.answers.llm.costs import as_serving
from forerun.service.answers.llm.deployed import deployed_all
from forerun.service.answers.llm.power import ServedRates
from forerun.service.answers.llm.question import DeploymentQuestion
from forerun.service.answers.serving import estimated
from tests.features.llm_serving.deployments import DEVICE, deployment

CATALOG = DeviceCatalog.load()
MODELS = {"llama-3.1-8b": 1, "qwen3-32b": 2, "qwen3-30b-a3b": 1, "gpt-oss-120b": 2}
DEVICES = ("h100-sxm-80gb", "b200-sxm-180gb", "a100-sxm-80gb")
KINDS = ("chat", "reasoning", "code")
USUAL = {"input_tokens": 500.0, "output_tokens": 250.0}
IN_USE = InUse(bundled())


def asked(own=None, **load):
    own = own or deployment(**(USUAL | {"concurrency": 16.0} | load))
    return Query(own, DEVICE, operation=Operation(own.devices))


def predicted(value, spread=1.2, limits=()):
    """A prediction of a rate, its time per token, and the latency of a request of 250 tokens."""
    latency = 16.0 * 250.0 / value * 1e3
    values = {
        "tokens_per_s": value,
        "requests_per_s": value / 250.0,
        "request_latency_ms": latency,
        "tpot_ms": latency / 300.0,
        "ttft_ms": latency - 249.0 * latency / 300.0,
    }
    ends = {name: Estimate(v, v / spread, v * spread, 0.9) for name, v in values.items()}
    return Prediction(ends, limits=limits)


def columns(time):
    """The times of one deployment as columns."""
    known = time.estimates.items()
    rows = {n: np.array([[own.value, own.low, own.high]], dtype=np.float64) for n, own in known}
    coverage = {n: np.array([own.coverage], dtype=np.float64) for n, own in known}
    return TimeColumns(rows, coverage, [time.limits])


def agreed_one(query, time, served, runs=0.0):
    """The times of one deployment that agree with the rate of a prediction of served models."""
    rows = [0] if comparable(query) and served is not None else []
    rates = columns(served).estimates["tokens_per_s"] if rows else np.empty((0, 3))
    asked = [as_serving(query, query.deployment.load.concurrency) for _ in rows]
    other = ServedRates(rows, asked, rates, [served.limits for _ in rows])
    return agreed([query], columns(time), other, np.array([runs])).prediction(0)


def rate(found):
    own = found.estimates["tokens_per_s"]
    return own.value, own.low, own.high


@pytest.fixture(scope="module")
def answers():
    """Answers to 72 deployments with lengths that are usual for their kind of request."""
    questions = []
    for (name, tensor), device, kind, load in product(MODELS.items(), DEVICES, KINDS, (2.0, 64.0)):
        prompt, answer = TOKENS[kind]
        own = deployment(
            named_language_model(name),
            tensor=tensor,
            input_tokens=prompt,
            output_tokens=answer,
            concurrency=load,
        )
        query = Query(own, CATALOG.get(device), operation=Operation(own.devices))
        questions.append(DeploymentQuestion(query))
    return deployed_all(questions, IN_USE)


def test_watts_are_joules_of_a_token_times_tokens_a_second_in_every_answer(answers):
    for own in answers:
        found, devices = own.estimates, own.query.deployment.devices
        watts = found["energy_per_token_j"].value * found["tokens_per_s"].value / devices
        assert watts == pytest.approx(found["power_w"].value)


def test_rates_follow_from_times_by_littles_law_in_every_answer(answers):
    for own in answers:
        found, load = own.estimates, own.query.deployment.load
        first, each = found["ttft_ms"].value, found["tpot_ms"].value
        latency = first + (load.output_tokens - 1.0) * each
        assert found["request_latency_ms"].value == pytest.approx(latency)
        assert found["requests_per_s"].value == pytest.approx(load.concurrency / latency * 1e3)
        tokens = found["requests_per_s"].value * load.output_tokens
        assert found["tokens_per_s"].value == pytest.approx(tokens)
        for estimate in found.values():
            assert estimate.low is None or estimate.low <= estimate.value <= estimate.high


def test_the_rate_with_lengths_and_that_without_overlap_in_every_answer(answers):
    for own in answers:
        served = as_serving(own.query, own.query.deployment.load.concurrency)
        other, mine = (
            estimated(served, IN_USE).metrics["tokens_per_s"],
            own.estimates["tokens_per_s"],
        )
        assert mine.low <= other.high
        assert other.low <= mine.high


def test_power_is_that_of_the_predictor_of_served_models(answers):
    for own in answers[::12]:
        served = as_serving(own.query, own.query.deployment.load.concurrency)
        assert own.estimates["power_w"].value == pytest.approx(
            estimated(served, IN_USE).metrics["power_w"].value
        )


def test_two_rates_of_equal_precision_have_their_geometric_mean():
    found = agreed_one(asked(), predicted(100.0), predicted(400.0))
    value, low, high = rate(found)
    assert value == pytest.approx(200.0)
    assert low < 120.0
    assert high > 400.0 / 1.2
    assert found.estimates["tpot_ms"].value == pytest.approx(16 * 250 / 200.0 * 1e3 / 300)
    assert "weighted geometric mean of 100 tokens/s" in str(found.limits[0])
    assert not found.limits[0].in_domain


def test_equal_rates_stay_and_are_known_better():
    value, low, high = rate(agreed_one(asked(), predicted(100.0), predicted(100.0)))
    assert value == pytest.approx(100.0)
    assert np.log(high / low) == pytest.approx(np.log(1.44) / np.sqrt(2.0))


def test_the_more_precise_rate_counts_more():
    first, second = (
        rate(agreed_one(asked(), predicted(100.0, own), predicted(400.0, other)))[0]
        for own, other in ((1.1, 2.0), (2.0, 1.1))
    )
    assert first < 110.0
    assert second > 360.0


def test_a_rate_counts_less_outside_of_what_its_predictor_was_fitted_to():
    outside = (Limit("", feature="log_input_tokens", value=5.0, low=6.9, high=9.6),)
    usual = rate(agreed_one(asked(), predicted(100.0), predicted(400.0)))[0]
    assert rate(agreed_one(asked(), predicted(100.0, limits=outside), predicted(400.0)))[0] > usual
    assert rate(agreed_one(asked(), predicted(100.0), predicted(400.0, limits=outside)))[0] < usual
    engine = replace(asked().deployment, engine=replace(asked().deployment.engine, name="sglang"))
    assert rate(agreed_one(asked(engine), predicted(100.0), predicted(400.0)))[0] < usual


def test_the_rate_of_served_models_is_carried_over_to_longer_prompts_and_counts_less():
    query = asked(input_tokens=16000.0)
    served = as_serving(query, 16.0)
    slower = slower_at_lengths(served, 16.0, 16000.0, 250.0)
    assert slower > 1.3
    assert slower_at_lengths(served, 16.0, *TOKENS[served.workload.request]) == 1.0
    value, _, _ = rate(agreed_one(query, predicted(100.0), predicted(100.0 * slower)))
    assert value == pytest.approx(100.0)
    assert rate(agreed_one(query, predicted(100.0), predicted(400.0 * slower)))[0] < 150.0


@pytest.mark.parametrize(
    "query",
    [
        asked(concurrency=None, requests_per_s=2.0),
        asked(replace(asked().deployment, prefill=Pool())),
        asked(
            replace(asked().deployment, engine=replace(asked().deployment.engine, draft_tokens=2))
        ),
    ],
    ids=["arrivals", "prompts apart", "drafts"],
)
def test_times_stay_where_served_models_cannot_be_compared(query):
    time = predicted(100.0)
    assert agreed_one(query, time, predicted(400.0)).estimates == time.estimates


def test_times_stay_without_a_second_rate_or_without_an_interval():
    time = predicted(100.0)
    plain = replace(
        time, estimates={name: Estimate(own.value) for name, own in time.estimates.items()}
    )
    assert agreed_one(asked(), time, None).estimates == time.estimates
    assert agreed_one(asked(), time, plain).estimates == time.estimates
    assert agreed_one(asked(), plain, time).estimates == plain.estimates


def test_the_more_runs_of_the_user_on_the_device_the_more_they_are_followed():
    question = DeploymentQuestion(asked())
    measured = {DEVICE: {"tpot_ms": frozenset({"llm_deployment"})}}
    (time,) = bundled().predictor.predict([question.query])
    own = time.estimates["tokens_per_s"].value
    apart = []
    for runs in (0, 1, 10, 100_000):
        in_use = replace(IN_USE, measured=measured, rows={DEVICE: runs})
        (found,) = deployed_all([question], in_use)
        apart.append(abs(found.estimates["tokens_per_s"].value / own - 1.0))
    assert apart == sorted(apart, reverse=True)
    assert apart[0] > 0.1 > 0.01 > apart[-1]
