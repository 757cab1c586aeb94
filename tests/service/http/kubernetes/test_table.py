"""The table of workload classes by device, its tag, and the wait for the next one."""

import asyncio
import json
from dataclasses import replace

import httpx
import pytest
import yaml
from starlette.requests import ClientDisconnect

from forerun.service.http.kubernetes.table import BadWorkloadClasses, Table, WatchedTable, is_known
from forerun.service.http.lanes import Departure
from tests.coroutines import run
from tests.service.answered import content_of, problem_of
from tests.service.conftest import client_of
from tests.service.real_server import real_server

RESNET = {"forerun.dev/graph": "resnet50", "forerun.dev/batch-size": "64", "team/other": "x"}
LLAMA = {
    "forerun.dev/llm": "llama-3.1-8b",
    "forerun.dev/input-tokens": "1024",
    "forerun.dev/output-tokens": "256",
    "forerun.dev/concurrency": "16",
}
GIVEN = {
    "devices": ["l4", "NVIDIA A100 80GB PCIe"],
    "classes": [
        {"name": "resnet50", "annotations": RESNET},
        {"name": "llama", "annotations": LLAMA, "gpus": 2},
    ],
}
PATH = "/v1/kubernetes/table"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "classes.yaml"
    path.write_text(yaml.safe_dump(GIVEN))
    return path


@pytest.mark.slow
def test_the_table_agrees_with_the_answers_about_each_class(settings, trained, file):
    with client_of(settings, trained, workload_classes=file) as client:
        answer = client.get(PATH)
        workload = {"kind": "network", "graph": "resnet50", "batch_size": 64}
        own = client.post("/v1/predict", json={"device": "l4", "workload": workload}).json()
        asked = {"model": "llama-3.1-8b", "device": "l4", "input_tokens": 1024}
        asked |= {"output_tokens": 256, "concurrency": 16, "parallelism": {"tensor": 2}}
        served = client.post("/v1/llm/estimate", json=asked).json()
    assert answer.status_code == 200, answer.text
    table = answer.json()
    assert table["devices"] == ["l4", "a100-pcie-80gb"]
    resnet, llama = (row["cells"] for row in table["classes"])
    assert [cell["device"] for cell in resnet + llama] == table["devices"] * 2
    latency = own["metrics"]["latency_ms"]
    for end in ("value", "low", "high"):
        assert resnet[0]["latency_ms"][end] == pytest.approx(latency[end])
    assert resnet[0]["throughput_per_s"]["value"] == pytest.approx(64e3 / latency["value"])
    assert resnet[0]["throughput_per_s"]["low"] == pytest.approx(64e3 / latency["high"])
    assert resnet[0]["peak_memory_mib"]["value"] == own["metrics"]["peak_memory_mib"]["value"]
    assert resnet[0]["grade"] == latency["grade"] and resnet[0]["fits"] is True
    for own_name, name in (
        ("latency_ms", "request_latency_ms"),
        ("throughput_per_s", "requests_per_s"),
    ):
        assert llama[0][own_name]["value"] == pytest.approx(served["metrics"][name]["value"])
    assert llama[0]["device_count"] == 2 and llama[0]["fits"] is True


def test_what_is_not_known_is_null_with_a_reason(settings, loaded, file):
    with client_of(settings, loaded, workload_classes=file) as client:
        for cell in client.get(PATH).json()["classes"][0]["cells"]:
            assert cell["latency_ms"]["low"] is cell["throughput_per_s"]["high"] is None
            assert cell["peak_memory_mib"] is cell["fits"] is None
        wrong = {"devices": ["epyc-7763"], "classes": GIVEN["classes"][1:]}
        file.write_text(yaml.safe_dump(wrong))
        (cell,) = content_of(client.get(PATH))["classes"][0]["cells"]
        assert cell["latency_ms"] is cell["throughput_per_s"] is cell["grade"] is None
        assert cell["problem"]


