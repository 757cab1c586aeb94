"""POST /v1/rank answers as `predict` does; `level` is the same through every door."""

import pytest

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.schemas.fields import example
from forerun.service.settings import Settings
from tests.service.answered import problem_of
from tests.service.conftest import GRAPH, client_of, linear_row

NETWORK = {"kind": "network", "graph": GRAPH.to_json(), "batch_size": 64, "precision": "fp32"}
THREE = ["l4", "a100-pcie-80gb", "t4"]


def ask(client, status=200, **changes):
    answer = client.post("/v1/rank", json={"workload": NETWORK, "devices": THREE} | changes)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_a_ranking_says_what_predict_says(adapting):
    found = ask(adapting)
    assert len(found["ranked"]) == 3
    for row in found["ranked"]:
        body = {"workload": NETWORK, "device": row["device"]["name"]}
        alone = adapting.post("/v1/predict", json=body).json()
        assert row["fits"] == alone["fits"]
        for name, said in row["metrics"].items():
            assert said["value"] == pytest.approx(alone["metrics"][name]["value"], rel=1e-9)


def test_the_whole_catalogue_is_ranked_or_excluded_with_reasons(adapting):
    found = ask(adapting, devices=None, objective="energy_j")
    returned = {row["device"]["name"] for part in ("ranked", "excluded") for row in found[part]}
    listed = {d["name"] for d in adapting.get("/v1/devices").json()["devices"]}
    assert returned == listed
    assert len(found["ranked"]) > 50
    reasons = {row["device"]["name"]: row["reasons"] for row in found["excluded"]}
    assert any("no predictor answers" in line for line in reasons["epyc-7742"])


def test_a_hundred_devices_are_ranked_at_once(adapting):
    sheet = adapting.get("/v1/devices/l4").json() | {"origin": "registered"}
    sheets = [
        sheet | {"name": f"mine-{place}", "aliases": [], "memory_bandwidth_gbs": 300 + place}
        for place in range(100)
    ]
    sheets = [{k: v for k, v in one.items() if k != "sources"} for one in sheets]
    assert len(ask(adapting, devices=sheets)["ranked"]) == 100


def test_a_kernel_has_no_memory_that_must_fit(adapting):
    kernel = linear_row(512, 1.0)["workload"]
    found = ask(adapting, workload=kernel, objective="power_w")
    assert len(found["ranked"]) == 3
    assert found["ranked"][0]["fits"] is None


def test_prices_are_given_by_any_name_of_a_device(adapting):
    prices = {"NVIDIA L4": 0.7, "t4": 0.35}
    found = ask(adapting, objective="cost", prices_per_hour=prices, limits={"must_fit": False})
    assert {row["device"]["name"] for row in found["ranked"]} == {"l4", "t4"}


def test_devices_named_twice_are_one(adapting):
    assert len(ask(adapting, devices=["l4", "NVIDIA L4", "l4"])["ranked"]) == 1


@pytest.mark.parametrize(
    ("changes", "status", "said"),
    [
        ({"devices": ["rtx 4091"]}, 404, "rtx-4090"),
        ({"devices": []}, 422, "devices"),
        ({"devices": ["l4"] * 201}, 422, "devices"),
        ({"objective": "speed"}, 422, "objective"),
        ({"limits": {"power_w": 0}}, 422, "power_w"),
        ({"limits": {"watts": 10}}, 422, "watts"),
        ({"prices_per_hour": {"l4": 1.0}}, 422, "objective cost"),
        ({"objective": "cost", "prices_per_hour": {"a30": 1.0}}, 422, "a30 is not among"),
    ],
)
def test_an_invalid_request_says_how_to_correct_it(client, changes, status, said):
    assert said in ask(client, status, **changes)["detail"]


QUESTIONS = {
    "kernel": ("/v1/predict", example("kernel")),
    "network": ("/v1/predict", example("network")),
    "served": ("/v1/llm/estimate", example("llm_by_size")),
    "deployment": ("/v1/llm/estimate", example("llm_by_lengths")),
    "deployment in a question": ("/v1/predict", example("deployment")),
    "diffusion": ("/v1/diffusion/estimate", example("diffusion")),
}
TRAINING = example("network")["workload"] | {"phase": "training"}
QUESTIONS["training"] = ("/v1/predict", example("network") | {"workload": TRAINING})


@pytest.fixture(scope="module")
def bundled_client(tmp_path_factory):
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    with client_of(settings, bundled()) as made:
        yield made


@pytest.mark.parametrize("name", QUESTIONS)
def test_intervals_are_nested_and_all_else_is_the_same(bundled_client, name):
    path, body = QUESTIONS[name]
    usual = bundled_client.post(path, json=body).json()
    assert usual["level"] == 90.0
    assert bundled_client.post(path, json=body | {"level": 90}).json() == usual
    found = [
        bundled_client.post(path, json=body | {"level": level}).json() for level in (50, 80, 95, 99)
    ]
    assert [answer["level"] for answer in found] == [50.0, 80.0, 95.0, 99.0]
    calibrated = 0
    for metric, own in usual["metrics"].items():
        each = [answer["metrics"][metric] for answer in (*found[:2], usual, *found[2:])]
        if own is None:
            assert each == [None] * 5
            continue
        for field in ("value", "unit", "grade", "grade_reason"):
            assert {one[field] for one in each} == {own[field]}, (metric, field)
        if own["low"] is not None:
            lows, highs = ([one[end] for one in each] for end in ("low", "high"))
            assert lows == sorted(lows, reverse=True), metric
            assert highs == sorted(highs), metric
        if own["coverage"] == 0.9:
            calibrated += 1
            assert [one["coverage"] for one in each] == [0.5, 0.8, 0.9, 0.95, 0.99]
    assert calibrated


def test_rankings_and_sweeps_compare_ends_of_the_level(bundled_client):
    body = example("rank") | {"devices": ["a100-sxm-80gb", "l4"]}
    usual, wide = (
        bundled_client.post("/v1/rank", json=body | level).json() for level in ({}, {"level": 99})
    )
    tops = [answer["ranked"][0]["objective"]["high"] for answer in (usual, wide)]
    assert tops[0] < tops[1]
    sweep = example("power_sweep")
    runs = [
        bundled_client.post("/v1/power/sweep", json=sweep | level).json()
        for level in ({}, {"level": 50})
    ]
    assert [own["level"] for own in runs] == [90.0, 50.0]
    widths = [own["runs"][-1]["latency_ms"]["high"] for own in runs]
    assert widths[0] > widths[1]


@pytest.mark.parametrize("level", [49.9, 99.5, "wide", None])
def test_other_levels_are_refused_by_name(bundled_client, level):
    answer = bundled_client.post("/v1/predict", json=example("kernel") | {"level": level})
    problem_of(answer, 422, "level")


@pytest.mark.parametrize("kind", ["architecture", "design", "benchmark"])
def test_kinds_without_measured_ratios_are_refused(bundled_client, kind):
    answer = problem_of(bundled_client.post("/v1/predict", json=example(kind) | {"level": 95}), 422)
    assert answer["detail"] == (
        f"level: intervals of kind {kind} were calibrated only at 90 %; omit it."
    )
    assert bundled_client.post("/v1/predict", json=example(kind) | {"level": 90}).status_code == 200
