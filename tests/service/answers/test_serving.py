"""Endpoints about generative models that serve: figures agree, and invalid set-ups are reported."""

import pytest
from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.http.app import create_app
from forerun.service.schemas.serving import EXAMPLE_DIFFUSION, EXAMPLE_LLM

LLM, DIFFUSION = "/v1/llm/estimate", "/v1/diffusion/estimate"


@pytest.fixture(scope="module")
def loaded():
    return bundled()


@pytest.fixture
def service(settings, loaded):
    with TestClient(create_app(settings, loaded), raise_server_exceptions=False) as client:
        yield client


def asked(service, path, **changes):
    example = EXAMPLE_LLM if path == LLM else EXAMPLE_DIFFUSION
    answer = service.post(path, json={**example, **changes})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_energy_of_a_token_is_power_of_all_devices_over_their_rate(service):
    body = asked(service, LLM, device_count=2)
    power, rate, energy = (
        body["metrics"][name]["value"] for name in ("power_w", "tokens_per_s", "energy_per_token_j")
    )
    assert energy == pytest.approx(2 * power / rate)
    assert body["device_count"] == 2


def test_energy_of_a_picture_is_power_times_the_time_it_takes(service):
    metrics = asked(service, DIFFUSION)["metrics"]
    rate = metrics["samples_per_s"]["value"]
    assert metrics["energy_per_sample_j"]["value"] == pytest.approx(
        metrics["power_w"]["value"] / rate
    )
    assert rate == pytest.approx(4e3 / metrics["latency_ms"]["value"])


def test_weights_that_do_not_fit_are_reported(service):
    body = asked(service, LLM, model={"total_parameters": 7e10}, device="h100-sxm-80gb")
    assert any("weights alone take 130 GiB" in line for line in body["limits"])
    assert body["in_domain"] is False
    enough = asked(service, LLM, model={"total_parameters": 7e10}, device_count=2)
    assert not any("weights alone" in line for line in enough["limits"])


def test_no_rate_is_faster_than_weights_can_be_read(service):
    """Eight billion weights of two bytes are read 209 times a second at 3,352 GB/s."""
    model = {"total_parameters": 8e9, "max_sequences": 1}
    metrics = asked(service, LLM, model=model)["metrics"]
    rate, energy = metrics["tokens_per_s"], metrics["energy_per_token_j"]
    assert rate["low"] < rate["value"] < rate["high"] <= 209.6
    assert energy["low"] >= metrics["power_w"]["low"] / 209.6


def test_power_outside_the_training_range_has_the_lowest_grade(service):
    for sequences, grade in ((64, "A"), (1, "C")):
        model = {"total_parameters": 8e9, "max_sequences": sequences}
        metrics = asked(service, LLM, model=model)["metrics"]
        assert metrics["power_w"]["grade"] == metrics["tokens_per_s"]["grade"] == grade


def test_no_device_draws_more_than_it_holds_itself_to(service):
    power = asked(service, LLM, device="l4")["metrics"]["power_w"]
    assert power["low"] <= power["value"] <= power["high"] <= max(72.0, power["value"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device": "epyc-7742"}, "Times on epyc-7742 follow from lengths"),
        ({"device": "h101"}, "h101"),
        ({"model": {"total_parameters": 1e9, "active_parameters": 2e9}}, "cannot be more"),
        ({"model": {"total_parameters": 1e9, "experts_per_token": 2}}, "cannot be more"),
        ({"model": {"total_parameters": -1}}, "greater than or equal to 100000"),
        ({"device_count": 0}, "greater than or equal to 1"),
        ({"model": {"total_parameters": 1e9, "tensor_parallel": 4}}, "more than device_count, 1"),
    ],
)
def test_an_invalid_request_says_what_is_wrong(service, changes, said):
    answer = service.post(LLM, json={**EXAMPLE_LLM, **changes})
    assert answer.status_code in (404, 422)
    assert said in answer.json()["detail"]
