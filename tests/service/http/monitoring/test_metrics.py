"""Metrics of requests, answers, stores and processes, also summed over several workers."""

import os

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from forerun.service.http.monitoring import gauges as drift_metrics
from forerun.service.http.monitoring.gauges import metrics_of
from forerun.service.schemas.measurements import DriftOut, LiveErrorOut, SliceOut
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_NETWORK
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import Place
from tests.service.answered import content_of
from tests.service.conftest import GRAPH, kernel_row
from tests.service.real_server import real_server


def samples(text: str) -> dict[tuple[str, str], float]:
    """Name of a sample and its first label -> its value."""
    return {
        (own.name, next(iter(own.labels.values()), "")): own.value
        for family in text_string_to_metric_families(text)
        for own in family.samples
    }


def test_the_request_that_asks_is_in_flight_and_those_before_are_not(client):
    client.post("/v1/predict", json=EXAMPLE)
    for _ in range(2):
        assert samples(client.get("/metrics").text)[("forerun_requests_in_flight", "")] == 1


def test_what_has_not_happened_is_counted_as_none(client):
    found = [*text_string_to_metric_families(client.get("/metrics").text)]
    counts = {
        (sample.name, *sample.labels.values()): sample.value
        for family in found
        for sample in family.samples
    }
    limits = ("requests", "bytes", "questions", "uploads", "adaptations", "reports")
    for limit in (*limits, "requests_per_s_per_key"):
        assert counts["forerun_refused_total", limit] == 0.0
    for reason in ("client left", "deadline"):
        assert counts["forerun_abandoned_total", reason] == 0.0


def test_computed_answers_count_by_their_domain_and_cached_ones_do_not(adapting):
    def counted():
        found = samples(adapting.get("/metrics").text)
        return [found[("forerun_computed_answers_total", own)] for own in ("yes", "no")]

    before = counted()
    network = adapting.post("/v1/predict", json=EXAMPLE_NETWORK).json()
    adapting.post("/v1/predict", json=EXAMPLE_NETWORK)  # from the cache
    batch = {"items": [{**EXAMPLE, "device": "t4"}, {**EXAMPLE, "device": "nothing"}]}
    items = adapting.post("/v1/predict:batch", json=batch).json()["items"]
    new = [network["in_domain"], items[0]["in_domain"]]
    assert counted() == [before[0] + new.count(True), before[1] + new.count(False)]


def test_an_adaptation_is_counted_with_its_time(adapting):
    rows = [kernel_row(GRAPH.operators[0], 1.0 + row / 10, "fp32") for row in range(3)]
    content_of(adapting.post("/v1/devices/l4/measurements", json={"measurements": rows}), 201)
    found = samples(adapting.get("/metrics").text)
    assert found[("forerun_adaptation_seconds_count", "")] == 1
    assert found[("forerun_adaptation_seconds_sum", "")] > 0
    assert found[("forerun_store_records", "measurements")] == 1


def test_stores_have_their_records_bytes_and_limits(client, settings, digest):
    found = samples(client.get("/metrics").text)
    (content,) = Records.of_texts(Place(settings.home) / "graphs").values().values()
    assert found[("forerun_store_records", "graphs")] == 1
    assert found[("forerun_store_bytes", "graphs")] == len(content.encode())
    assert found[("forerun_store_records_limit", "graphs")] == settings.graphs_kept
    assert found[("forerun_store_records", "devices")] == 0
    assert ("forerun_store_records_limit", "observations") not in found
    assert found[("forerun_home_free_bytes", "")] > 0
    client.delete(f"/v1/graphs/{digest}")
    assert samples(client.get("/metrics").text)[("forerun_store_records", "graphs")] == 0


def test_this_process_is_measured(client):
    found = samples(client.get("/metrics").text)
    own = str(os.getpid())
    assert found[("process_resident_memory_bytes", own)] > 2**20
    assert found[("process_cpu_seconds_total", own)] > 0
    assert found[("process_open_fds", own)] > 0


@pytest.mark.slow
def test_metrics_are_those_of_all_workers(tmp_path, roofline_folder):
    environment = {"FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}
    with real_server(tmp_path / "home", workers=2, environment=environment) as server:
        for row in range(12):  # of connections of their own, which both workers take
            asked = {**EXAMPLE, "software": {"threads": row + 1}}
            assert httpx.post(f"{server.url}/v1/predict", json=asked).status_code == 200
        found = samples(httpx.get(f"{server.url}/metrics").text)
        pids = {pid for name, pid in found if name == "process_resident_memory_bytes"}
        assert pids == set(map(str, server.pids()))
    computed = sum(found[("forerun_computed_answers_total", own)] for own in ("yes", "no"))
    assert computed == 12
    assert found[("forerun_work_wait_seconds_count", "questions")] >= 12
    assert found[("forerun_requests_in_flight", "")] == 1
    assert found[("forerun_work_waiting", "questions")] == 0


def report(*rows, coverage=50.0) -> DriftOut:
    live = LiveErrorOut(
        rows=7, mape=12.0, median_ape=10.0, bias=-0.1, rows_with_interval=7, coverage_90=coverage
    )
    slices = [
        SliceOut(
            metric="latency_ms", device="l4", kind=None, family=f"f{n}", precision=None,
            rows=count, live=live, changes=[], alarm=n == 0,
        )
        for n, count in enumerate(rows)
    ]  # fmt: skip
    return DriftOut(observations={"l4": 7}, alarms=[], slices=slices)


def values(given):
    return {
        metric.name: {s.labels["family"]: s.value for s in metric.samples}
        for metric in metrics_of(given)
    }


def test_each_slice_has_a_value_in_each_metric():
    found = values(report(30, 20))
    assert found == {
        "forerun_live_observations": {"f0": 7, "f1": 7},
        "forerun_live_error_ratio": {"f0": 0.12, "f1": 0.12},
        "forerun_live_bias": {"f0": -0.1, "f1": -0.1},
        "forerun_live_coverage_ratio": {"f0": 0.5, "f1": 0.5},
        "forerun_drift_alarm": {"f0": 1.0, "f1": 0.0},
    }


def test_a_coverage_that_is_not_known_is_left_out():
    assert values(report(30, coverage=None))["forerun_live_coverage_ratio"] == {}


def test_the_slices_of_most_observations_are_exported(monkeypatch):
    monkeypatch.setattr(drift_metrics, "MOST_SLICES", 2)
    assert set(values(report(20, 90, 40))["forerun_live_bias"]) == {"f1", "f2"}


def test_without_observations_there_are_no_metrics():
    assert values(report()) == {}
