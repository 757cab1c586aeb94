"""What pods ask for in their annotations."""

import json

import pytest
from msgspec import convert

from forerun.data.errors import BadRequest
from forerun.service.http.kubernetes.extender import Pod
from forerun.service.http.kubernetes.pods import placed_by, residents_of
from forerun.service.http.schemas import RankIn
from tests.service.http.kubernetes.requests import pod


def placed(**annotations: str):
    given = {name.replace("_", "-"): text for name, text in annotations.items()}
    return placed_by(convert(pod(given), Pod))


def test_annotations_are_fields_of_a_network():
    found = placed(graph="resnet50", batch_size="64", precision="amp").ranking
    asked = RankIn.model_validate(found)
    assert asked.workload.kind == "network"
    assert (asked.workload.graph, asked.workload.batch_size) == ("resnet50", 64)
    assert asked.workload.precision == "amp"


def test_a_workload_may_be_given_whole():
    operator = {"kind": "relu", "input_shapes": [[8]], "output_shapes": [[8]]}
    text = json.dumps({"kind": "kernel", "operator": operator})
    asked = RankIn.model_validate(placed(workload=text).ranking)
    assert asked.workload.operator.kind == "relu"


def test_options_of_the_placement_are_no_fields_of_the_workload():
    found = placed(
        graph="resnet50",
        objective="energy_j",
        risk="value",
        software='{"runtime": "compiled"}',
        power_limit_w="200",
        max_latency_ms="40",
        max_power_w="300",
        max_peak_memory_mib="8000",
        must_fit="false",
        in_domain_only="true",
    )
    asked = RankIn.model_validate(found.ranking)
    assert (asked.objective, asked.risk, asked.software.runtime) == (
        "energy_j",
        "value",
        "compiled",
    )
    assert asked.operation.power_limit_w == 200
    limits = asked.limits
    assert (limits.latency_ms, limits.power_w, limits.peak_memory_mib) == (40, 300, 8000)
    assert (limits.must_fit, limits.in_domain_only) == (False, True)


@pytest.mark.parametrize("digest", ["12345678", "1e5", "true", "null"])
def test_a_digest_that_looks_like_a_number_stays_a_text(digest):
    assert placed(graph=digest).ranking["workload"]["graph"] == digest


def test_a_pod_without_annotations_asks_for_nothing():
    found = placed()
    assert (found.ranking, found.speed) == (None, None)
    assert placed_by(convert({"metadata": {}}, Pod)) == found


def test_a_program_is_given_by_name_or_with_its_profile():
    assert placed(program="redis").speed.program.name == "redis"
    found = placed(program='{"name": "a", "threads": 4}', min_relative_speed="0.8").speed
    assert (found.program.threads, found.min_relative_speed) == (4, 0.8)
    assert [
        one.name for one in residents_of({"forerun.dev/residents": '["a", {"name": "b"}]'})
    ] == [
        "a",
        "b",
    ]


@pytest.mark.parametrize(
    ("annotations", "named"),
    [
        ({"max_latency_ms": "40"}, "forerun.dev/graph"),
        ({"graph": "resnet50", "max_latency_ms": "fast"}, "latency_ms"),
        ({"workload": "7"}, "forerun.dev/workload"),
        ({"min_relative_speed": "0.8"}, "program"),
        ({"program": "a", "min_relative_speed": "1.5"}, "min_relative_speed"),
    ],
)
def test_what_does_not_fit_is_named(annotations, named):
    with pytest.raises(BadRequest, match=named):
        placed(**annotations)


@pytest.mark.parametrize("text", ["{}", "7", '[{"threads": 1}]'])
def test_residents_that_are_no_programs_are_refused(text):
    with pytest.raises(BadRequest):
        residents_of({"forerun.dev/residents": text})
