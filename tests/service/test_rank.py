"""POST /v1/rank and `forerun rank`: one workload, many devices, the answers of `predict`."""

import pytest

from tests.service.conftest import GRAPH, linear_row

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
