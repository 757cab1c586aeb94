"""Observations over HTTP: compared and stored once, and never adapted to."""

import numpy as np
import pytest
from fastapi.testclient import TestClient

from forerun.service.http.app import create_app
from forerun.service.http.lanes import Busy
from tests.service.conftest import GRAPH, linear_row

NOTHING = {"observations": {}, "versions": {}, "alarms": [], "slices": []}

PATH = "/v1/devices/l4/measurements"
SIZES = (64, 200, 700, 1500, 5000)
KEY = {"Idempotency-Key": "one"}


def value(client, rows=64, device="l4"):
    asked = {"workload": linear_row(rows, None)["workload"], "device": device}
    return client.post("/v1/predict", json=asked).json()["metrics"]["latency_ms"]


def body(*rows, source="observe"):
    return {"measurements": list(rows), "source": source}


def observed(client, *rows, path=PATH, **headers):
    answer = client.post(path, json=body(*rows), headers=headers)
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_answers_are_compared_with_observations_and_none_changes(client):
    before = {size: value(client, size) for size in SIZES}
    rows = [linear_row(size, before[size]["value"] * 2) for size in SIZES]
    made = observed(client, *rows)
    assert (made["source"], made["device"], made["rows"], made["judged"]) == ("observe", "l4", 5, 5)
    error = made["errors"]["latency_ms"]
    assert error["mape"] == pytest.approx(50)
    assert error["bias"] == pytest.approx(np.log(2))
    assert {size: value(client, size) for size in SIZES} == before
    assert client.get(PATH).json()["sets"] == [], "these are the sets to adapt to"
    (listed,) = client.get(PATH, params={"source": "observe"}).json()["sets"]
    assert (listed["set"], listed["rows"], listed["source"]) == (made["set"], 5, "observe")


def test_a_row_is_compared_with_the_answer_that_it_brings(client):
    own = {"value": 2.0, "low": 1.0, "high": 3.0, "version": "theirs"}
    row = linear_row(64, 4.0) | {"answer": {"latency_ms": own}}
    error = observed(client, row)["errors"]["latency_ms"]
    assert error["mape"] == pytest.approx(50)
    assert (error["rows_with_interval"], error["coverage_90"]) == (1, 0.0)
    inside = linear_row(64, 3.0) | {"answer": {"latency_ms": own}}
    assert observed(client, inside)["errors"]["latency_ms"]["coverage_90"] == 100.0


def test_the_answer_of_now_is_kept_with_a_row_that_brings_none(client, settings):
    given = value(client)
    observed(client, linear_row(64, given["value"] * 1.5))
    store = client.app.state.forerun.answers.adaptation.store
    ((row,),) = (each.rows for each in store.sets("l4", "observe"))
    kept = row.answer["latency_ms"]
    assert (kept.value, kept.low, kept.high) == (given["value"], given["low"], given["high"])
    assert kept.version == client.get("/readyz").json()["version"]


def test_coverage_is_that_of_calibrated_intervals(adapting):
    network = {"kind": "network", "graph": GRAPH.to_json()}
    question = {"workload": network, "device": "l4"}
    answers = adapting.post("/v1/predict", json=question).json()["metrics"]
    given = {name: answers[name] for name in ("latency_ms", "peak_memory_mib")}
    assert given["latency_ms"]["coverage"] is not None
    assert given["peak_memory_mib"]["coverage"] is None
    measured = {name: answer["value"] for name, answer in given.items()}
    errors = observed(adapting, {"workload": network, "metrics": measured})["errors"]
    assert errors["latency_ms"]["coverage_90"] == 100.0
    assert errors["peak_memory_mib"]["coverage_90"] is None
    assert errors["peak_memory_mib"]["mape"] == pytest.approx(0)


def test_networks_are_observed_with_their_graph(client):
    network = {"kind": "network", "graph": GRAPH.to_json()}
    row = {"workload": network, "metrics": {"latency_ms": 0.5, "peak_memory_mib": 900.0}}
    made = observed(client, row)
    assert set(made["errors"]) == {"latency_ms"}, "nothing answers memory here"
    store = client.app.state.forerun.answers.adaptation.store
    (kept,) = store.sets("l4", "observe")
    assert kept.rows[0].workload.graph == GRAPH.digest
    assert kept.families == ("other",)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": {"latency_ms": 0}}, "measurements.1.metrics.latency_ms is 0 ms"),
        ({"metrics": {"latency_ms": 1e9}}, "check the unit and the workload"),
        ({"metrics": {}}, "measurements.1: nothing was measured"),
        ({"answer": {"speed": {"value": 1}}}, "measurements.1.answer: No metric 'speed'"),
        ({"answer": {"latency_ms": {"value": 0}}}, "measurements.1.answer.latency_ms.value"),
        ({"answer": {"latency_ms": {"value": 1, "low": 1}}}, "an interval has both ends"),
        ({"answer": {"latency_ms": {"value": 1, "low": 3, "high": 2}}}, "low is 3, above high, 2"),
    ],
)
def test_a_wrong_row_is_refused_by_name_and_nothing_is_stored(client, change, said):
    answer = client.post(PATH, json=body(linear_row(64, 0.05), linear_row(64, 0.05) | change))
    assert answer.status_code == 422
    assert said in answer.json()["detail"]
    assert client.get(PATH, params={"source": "observe"}).json()["sets"] == []


