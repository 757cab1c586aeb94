"""No part of a time is longer than the whole, at the best estimate and at both ends."""

from itertools import product

import pytest

from forerun.models.answers.deployments.bounds import parts_within_wholes
from forerun.models.prediction import Estimate, Prediction
from forerun.service.answers.llm.estimates import llm_estimates
from forerun.service.schemas.answers import ServingOut
from forerun.service.schemas.serving import LlmEstimateIn
from tests.devices import CATALOG
from tests.service.answers.llm.predictors import IN_USE, estimated

APART = {"workers": 2, "prefill": {"workers": 2, "parallelism": {"tensor": 1}}}
LOADS = (
    *({"concurrency": number} for number in (1, 3, 32, 3000)),
    *({"requests_per_s": rate} for rate in (0.05, 2, 5, 10, 20)),
)
LENGTHS = ((1024, 256), (100, 2000), (8000, 16))
PAIRS = (
    ("ttft_service_ms", "ttft_ms"),
    ("ttft_service_ms", "request_latency_ms"),
    ("ttft_ms", "request_latency_ms"),
)


@pytest.mark.parametrize("device", ["h100-sxm-80gb", "b200-sxm-180gb"])
@pytest.mark.parametrize("workers", [{}, APART])
def test_no_part_of_a_time_is_longer_than_the_whole_at_any_load(device, workers):
    asked = [
        LlmEstimateIn.model_validate(
            {"model": "llama-3.1-8b", "device": device, "tp": 1, "isl": given, "osl": written}
            | load
            | workers
        )
        for (given, written), load in product(LENGTHS, LOADS)
    ]
    answers = llm_estimates(asked, CATALOG.get, IN_USE)
    compared = 0
    for one, answer in zip(asked, answers, strict=True):
        assert isinstance(answer, ServingOut)
        for (part, whole), end in product(PAIRS, ("value", "low", "high")):
            if part in answer.metrics and whole in answer.metrics:
                shorter, longer = (getattr(answer.metrics[name], end) for name in (part, whole))
                if shorter is not None and longer is not None:
                    assert shorter <= longer * (1.0 + 1e-9), (part, whole, end, one)
                    compared += 1
    assert compared > 150


def test_ends_stay_around_the_best_estimate():
    own = {
        "ttft_ms": Estimate(50.0, 40.0, 60.0, 0.9),
        "ttft_service_ms": Estimate(50.0, 45.0, 90.0, 0.9),
        "request_latency_ms": Estimate(55.0, 30.0, 57.0, 0.9),
    }
    found = parts_within_wholes(Prediction(own), 2.0).estimates
    assert found["ttft_service_ms"] == Estimate(50.0, 40.0, 60.0, 0.9)
    assert found["request_latency_ms"] == Estimate(55.0, 40.0, 60.0, 0.9)
    assert found["ttft_ms"] == own["ttft_ms"]


def test_without_an_interval_of_the_whole_that_of_a_part_is_kept():
    own = {"ttft_ms": Estimate(50.0), "ttft_service_ms": Estimate(40.0, 20.0, 90.0, 0.9)}
    assert parts_within_wholes(Prediction(own), 256.0).estimates == own
    assert parts_within_wholes(Prediction({}), 256.0).estimates == {}


def test_the_only_token_and_the_request_are_one_time_with_the_tighter_ends_of_both():
    own = {
        "ttft_ms": Estimate(50.0, 20.0, 90.0, 0.9),
        "ttft_service_ms": Estimate(45.0, 15.0, 95.0, 0.9),
        "request_latency_ms": Estimate(50.0, 30.0, 100.0, 0.9),
    }
    found = parts_within_wholes(Prediction(own), 1.0).estimates
    assert found["ttft_ms"] == found["request_latency_ms"] == Estimate(50.0, 30.0, 90.0, 0.9)
    assert found["ttft_service_ms"] == Estimate(45.0, 15.0, 90.0, 0.9)
    several = parts_within_wholes(Prediction(own), 2.0).estimates
    assert several["ttft_ms"] == own["ttft_ms"]


@pytest.mark.parametrize("load", [{"concurrency": 16}, {"requests_per_s": 5}])
def test_requests_with_one_token_have_one_interval(load):
    given = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "tp": 1, "isl": 1024, "osl": 1}
    answer = estimated(**given, **load)
    first, whole = (answer.metrics[name] for name in ("ttft_ms", "request_latency_ms"))
    ends = [(own.value, own.low, own.high) for own in (first, whole)]
    assert ends[0] == pytest.approx(ends[1])
    assert first.low < first.value < first.high