def test_the_tag_stays_while_nothing_changes_and_changes_with_the_file_and_the_predictors(
    settings, loaded, file
):
    with client_of(settings, loaded, workload_classes=file) as client:
        first = client.get(PATH)
        known = {"if-none-match": f'"other", {first.headers["etag"]}'}
        same = client.get(PATH, headers=known)
        assert (same.status_code, same.content) == (304, b"")
        assert same.headers["etag"] == first.headers["etag"]
        file.write_text(yaml.safe_dump({**GIVEN, "devices": ["l4"]}))
        changed = client.get(PATH, headers=known)
        assert changed.status_code == 200 and changed.json()["devices"] == ["l4"]
        state = client.app.state.forerun
        state.answers.swap(replace(loaded, version="newer"))
        newer = client.get(PATH, headers={"if-none-match": changed.headers["etag"]})
        assert newer.status_code == 200 and newer.json()["version"] == "newer"


def test_two_processes_give_equal_tables_equal_tags(settings, loaded, file):
    tags, bodies = set(), set()
    for _ in range(2):
        with client_of(settings, loaded, workload_classes=file) as client:
            answer = client.get(PATH)
            tags.add(answer.headers["etag"])
            bodies.add(answer.content)
    assert len(tags) == len(bodies) == 1


def test_without_a_file_there_is_no_table(client):
    problem_of(client.get(PATH), 404, "FORERUN_WORKLOAD_CLASSES")


