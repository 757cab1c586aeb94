"""Measurements and observations over HTTP: kept, compared, learnt from where asked, rolled back."""

import json
import random
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from forerun.service.http.lanes import Busy
from tests.service.answered import content_of, problem_of
from tests.service.conftest import GRAPH, client_of, linear_row

PATH = "/v1/devices/l4/measurements"
NETWORK = {"kind": "network", "graph": GRAPH.to_json()}
BOX = {"name": "black-box", "vendor": "me", "kind": "gpu"}
OF_MEMORY = {"measurements": [{"workload": NETWORK, "metrics": {"peak_memory_mib": 900.0}}]}


def asked(rows=777, device="l4"):
    return {"workload": linear_row(rows, None)["workload"], "device": device}


def estimate(client, rows=64, device="l4"):
    answer = content_of(client.post("/v1/predict", json=asked(rows, device)))
    return answer["metrics"]["latency_ms"]


def value(client, rows=777, device="l4"):
    return estimate(client, rows, device)["value"]


def twice(client, sizes=range(64, 1344, 64), factor=2.0):
    return {"measurements": [linear_row(n, factor * value(client, rows=n)) for n in sizes]}


def test_a_device_is_adapted_from_then_on_and_others_are_not(adapting):
    before, other = value(adapting), value(adapting, device="t4")
    first = adapting.post("/v1/predict", json=asked()).json()["predictor"]
    assert first["adapted_rows"] == 0
    learnt = content_of(adapting.post(PATH, json=twice(adapting)), 201)
    assert (learnt["rows"], learnt["rows_in_use"], learnt["device"]) == (20, 20, "l4")
    error = learnt["errors"]["latency_ms"]
    assert error["mape_before"] == pytest.approx(50, abs=0.1)
    assert error["mape_after"] < 10
    assert 1.5 * before < value(adapting) < 2.1 * before
    assert value(adapting, device="t4") == other
    after = adapting.post("/v1/predict", json=asked()).json()["predictor"]
    assert after["version"] == learnt["version"] != first["version"]
    assert after["adapted_rows"] == 20
    assert adapting.get("/v1/models").json()["models"][0]["version"] == learnt["version"]


def test_a_rollback_gives_the_very_answer_back(adapting):
    before = adapting.post("/v1/predict", json=asked()).content
    made = adapting.post(PATH, json=twice(adapting)).json()
    assert adapting.post("/v1/predict", json=asked()).content != before
    undone = content_of(adapting.delete(f"{PATH}/{made['set']}"))
    assert undone["undone"] is True
    assert adapting.post("/v1/predict", json=asked()).content == before
    assert adapting.delete(f"{PATH}/{made['set']}").status_code == 200, "twice is once"
    listed = adapting.get(PATH).json()
    assert [(s["set"], s["rows"], s["undone"]) for s in listed["sets"]] == [(made["set"], 20, True)]


def test_a_restart_loses_nothing(adapting, settings, trained):
    adapting.post(PATH, json=twice(adapting))
    answer = adapting.post("/v1/predict", json=asked()).content
    with client_of(settings, trained) as restarted:
        assert restarted.post("/v1/predict", json=asked()).content == answer


def test_twenty_networks_at_once_are_scored_in_both_metrics(adapting, light):
    models = [light / f"light_{name}.onnx" for name in ("squeezenet", "resnet50", "shufflenet")]
    digests = [
        adapting.post("/v1/graphs", content=model.read_bytes()).json()["digest"] for model in models
    ]
    chance = random.Random(0)
    rows = [
        {
            "workload": {"kind": "network", "graph": digests[n % 3], "batch_size": n + 1},
            "software": {"runtime": "compiled"},
            "metrics": {"latency_ms": 5.0 * chance.lognormvariate(0, 0.5), "power_w": 60.0},
        }
        for n in range(20)
    ]
    answer = content_of(adapting.post(PATH, json={"measurements": rows}), 201)
    assert set(answer["errors"]) == {"latency_ms", "power_w"}


def test_posts_at_once_keep_all_rows_and_answers_go_on(adapting):
    bodies = [twice(adapting, sizes=range(n, n + 3)) for n in range(10, 60, 10)]
    with ThreadPoolExecutor(10) as many:
        posts = [many.submit(adapting.post, PATH, json=body) for body in bodies]
        questions = [many.submit(value, adapting, rows=n) for n in range(700, 720)]
        made = [post.result() for post in posts]
        assert all(question.result() > 0 for question in questions)
    assert [answer.status_code for answer in made] == [201] * 5
    listed = adapting.get(PATH).json()["sets"]
    assert {s["set"] for s in listed} == {answer.json()["set"] for answer in made}
    answer = adapting.post("/v1/predict", json=asked()).json()
    assert answer["predictor"]["adapted_rows"] == 15