def test_a_request_is_repeated_with_its_key_and_stored_once(client, settings, loaded):
    rows = [linear_row(size, 0.05) for size in SIZES]
    first = client.post(PATH, json=body(*rows), headers=KEY)
    again = client.post(PATH, json=body(*rows), headers=KEY)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    other = client.post(PATH, json=body(*rows[:1]), headers=KEY)
    assert other.status_code == 422
    assert other.json()["type"] == "/problems/reused-key"
    with TestClient(create_app(settings, loaded)) as restarted:
        assert restarted.post(PATH, json=body(*rows), headers=KEY).content == first.content
        sets = restarted.get(PATH, params={"source": "observe"}).json()["sets"]
        assert len(sets) == 1
    unnamed = [client.post(PATH, json=body(rows[0])).json()["set"] for _ in range(2)]
    assert unnamed[0] != unnamed[1], "without a key, every request is stored"


@pytest.mark.parametrize("key", ["", "x" * 201])
def test_a_key_has_1_to_200_characters(client, key):
    answer = client.post(PATH, json=body(linear_row(64, 0.05)), headers={"Idempotency-Key": key})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] == "Idempotency-Key"


def test_measurements_to_adapt_to_are_repeated_with_their_key(adapting):
    rows = [linear_row(64 * n, 2 * value(adapting, 64 * n)["value"]) for n in range(1, 6)]
    first = adapting.post(PATH, json=body(*rows, source="adapt"), headers=KEY)
    assert first.status_code == 201, first.text
    changed = value(adapting)
    again = adapting.post(PATH, json=body(*rows, source="adapt"), headers=KEY)
    assert (again.status_code, again.content) == (201, first.content)
    assert value(adapting) == changed
    assert first.json()["version"] == adapting.get("/v1/models").json()["models"][0]["version"]
    assert len(adapting.get(PATH).json()["sets"]) == 1
    without = adapting.post(PATH, json=body(*rows, source="adapt"))
    assert without.status_code == 409, "the same rows without the key are repeated rows"
    observes = adapting.post(PATH, json=body(*rows), headers=KEY)
    assert observes.json()["type"] == "/problems/reused-key"


def steady_then_slow(client, steady, slow, factor=1.15):
    """Observe linear layers in requests of 20 rows, the later of which take longer."""
    chance = np.random.default_rng(0)
    times = {size: value(client, size)["value"] for size in SIZES}
    for number in range((steady + slow) // 20):
        sizes = chance.choice(SIZES, 20).tolist()
        noise = chance.lognormal(0.1, 0.03, 20) * (1.0 if 20 * number < steady else factor)
        rows = [linear_row(s, times[s] * n) for s, n in zip(sizes, noise, strict=True)]
        observed(client, *rows)


def test_a_slowdown_is_reported_by_slice_and_in_words(client):
    assert client.get("/v1/drift").json() == {
        "observations": {},
        "alarms": [],
        "slices": [],
        "versions": {},
    }
    steady_then_slow(client, 200, 0)
    assert client.get("/v1/drift").json()["alarms"] == []
    steady_then_slow(client, 0, 100)
    report = client.get("/v1/drift").json()
    assert report["observations"] == {"l4": 300}
    (alarm,) = report["alarms"]
    assert alarm["message"].startswith("latency_ms of linear operators in fp32 on l4 rose by 1")
    (change,) = alarm["slice"]["changes"]
    assert 190 <= change["observation"] <= 215
    assert change["after"] <= 100
    assert change["low_percent"] < 15 < change["high_percent"] + 1
    (one,) = report["slices"]
    assert (one["metric"], one["device"], one["rows"], one["alarm"]) == (
        "latency_ms",
        "l4",
        300,
        True,
    )
    assert client.get("/v1/drift", params={"device": "t4"}).json()["slices"] == []
    assert client.get("/v1/drift", params={"device": "nothing"}).status_code == 404


def test_metrics_have_the_live_errors_and_the_alarm(client):
    assert "forerun_live" not in client.get("/metrics").text
    steady_then_slow(client, 200, 100)
    text = client.get("/metrics").text
    labels = '{device="l4",family="",kind="",metric="latency_ms",precision="",version="test"}'
    assert 'forerun_observations_total{device="l4"} 300.0' in text
    assert f"forerun_live_observations{labels} 300.0" in text
    assert f"forerun_drift_alarm{labels} 1.0" in text
    assert f"forerun_live_error_ratio{labels} 0." in text
    assert f"forerun_live_coverage_ratio{labels}" not in text, "the roofline has no intervals"


def test_metrics_are_those_of_the_last_report_where_there_is_too_much_to_do(client, monkeypatch):
    observed(client, *(linear_row(64, 0.05) for _ in range(30)))
    client.get("/v1/drift")
    observed(client, *(linear_row(64, 0.05) for _ in range(30)))

    async def busy(work):
        raise Busy("Too many reports wait for their turn", "FORERUN_ANSWER_SECONDS")

    monkeypatch.setattr(client.app.state.forerun, "report", busy)
    assert client.get("/v1/drift").status_code == 503
    answer = client.get("/metrics")
    assert answer.status_code == 200
    assert 'metric="latency_ms",precision="",version="test"} 30.0' in answer.text


def test_observations_that_are_rolled_back_count_no_more(client):
    made = observed(client, *(linear_row(64, 0.05) for _ in range(30)))
    assert len(client.get("/v1/drift").json()["slices"]) == 1
    undone = client.delete(f"{PATH}/{made['set']}")
    assert (undone.status_code, undone.json()["undone"]) == (200, True)
    assert client.get("/v1/drift").json() == {
        "observations": {},
        "alarms": [],
        "slices": [],
        "versions": {},
    }
