"""Limits of answers about deployments, and the grades that follow from them."""

import pytest

from tests.service.answers.llm.predictors import estimated

ASKED = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "tp": 1, "isl": 1024, "osl": 256}


def power(**load):
    return estimated(**(ASKED | load)).metrics["power_w"]


@pytest.mark.parametrize("rate", [5.0, 10.0, 20.0])
def test_power_of_arrivals_is_no_better_than_calibrated_and_says_why(rate):
    own = power(requests_per_s=rate)
    assert own.grade == "B"
    assert "none at a given request rate" in own.grade_reason


def test_power_of_more_requests_than_places_is_no_better_than_calibrated_and_says_why():
    own = power(concurrency=3000)
    assert own.grade == "B"
    assert "some requests wait" in own.grade_reason


def test_power_on_a_device_without_measured_servers_holds_that_of_its_sibling_in_its_interval():
    """H200 moves data faster than H100 within the same design power; no server on it is known."""
    measured, own = power(concurrency=64), power(concurrency=64, device="h200-sxm-141gb")
    assert own.grade == "C"
    assert own.low < measured.value < own.high
    assert own.high / own.low > 2.0


@pytest.mark.parametrize("device", ["h100-sxm-80gb", "h200-sxm-141gb", "l4"])
def test_number_formats_that_no_device_was_measured_with_are_extrapolated_on_each(device):
    own = estimated(**(ASKED | {"device": device, "quantization": "int4", "concurrency": 8}))
    assert own.metrics["tpot_ms"].grade == "C"
    said = "no run with weights in int4 was measured anywhere"
    assert said in map(str, own.limits)