def test_a_registered_device_is_adapted_and_an_unknown_one_is_not(adapting):
    sheet = {"name": "my-card", "vendor": "me", "kind": "gpu"}
    sheet |= {"memory_bandwidth_gbs": 900, "peak_tflops": {"fp32": 40}}
    body = {"measurements": [linear_row(64, 0.05)]}
    problem_of(adapting.post("/v1/devices/my-card/measurements", json=body), 404)
    near = adapting.post("/v1/devices/rtx-4091/measurements", json=body).json()
    assert "rtx-4090" in near["did_you_mean"]
    adapting.put("/v1/devices/my-card", json=sheet)
    made = content_of(adapting.post("/v1/devices/my-card/measurements", json=body), 201)
    assert made["errors"]["latency_ms"]["mape_after"] is None


def test_a_black_box_says_what_it_lacks(adapting):
    assert adapting.put("/v1/devices/black-box", json=BOX).status_code == 200
    refused = adapting.post("/v1/devices/black-box/measurements", json=OF_MEMORY)
    problem_of(refused, 422, "memory_bandwidth_gbs")
    assert adapting.get("/v1/devices/black-box/measurements").json()["sets"] == []


def test_a_black_box_is_no_fault_once_the_memory_of_another_device_is_known(adapting):
    assert adapting.post(PATH, json=OF_MEMORY).status_code == 201
    body = adapting.post("/v1/predict", json={"workload": NETWORK, "device": BOX}).json()
    assert body["metrics"]["latency_ms"] is None
    assert "no spec sheet" in body["missing"]["latency_ms"]
    assert body["metrics"]["peak_memory_mib"]["value"] > 0
    assert body["fits"] is None, "its memory is not known"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"metrics": {"latency_ms": 0}}, "measurements.1.metrics.latency_ms is 0 ms"),
        ({"metrics": {"latency_ms": -1}}, "measurements.1.metrics.latency_ms is -1 ms"),
        ({"metrics": {"speed": 1}}, "measurements.1.metrics: No metric 'speed'"),
        ({"metrics": {}}, "measurements.1: nothing was measured"),
        ({"metrics": {"latency_ms": "fast"}}, "measurements.1.metrics.latency_ms"),
        ({"metrics": {"latency_ms": 1e30}}, "check the unit"),
        ({"workload": {"kind": "network", "graph": "0" * 32}}, "measurements.1: No graph"),
        ({"workload": {"kind": "poem"}}, "measurements.1.workload"),
        ({"answer": {"speed": {"value": 1}}}, "measurements.1.answer: No metric 'speed'"),
        ({"answer": {"latency_ms": {"value": 0}}}, "measurements.1.answer.latency_ms.value"),
        ({"answer": {"latency_ms": {"value": 1, "low": 1}}}, "an interval has both ends"),
        ({"answer": {"latency_ms": {"value": 1, "low": 3, "high": 2}}}, "low is 3, above high, 2"),
    ],
)
def test_a_wrong_row_is_named_and_nothing_is_kept(adapting, change, said):
    for source in ("observe",) if "answer" in change else ("adapt", "observe"):
        wrong = body(linear_row(64, 0.05), linear_row(65, 0.05) | change, source=source)
        refused = adapting.post(PATH, json=wrong)
        assert refused.status_code in (404, 422)
        assert said in refused.json()["detail"]
        assert adapting.get(PATH, params={"source": source}).json()["sets"] == []


def test_not_a_number_is_refused(adapting):
    body = '{"measurements": [{"workload": %s, "metrics": {"latency_ms": NaN}}]}'
    text = body % json.dumps(linear_row(64, None)["workload"])
    refused = adapting.post(PATH, content=text, headers={"Content-Type": "application/json"})
    problem_of(refused, 422, "latency_ms is nan")


def test_there_is_a_most_and_a_least(adapting):
    assert adapting.post(PATH, json={"measurements": []}).status_code == 422
    many = {"measurements": [linear_row(64, 0.05)] * 1001}
    assert adapting.post(PATH, json=many).status_code == 422


def test_an_unknown_set_is_not_rolled_back(adapting):
    problem_of(adapting.delete(f"{PATH}/nothing"), 404, slug="unknown-set")


NOTHING = {"observations": {}, "versions": {}, "alarms": [], "slices": []}

SIZES = (64, 200, 700, 1500, 5000)
KEY = {"Idempotency-Key": "one"}


def body(*rows, source="observe"):
    return {"measurements": list(rows), "source": source}


