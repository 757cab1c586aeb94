"""The bundled predictors answer or refuse whatever the numbers: no fault, nothing infinite."""

import copy
import json
import random
from math import isfinite

import pytest

from forerun.data.device import Device
from forerun.service.http.schemas import EXAMPLE_SWEEP
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK, EXAMPLE_SHEET
from forerun.service.settings import Settings
from tests.service.conftest import client_of, linear_row

pytestmark = pytest.mark.slow

EXTREMES = (5e-324, 1e-300, 0, -1, 0.5, 1e308, 2**63, 10**400)
SHEET = EXAMPLE_SHEET | {
    "fp32_matrix_tflops": 100,
    "idle_w": 20,
    "l2_mib": 40,
    "boost_clock_mhz": 2000,
    "interconnect_gbs": 64,
    "process_nm": 5,
}
LLM = {
    "total_parameters": 8e9,
    "active_parameters": 2e9,
    "max_sequences": 64,
    "architecture": "experts",
    "experts": 8,
    "experts_per_token": 2,
    "cache_bytes_per_token": 1e5,
    "tensor_parallel": 2,
}
DIFFUSION = {"parameters": 1.2e10, "height": 1024, "width": 1024, "steps": 28, "frames": 8}
REQUESTS = {
    "operator": ("/v1/predict", EXAMPLE),
    "network": ("/v1/predict", EXAMPLE_NETWORK | {"operation": {"power_limit_w": 300}}),
    "sheet": ("/v1/predict", EXAMPLE_NETWORK | {"device": SHEET, "metrics": None}),
    "sweep": ("/v1/power/sweep", EXAMPLE_SWEEP | {"limits_w": [200, 300]}),
    "language": ("/v1/llm/estimate", {"model": LLM, "device": SHEET, "device_count": 8}),
    "diffusion": ("/v1/diffusion/estimate", {"model": DIFFUSION, "device": SHEET}),
    "measurement": ("/v1/devices/l4/measurements", {"measurements": [linear_row(64, 0.05)]}),
}


@pytest.fixture(scope="module")
def ask(trained, tmp_path_factory):
    """Send a request, and check that its answer is no fault and holds no infinite number."""
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    with client_of(settings, trained) as client:

        def send(path, body):
            kind = {"content-type": "application/json"}
            answer = client.post(path, content=json.dumps(body), headers=kind)
            assert answer.status_code < 500, (body, answer.text)
            assert all(isfinite(number) for _, number in numbers(answer.json())), body
            return answer.status_code

        yield send


def numbers(content, place=()):
    """Places and values of all numbers in plain data."""
    if isinstance(content, dict | list):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, child in pairs:
            yield from numbers(child, (*place, key))
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield place, content


def changed(body, place, value):
    """A copy of a body with another value in one place."""
    body = copy.deepcopy(body)
    within = body
    for key in place[:-1]:
        within = within[key]
    within[place[-1]] = value
    return body


@pytest.mark.parametrize("name", REQUESTS)
def test_any_number_in_any_field_is_answered_or_refused(ask, name):
    path, body = REQUESTS[name]
    assert ask(path, body) in (200, 201)
    statuses = [ask(path, changed(body, p, v)) for p, _ in numbers(body) for v in EXTREMES]
    assert 422 in statuses


def test_a_sheet_of_figures_at_their_bounds_is_answered(ask):
    """Each figure at its least or its most, as chance has it, and all at the least or the most."""
    schema = Device.model_json_schema()["properties"]
    bounds = {name: _bounds(schema[name]) for name in SHEET if name in schema}
    bounds = {name: pair for name, pair in bounds.items() if pair is not None}
    assert len(bounds) == len(list(numbers(SHEET))) - len(SHEET["peak_tflops"]) + 1
    chance = random.Random(0)
    for number in range(14):
        sheet = dict(SHEET)
        for name, pair in bounds.items():
            value = pair[number] if number < 2 else chance.choice(pair)
            sheet[name] = {"fp32": value, "fp16": value} if name == "peak_tflops" else value
        for kind in ("network", "language", "diffusion"):
            path, body = REQUESTS[kind]
            full = kind != "network" and sheet["memory_gib"] == bounds["memory_gib"][0]
            assert ask(path, body | {"device": sheet}) == (422 if full else 200)


def _bounds(schema):
    """The least and the most of a figure; None of what is no figure."""
    for found in (schema, *schema.get("anyOf", ()), schema.get("additionalProperties") or {}):
        if "minimum" in found:
            return found["minimum"], found["maximum"]
    return None
