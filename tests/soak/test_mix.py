"""The requests of a soak are valid, also where they differ from the examples."""

import json
from random import Random

import pytest

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK
from tests.fuzz.asked import BINARY, Asked
from tests.fuzz.service import in_process
from tests.soak.mix import requests_of_users, varied


def test_a_new_request_has_another_size_and_is_otherwise_the_same():
    kernel, network = (
        json.loads(varied(Asked.of_json("/v1/predict", example), Random(1)).body)
        for example in (EXAMPLE, EXAMPLE_NETWORK)
    )
    rows = kernel["workload"]["operator"]["input_shapes"][0][0]
    assert rows == kernel["workload"]["operator"]["output_shapes"][0][0] != 512
    assert network["workload"]["batch_size"] != EXAMPLE_NETWORK["workload"]["batch_size"]
    assert network["workload"]["graph"] == EXAMPLE_NETWORK["workload"]["graph"]
    upload = varied(Asked("POST", "/v1/graphs", "batch_size=2", b"file", BINARY), Random(1))
    assert upload.query != "batch_size=2"


@pytest.mark.slow
def test_what_is_asked_is_answered_and_measurements_are_rolled_back():
    asked = set()
    with in_process(bundled()) as client:
        for request, _ in zip(requests_of_users(client, Random(23)), range(200), strict=False):
            answer = request.sent(client)
            assert answer.status_code < 300, (request.name, answer.text[:300])
            asked.add(request.method)
        for device in ("l4", "t4"):
            sets = client.get(f"/v1/devices/{device}/measurements").json()["sets"]
            assert all(each["undone"] for each in sets[:-1])
    assert {"GET", "POST", "DELETE"} <= asked