def observed(client, *rows, path=PATH, **headers):
    return content_of(client.post(path, json=body(*rows), headers=headers), 201)


def test_answers_are_compared_with_observations_and_none_changes(client):
    before = {size: estimate(client, size) for size in SIZES}
    rows = [linear_row(size, before[size]["value"] * 2) for size in SIZES]
    made = observed(client, *rows)
    assert (made["source"], made["device"], made["rows"], made["judged"]) == ("observe", "l4", 5, 5)
    error = made["errors"]["latency_ms"]
    assert error["mape"] == pytest.approx(50)
    assert error["bias"] == pytest.approx(np.log(2))
    assert {size: estimate(client, size) for size in SIZES} == before
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
    given = estimate(client)
    observed(client, linear_row(64, given["value"] * 1.5))
    store = client.app.state.forerun.answers.adaptation.store
    ((row,),) = (each.rows for each in store.sets("l4", "observe"))
    kept = row.answer["latency_ms"]
    assert (kept.value, kept.low, kept.high) == (given["value"], given["low"], given["high"])
    assert kept.version == client.get("/readyz").json()["version"]


def test_coverage_is_that_of_calibrated_intervals(adapting):
    question = {"workload": NETWORK, "device": "l4"}
    answers = adapting.post("/v1/predict", json=question).json()["metrics"]
    given = {name: answers[name] for name in ("latency_ms", "peak_memory_mib")}
    assert given["latency_ms"]["coverage"] is not None
    assert given["peak_memory_mib"]["coverage"] is None
    measured = {name: answer["value"] for name, answer in given.items()}
    errors = observed(adapting, {"workload": NETWORK, "metrics": measured})["errors"]
    assert errors["latency_ms"]["coverage_90"] == 100.0
    assert errors["peak_memory_mib"]["coverage_90"] is None
    assert errors["peak_memory_mib"]["mape"] == pytest.approx(0)


def test_networks_are_observed_with_their_graph(client):
    row = {"workload": NETWORK, "metrics": {"latency_ms": 0.5, "peak_memory_mib": 900.0}}
    made = observed(client, row)
    assert set(made["errors"]) == {"latency_ms"}, "nothing answers memory here"
    store = client.app.state.forerun.answers.adaptation.store
    (kept,) = store.sets("l4", "observe")
    assert kept.rows[0].workload.graph == GRAPH.digest
    assert kept.families == ("other",)


def test_a_request_is_repeated_with_its_key_and_stored_once(client, settings, loaded):
    rows = [linear_row(size, 0.05) for size in SIZES]
    first = client.post(PATH, json=body(*rows), headers=KEY)
    again = client.post(PATH, json=body(*rows), headers=KEY)
    assert first.status_code == again.status_code == 201
    assert first.content == again.content
    problem_of(client.post(PATH, json=body(*rows[:1]), headers=KEY), 422, slug="reused-key")
    with client_of(settings, loaded) as restarted:
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
    rows = [linear_row(64 * n, 2 * estimate(adapting, 64 * n)["value"]) for n in range(1, 6)]
    first = adapting.post(PATH, json=body(*rows, source="adapt"), headers=KEY)
    assert first.status_code == 201, first.text
    changed = estimate(adapting)
    again = adapting.post(PATH, json=body(*rows, source="adapt"), headers=KEY)
    assert (again.status_code, again.content) == (201, first.content)
    assert estimate(adapting) == changed
    assert first.json()["version"] == adapting.get("/v1/models").json()["models"][0]["version"]
    assert len(adapting.get(PATH).json()["sets"]) == 1
    without = adapting.post(PATH, json=body(*rows, source="adapt"))
    assert without.status_code == 409, "the same rows without the key are repeated rows"
    observes = adapting.post(PATH, json=body(*rows), headers=KEY)
    assert observes.json()["type"] == "/problems/reused-key"


def steady_then_slow(client, steady, slow, factor=1.15):
    """Observe linear layers in requests of 20 rows, the later of which take longer."""
    chance = np.random.default_rng(0)
    times = {size: estimate(client, size)["value"] for size in SIZES}
    for number in range((steady + slow) // 20):
        sizes = chance.choice(SIZES, 20).tolist()
        noise = chance.lognormal(0.1, 0.03, 20) * (1.0 if 20 * number < steady else factor)
        rows = [linear_row(s, times[s] * n) for s, n in zip(sizes, noise, strict=True)]
        observed(client, *rows)


def test_a_slowdown_is_reported_by_slice_and_in_words(client):
    assert client.get("/v1/drift").json() == NOTHING
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
    assert one | {"metric": "latency_ms", "device": "l4", "rows": 300, "alarm": True} == one
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
    assert client.get("/v1/drift").json() == NOTHING
