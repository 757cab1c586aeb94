"""The latency predictor of llm-d's router: its shapes, what it learns, and that nothing is lost."""

import json

import pytest

from forerun.models.llm_serving.single_requests import WINDOW
from forerun.service.answers.llm.routing import FOLDER
from forerun.service.http.access import needed_scope
from forerun.service.schemas.llm.routing import EXAMPLE_ENTRY, EXAMPLE_ROUTED, EXAMPLE_STATE
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import Place
from tests.service.answered import content_of, problem_of
from tests.service.conftest import client_of

QWEN = "/v1/llm-d/qwen3"


@pytest.fixture
def routed(client):
    assert client.put(QWEN, json=EXAMPLE_ROUTED).status_code == 200
    return client


def times(client, **changes):
    return content_of(client.post(f"{QWEN}/predict", json=EXAMPLE_STATE | changes))


def measured(factor, count=60, tpot=True):
    """Rows of a server on which all takes so many times the closed form of an idle H200."""
    entries = []
    for row in range(count):
        state = EXAMPLE_STATE | {"input_token_length": 100 + 50 * (row % 20)}
        times = (0.0, 22.0 * factor) if tpot and row % 2 else (60.0 * factor, 0.0)
        entries.append(state | dict(zip(("actual_ttft_ms", "actual_tpot_ms"), times, strict=True)))
    return {"entries": entries}


def test_the_shapes_are_those_of_llm_d(routed):
    bulk = routed.post(f"{QWEN}/predict/bulk/strict", json={"requests": [EXAMPLE_STATE] * 3})
    content = content_of(bulk)
    assert (content["total_requests"], content["failed_predictions"]) == (3, 0)
    for one in (*content["predictions"], times(routed)):
        assert one["quantile"] == 0.9
        assert one["model_type"] == "lightgbm"
        assert 20 < one["tpot_ms"] < 60 < one["ttft_ms"] < 1000
    bulk = routed.post(f"{QWEN}/predict/bulk", json={"requests": [EXAMPLE_STATE]})
    assert content_of(bulk)["errors"] == []
    for path in ("status", "model/download/info"):
        assert routed.get(f"{QWEN}/{path}").json()["model_type"] == "lightgbm"
    # Clients of other releases send further fields, or none of those that came later.
    assert times(routed, pod_type="")


def test_it_learns_and_keeps_what_it_acknowledged(routed, settings, loaded):
    before = times(routed)
    answer = content_of(routed.post(f"{QWEN}/add_training_data_bulk", json=measured(3.0)), 202)
    assert answer["message"] == "Accepted 60 training samples."
    after = times(routed)
    assert after["tpot_ms"] > 1.2 * before["tpot_ms"]
    with client_of(settings, loaded) as restarted:
        assert times(restarted)["tpot_ms"] == after["tpot_ms"]
        assert restarted.get(QWEN).json()["ttft_rows"] == 30
        moved = restarted.put(QWEN, json=EXAMPLE_ROUTED | {"device": "h100"})
        assert moved.json()["tpot_rows"] == 30


def test_a_command_starts_the_deployment_and_its_benchmark_does_not_count(client, settings, loaded):
    command = "vllm serve qwen3-8b && vllm bench serve --request-rate 3"
    assert client.put(QWEN, json={"device": "h200", "command": command}).status_code == 200
    with client_of(settings, loaded) as restarted:
        assert times(restarted)


def test_the_latest_rows_of_each_time_stay(routed, tmp_path):
    for tpot in (True, False, False):
        routed.post(f"{QWEN}/add_training_data_bulk", json=measured(1.0, 600, tpot=tpot))
    own = routed.get(QWEN).json()
    assert (own["ttft_rows"], own["tpot_rows"]) == (WINDOW, 300)
    stored = json.loads(Records.of_texts(Place(tmp_path) / FOLDER).get("qwen3.json"))
    assert len(stored["rows"]) == WINDOW + 300


def test_what_cannot_be_is_refused(routed):
    for path, body in (("predict", EXAMPLE_STATE), ("add_training_data_bulk", {"entries": []})):
        assert routed.post(f"/v1/llm-d/other/{path}", json=body).status_code == 404
    wrong = EXAMPLE_STATE | {"kv_cache_percentage": 1.5}
    assert routed.post(f"{QWEN}/predict", json=wrong).status_code == 422
    assert routed.put(QWEN, json=EXAMPLE_ROUTED | {"device": "epyc-9654"}).status_code == 422
    for load in ("concurrency", "max_concurrency", "request_rate", "num_prompts"):
        loaded = routed.put(QWEN, json=EXAMPLE_ROUTED | {load: 8})
        problem_of(loaded, 422, f"{load}: the state of a server tells its load")
    apart = EXAMPLE_ROUTED | {"prefill": {"parallelism": {"tensor": 1}}}
    assert routed.put(QWEN, json=apart).status_code == 422
    assert routed.put("/v1/llm-d/a..b", json=EXAMPLE_ROUTED).status_code == 422
    assert routed.delete(QWEN).status_code == 204
    assert routed.get(QWEN).status_code == 404


@pytest.mark.parametrize(
    ("path", "scope"),
    [
        ("predict", "read"),
        ("predict/bulk/strict", "read"),
        ("add_training_data_bulk", "write"),
        ("predict/other", "write"),
    ],
)
def test_a_question_of_a_router_needs_no_key_that_writes(path, scope):
    assert needed_scope({"method": "POST", "path": f"{QWEN}/{path}"}) == scope


def test_the_example_of_a_row_is_a_valid_one(routed):
    entries = {"entries": [EXAMPLE_ENTRY]}
    assert routed.post(f"{QWEN}/add_training_data_bulk", json=entries).status_code == 202
