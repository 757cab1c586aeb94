"""A real server of two workers asks for keys, follows revocations, and writes none to its log."""

import json

import httpx
import pytest

from forerun.service.stores.keys import KeyStore
from tests.service.conftest import GRAPH
from tests.service.real_server import real_server

pytestmark = pytest.mark.slow
WORKERS = 2


def test_a_server_on_all_addresses_asks_for_keys(tmp_path, roofline_folder):
    home = tmp_path / "home"
    keys = KeyStore(home / "keys")
    (reader, read), (writer, write) = keys.create("one", "read"), keys.create("two", "write")
    busy, often = keys.create("three", "read")
    settings = {
        "FORERUN_HOST": "0.0.0.0",
        "FORERUN_PREDICTOR_FOLDER": str(roofline_folder),
        "FORERUN_REQUESTS_PER_S_PER_KEY": "0.001",
    }
    with (
        real_server(home, workers=WORKERS, environment=settings) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):

        def ask(text: str) -> httpx.Response:
            return client.get("/v1/workloads", headers={"authorization": f"Bearer {text}"})

        def store(text: str) -> int:
            headers = {"authorization": f"Bearer {text}"}
            return client.post("/v1/graphs", json=GRAPH.to_json(), headers=headers).status_code

        assert client.get("/v1/workloads").status_code == 401
        assert (store(write), store(read)) == (201, 403)
        answers = [ask(often) for _ in range(10)]
        refused = [answer for answer in answers if answer.status_code != 200]
        assert 1 <= len(answers) - len(refused) <= WORKERS
        assert {answer.status_code for answer in refused} == {429}
        assert all(900 < int(answer.headers["retry-after"]) <= 1000 for answer in refused)
        keys.revoke(busy.id)
        assert {ask(often).status_code for _ in range(10)} == {401}
        server.stop()
        log = server.log.read_text()
    lines = [json.loads(line) for line in log.splitlines() if '"write"' in line]
    assert {(line["key"], line["status"]) for line in lines} == {(writer.id, 201), (reader.id, 403)}
    for text in (read, write, often):
        assert text.split("_", 2)[2] not in log
