"""The interface breaks no client of the one that was published, and breaking it is noticed."""

import copy
import json

import pytest

from forerun.service.http.app import create_app
from forerun.service.settings import Settings
from tests.openapi.__main__ import PUBLISHED
from tests.openapi.changes import breaking_changes


@pytest.fixture(scope="module")
def published():
    return json.loads(PUBLISHED.read_text())


def test_no_client_of_the_published_interface_is_broken(published, tmp_path):
    now = create_app(Settings(home=tmp_path)).openapi()
    assert breaking_changes(published, now) == [], (
        "Mend it, or publish a breaking release: python -m tests.openapi --publish --breaking"
    )


def changed(document, change):
    after = copy.deepcopy(document)
    change(after["paths"], after["components"]["schemas"])
    return breaking_changes(document, after)


def drop(holder, *path):
    for step in path[:-1]:
        holder = holder[step]
    del holder[path[-1]]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda p, s: drop(p, "/v1/predict"), "POST /v1/predict is gone"),
        (lambda p, s: drop(p, "/v1/devices/{name}", "put"), "PUT /v1/devices/{name} is gone"),
        (lambda p, s: drop(p, "/v1/drift", "get", "parameters"), "parameter device is gone"),
        (
            lambda p, s: p["/v1/models"]["get"].update(
                parameters=[{"name": "x", "in": "query", "required": True}]
            ),
            "GET /v1/models: the query parameter x is needed now",
        ),
        (
            lambda p, s: drop(s, "PredictionOut", "properties", "in_domain"),
            "POST /v1/predict answer.in_domain is gone",
        ),
        (
            lambda p, s: s["PredictionOut"]["properties"].update(in_domain={"type": "string"}),
            "POST /v1/predict answer.in_domain: string is not what it was",
        ),
        (
            lambda p, s: s["PredictIn"].setdefault("required", []).append("metrics"),
            "POST /v1/predict request.metrics is needed now",
        ),
        (
            lambda p, s: drop(s, "LlmEstimateIn", "properties", "input_tokens"),
            "POST /v1/llm/estimate request.input_tokens is gone",
        ),
        (
            lambda p, s: s["MeasurementsIn"]["properties"]["source"].update(enum=["adapt"]),
            "request.source: the value observe is gone",
        ),
    ],
)
def test_a_breaking_change_is_named(published, change, said):
    assert any(said in line for line in changed(published, change))


@pytest.mark.parametrize(
    "change",
    [
        lambda p, s: p.update({"/v1/new": {"get": {"responses": {}}}}),
        lambda p, s: s["PredictionOut"]["properties"].update(new={"type": "string"}),
        lambda p, s: s["PredictIn"]["properties"].update(new={"type": "string"}),
        lambda p, s: s["MeasurementsIn"]["properties"]["source"]["enum"].append("other"),
        lambda p, s: s["PredictIn"]["properties"].update(metrics={}),
    ],
)
def test_additions_break_nothing(published, change):
    assert changed(published, change) == []
