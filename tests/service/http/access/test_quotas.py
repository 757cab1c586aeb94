"""Requests per second of a key: a burst of one second's requests, then the rate."""

import pytest

from forerun.service.http.access import Quotas


class Clock:
    """Seconds that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def accepted(quotas, key, count):
    return sum(quotas.take(key) is None for _ in range(count))


def test_a_second_of_requests_may_come_at_once_and_then_the_rate():
    clock = Clock()
    quotas = Quotas(10, clock)
    assert accepted(quotas, "a", 20) == 10
    clock.now += 0.5
    assert accepted(quotas, "a", 20) == 5
    clock.now += 3600
    assert accepted(quotas, "a", 20) == 10


@pytest.mark.parametrize("per_s", [0.01, 0.5, 3, 1000])
def test_the_request_after_the_time_that_the_refusal_names_is_let_in(per_s):
    clock = Clock()
    quotas = Quotas(per_s, clock)
    accepted(quotas, "a", 1000)
    refused = quotas.take("a")
    assert refused is not None and refused.status == 429
    assert refused.retry_after_s >= 1
    clock.now += refused.retry_after_s
    assert quotas.take("a") is None


def test_refused_requests_do_not_lengthen_the_wait():
    clock = Clock()
    quotas = Quotas(1, clock)
    for _ in range(11):
        quotas.take("a")
        clock.now += 0.125
    clock.now += 1
    assert quotas.take("a") is None


def test_without_a_rate_nothing_is_refused():
    quotas = Quotas(None)
    assert accepted(quotas, "a", 1000) == 1000
