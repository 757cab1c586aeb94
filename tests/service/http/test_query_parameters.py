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