@pytest.mark.parametrize(
    "content, why",
    [
        ("devices: [l4", "not YAML"),
        ("devices: [l4]", "classes"),
        ("devices: []\nclasses: []", "devices"),
        (yaml.safe_dump({**GIVEN, "classes": GIVEN["classes"][:1] * 2}), "the same name"),
        (yaml.safe_dump({**GIVEN, "devices": ["l4"] * 1_001}), "2,000"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_at_the_start(tmp_path, content, why):
    path = tmp_path / "classes.yaml"
    path.write_text(content)
    with pytest.raises(BadWorkloadClasses, match=why) as refused:
        Table(path)
    assert str(path) in str(refused.value)


WRONG = {"name": "wrong", "annotations": {"forerun.dev/batch-size": "64"}}
UNKNOWN = {"name": "unknown", "annotations": {**RESNET, "forerun.dev/graph": "resnet51"}}
UNNAMED = {"name": "unnamed", "annotations": {**LLAMA, "forerun.dev/llm": "llama-3.1-9b"}}


@pytest.mark.parametrize(
    "change, why",
    [
        ({"devices": ["l4", "h1000"]}, "h1000"),
        ({"classes": [GIVEN["classes"][0], WRONG]}, "'wrong'"),
        ({"classes": [UNKNOWN]}, "resnet51"),
        ({"classes": [UNNAMED]}, "llama-3.1-9b"),
    ],
)
def test_what_no_answer_can_be_about_is_refused_at_the_start(settings, loaded, file, change, why):
    file.write_text(yaml.safe_dump({**GIVEN, **change}))
    with (
        pytest.raises(BadWorkloadClasses, match=why) as refused,
        client_of(settings, loaded, workload_classes=file),
    ):
        pass
    assert str(file) in str(refused.value)


def test_a_class_or_device_that_becomes_wrong_leaves_the_others_their_cells(settings, loaded, file):
    wrong = {
        "devices": ["h1000", *GIVEN["devices"]],
        "classes": [*GIVEN["classes"], WRONG, UNKNOWN],
    }
    with client_of(settings, loaded, workload_classes=file) as client:
        right = client.get(PATH).json()
        file.write_text(yaml.safe_dump(wrong))
        answer = client.get(PATH)
    assert answer.status_code == 200, answer.text
    table = answer.json()
    assert table["devices"] == ["h1000", *right["devices"]]
    for row, cells in zip(right["classes"], table["classes"], strict=False):
        assert cells["cells"][1:] == row["cells"]
        assert "h1000" in cells["cells"][0]["problem"]
    for row, why in zip(table["classes"][2:], ("graph", "resnet51"), strict=True):
        for cell in row["cells"][1:]:
            assert why in cell["problem"] and cell["latency_ms"] is None


def test_a_file_that_is_gone_is_a_problem_and_not_a_fault(settings, loaded, file):
    with client_of(settings, loaded, workload_classes=file) as client:
        file.unlink()
        answer = client.get(PATH)
    assert answer.status_code == 503 and "cannot be read" in answer.json()["detail"]


@pytest.mark.parametrize(
    "header, known",
    [(None, False), ("*", True), ('"a"', True), ('W/"a"', True), ('"b" , "a"', True), ("a", False)],
)
def test_tags_are_compared_as_http_says(header, known):
    assert is_known("a", header) is known


class Changing:
    """A table whose tag is set by tests."""

    def __init__(self) -> None:
        self.now = "a"

    def known_tag(self, answers: object) -> str:
        return self.now


async def at_once(work):
    return work()


def watched(table=None, stopping=None):
    return WatchedTable(table or Changing(), stopping or asyncio.Event())


def test_a_wait_ends_when_the_tag_changes():
    async def main():
        table = Changing()
        waiting = asyncio.ensure_future(watched(table).new_tag('"a"', 600.0, None, at_once))
        await asyncio.sleep(0)
        table.now = "b"
        return await asyncio.wait_for(waiting, 60)

    assert run(main()) == "b"


def test_a_wait_ends_with_its_time_with_the_process_and_with_its_client():
    async def main():
        stopping = asyncio.Event()
        assert await watched().new_tag('"a"', 0.01, None, at_once) == "a"
        waiting = asyncio.ensure_future(
            watched(stopping=stopping).new_tag('"a"', 600, None, at_once)
        )
        await asyncio.sleep(0)
        stopping.set()
        assert await asyncio.wait_for(waiting, 60) == "a"

        async def gone():
            return {"type": "http.disconnect"}

        with Departure(gone).watchable(), pytest.raises(ClientDisconnect):
            await asyncio.wait_for(watched().new_tag('"a"', 600, None, at_once), 60)

    run(main())


def test_no_more_than_some_wait(monkeypatch):
    monkeypatch.setattr("forerun.service.http.kubernetes.table.MOST_WAITING", 1)

    async def main():
        own = watched()
        first = asyncio.ensure_future(own.new_tag('"a"', 600, None, at_once))
        await asyncio.sleep(0)
        assert await asyncio.wait_for(own.new_tag('"a"', 600, None, at_once), 60) == "a"
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await asyncio.wait_for(own.new_tag('"a"', 0.01, None, at_once), 60) == "a"

    run(main())


@pytest.mark.slow
def test_a_real_server_answers_while_clients_wait_and_ends_without_them(
    tmp_path, roofline_folder, file
):
    environment = {
        "FORERUN_PREDICTOR_FOLDER": str(roofline_folder),
        "FORERUN_WORKLOAD_CLASSES": str(file),
        "FORERUN_GRACEFUL_SECONDS": "60",
    }

    async def main(server):
        async with httpx.AsyncClient(base_url=server.url, timeout=90) as client:
            known = {"if-none-match": (await client.get(PATH)).headers["etag"]}
            waiting = [
                asyncio.ensure_future(client.get(f"{PATH}?wait_s=60", headers=known))
                for _ in range(20)
            ]
            await asyncio.sleep(0.5)
            assert (await client.get("/v1/devices")).status_code == 200
            assert not any(one.done() for one in waiting)
            metrics = (await client.get("/metrics")).text
            assert 'forerun_work_in_progress{lane="questions"} 0.0' in metrics
            file.write_text(yaml.safe_dump({**GIVEN, "devices": ["l4"]}))
            answers = await asyncio.gather(*waiting)
            assert {one.status_code for one in answers} == {200}
            assert {len(json.loads(one.content)["devices"]) for one in answers} == {1}
            known = {"if-none-match": answers[0].headers["etag"]}
            last = asyncio.ensure_future(client.get(f"{PATH}?wait_s=60", headers=known))
            await asyncio.sleep(0.5)
            await asyncio.to_thread(server.stop)
            assert (await last).status_code == 304

    with real_server(tmp_path / "home", environment=environment) as server:
        run(main(server))
