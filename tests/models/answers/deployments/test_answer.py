"""Figures of one answer agree with each other."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.query import Operation, Query
from forerun.features.readers.language_model.named import named_language_model
from forerun.features.serving_features import TOKENS
from forerun.models.answers.deployments.answer import deployed_all
from forerun.models.answers.deployments.evaluated import AnsweredDeployments
from forerun.models.answers.deployments.power import as_serving
from forerun.models.answers.in_use import InUse
from forerun.models.artifact.loading import bundled
from forerun.models.llm_serving import LlmLatency
from forerun.models.router import Router
from tests.features.llm_serving.deployments import deployment

CATALOG = DeviceCatalog.load()
MODELS = {"llama-3.1-8b": 1, "qwen3-32b": 2, "qwen3-30b-a3b": 1, "gpt-oss-120b": 2}
DEVICES = ("h100-sxm-80gb", "b200-sxm-180gb", "a100-sxm-80gb")
KINDS = ("chat", "reasoning", "code")
IN_USE = InUse(bundled())


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
        questions.append(Query(own, CATALOG.get(device), operation=Operation(own.devices)))
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


def test_power_is_that_of_the_predictor_of_served_models(answers):
    for own in answers[::12]:
        served = as_serving(own.query, own.query.deployment.load.concurrency)
        assert own.estimates["power_w"].value == pytest.approx(
            IN_USE.loaded.predictor.predict([served])[0].estimates["power_w"].value
        )


def test_what_is_scored_is_what_is_answered(answers):
    queries = [own.query for own in answers[:6]]
    found = AnsweredDeployments(IN_USE).predict(queries)
    for name in ("ttft_ms", "tpot_ms", "tokens_per_s"):
        assert found.values[name].tolist() == [own.estimates[name].value for own in answers[:6]]
        assert found.high[name].tolist() == [own.estimates[name].high for own in answers[:6]]


def test_only_the_times_are_fitted_and_answers_follow(answers):
    queries = [own.query for own in answers[:12]]
    rows = {
        name: np.array([2.0 * own.estimates[name].value for own in answers[:12]])
        for name in ("ttft_ms", "tpot_ms")
    }
    parts = IN_USE.loaded.predictor.parts
    router = Router(
        (LlmLatency(trees=1, calibrated=False), *(p for p in parts if p.name == "serving_power"))
    )
    plain = AnsweredDeployments(InUse(replace(IN_USE.loaded, predictor=router)))
    fitted = plain.fit(Measurements(queries, rows, {}))
    assert fitted.in_use.loaded.predictor.parts[1] is router.parts[1]
    errors = [
        np.abs(np.log(own.predict(queries).values["tpot_ms"] / rows["tpot_ms"])).mean()
        for own in (plain, fitted)
    ]
    assert errors[1] < 0.5 * errors[0]
