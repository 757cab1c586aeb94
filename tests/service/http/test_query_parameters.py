"""Query parameters: a misspelt one is refused by name, with what was meant."""

import pytest


@pytest.mark.parametrize(
    ("path", "query", "said"),
    [
        ("/v1/predict/model", "device=l4&batchsize=8", "Did you mean batch_size?"),
        ("/v1/predict/model", "devcie=l4", "Did you mean device?"),
        ("/v1/predict/model", "device=l4&precison=amp", "Did you mean precision?"),
        ("/v1/predict", "device=l4", "takes none"),
    ],
)
def test_a_parameter_that_nobody_reads_is_refused(client, path, query, said):
    answer = client.post(f"{path}?{query}", json={})
    assert answer.status_code == 422
    assert answer.json()["type"] == "/problems/unknown-parameter"
    assert said in answer.json()["detail"]


def test_a_parameter_of_a_list_is_refused_too(client):
    assert client.get("/v1/devices?kind=gpu").status_code == 200
    assert client.get("/v1/devices?king=gpu").json()["did_you_mean"] == ["kind"]
    assert client.get("/?from=elsewhere").status_code == 200


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("device=l4&device=t4", "device takes one value and has 2: 'l4', 't4'"),
        ("device=l4&batch_size=8&batch_size=16", "batch_size takes one value and has 2: '8', '16'"),
    ],
)
def test_a_parameter_that_is_given_twice_is_refused_with_both_values(client, query, said):
    answer = client.post(f"/v1/predict/model?{query}", content=b"")
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_a_parameter_that_takes_several_values_may_be_repeated(client):
    assert client.get("/v1/leaderboard?dataset=hlsyn&dataset=neusight").status_code == 200


def test_several_devices_in_one_parameter_are_refused_with_what_a_file_allows(client):
    answer = client.post("/v1/predict/model?device=l4,t4", content=b"")
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (404, "/problems/unknown-device")
    assert problem["did_you_mean"] == ["l4", "t4"]
    assert "send this request once for each device" in problem["detail"]
    assert "as an item to POST /v1/predict:batch" in problem["detail"]
    assert "a request to :batch" not in problem["detail"]
