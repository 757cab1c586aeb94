"""Rates follow from the times of requests and the number in flight, or are those of arrivals."""

import numpy as np
import pytest

from forerun.data.query import Query
from forerun.models.llm_serving.littles_law import Loads, metrics_of
from tests.features.llm_serving.deployments import DEVICE, deployment

CLOSED = deployment(output_tokens=11.0, concurrency=6.0, tensor=2)
OPEN = deployment(output_tokens=11.0, requests_per_s=2.5, tensor=2)
TPOT_S, TTFT_S = np.array([0.01, 0.01]), np.array([0.2, 0.2])


@pytest.fixture(scope="module")
def metrics():
    loads = Loads.of([Query(CLOSED, DEVICE), Query(OPEN, DEVICE)])
    return metrics_of(loads, np.array([0.5, 1.0]), TPOT_S, TTFT_S)


def test_a_request_takes_its_first_token_and_the_further_ones(metrics):
    assert metrics["request_latency_ms"] == pytest.approx([300.0, 300.0])


def test_the_rate_of_a_closed_loop_is_that_of_the_requests_in_flight(metrics):
    assert metrics["requests_per_s"][0] == pytest.approx(6.0 / 0.3)


def test_requests_that_arrive_are_answered_at_their_rate(metrics):
    assert metrics["requests_per_s"][1] == 2.5


def test_tokens_are_those_of_answers_over_all_devices_or_one(metrics):
    assert metrics["tokens_per_s"] == pytest.approx(11.0 * metrics["requests_per_s"])
    assert metrics["tokens_per_s_per_device"] == pytest.approx(metrics["tokens_per_s"] / 2.0)


def test_the_share_without_queueing_is_one_of_the_time_to_the_first_token(metrics):
    assert metrics["ttft_service_ms"] == pytest.approx([100.0, 200.0])
