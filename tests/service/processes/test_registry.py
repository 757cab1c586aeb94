"""A registry decides what answers, never whether; a candidate answers its share in all workers."""

import re
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from threading import Event

import httpx
import pytest

from forerun.models.artifact.sealed_folder import bundled, seal
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.champion import FOLDER, Champion, keep
from forerun.service.settings import Settings
from forerun.training.release.registry import promote, register, try_out, withdraw
from forerun.training.tracking.runs import tracked
from tests.service.conftest import linear_row
from tests.service.processes.conftest import fetch_here, from_all
from tests.service.real_server import real_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow
OPERATOR = linear_row(64, None)["workload"]["operator"]
CONNECTIONS = 6
PAUSE_S = 0.1


@pytest.fixture
def hanging():
    """Address of a registry that accepts connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=64)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def sealed(folder, created="2026-01-01") -> str:
    folder.mkdir(parents=True)
    Router((Roofline(),)).save(folder)
    (folder / "card.md").write_text(created)
    return seal(folder, created).version


def registered(folder) -> int:
    with tracked(folder.name) as run:
        return register(run, folder)


@contextmanager
def asking(server, workload):
    """Ask over several connections that are kept, all the time; a failure is raised at the end.

    Yields:
        Number of the connection -> version of its newest answer.
    """
    seen: dict[int, str] = {}
    over = Event()

    def ask(number: int) -> None:
        with httpx.Client(base_url=server.url, timeout=120) as client:
            while not over.is_set():
                body = {"workload": workload, "device": "t4"}
                answer = client.post("/v1/predict", json=body).raise_for_status().json()
                seen[number] = answer["predictor"]["version"]
                over.wait(PAUSE_S)

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        asked = [pool.submit(ask, number) for number in range(CONNECTIONS)]
        try:
            yield seen
        finally:
            over.set()
        for each in asked:
            each.result()


def readiness(client: httpx.Client) -> dict:
    return client.get("/readyz").json()


def test_the_champion_fetched_last_answers_while_the_registry_hangs(tmp_path, hanging):
    version = sealed(tmp_path / "champion")
    settings = Settings(home=tmp_path / "home", registry_uri=hanging)
    shutil.copytree(tmp_path / "champion", settings.home / FOLDER / version)
    asked = datetime(2026, 1, 1, tzinfo=UTC)
    keep(Champion(uri=hanging, version=version, asked=asked), settings)
    limits = {"FORERUN_REGISTRY_URI": hanging, "FORERUN_REGISTRY_TIMEOUT_SECONDS": "1"}
    with real_server(settings.home, environment=limits) as server:
        with httpx.Client(base_url=server.url, timeout=120) as client:
            assert readiness(client)["version"] == version
            eventually(lambda: not readiness(client)["registry"]["answered"])
            assert readiness(client)["version"] == version
            assert readiness(client)["registry"]["version"] == version
            metrics = client.get("/metrics").text
        assert "forerun_registry_answered 0.0" in metrics
        assert f'forerun_predictor_info{{version="{version}"}} 1.0' in metrics
        assert "did not answer within 1 s" in server.log.read_text()


def test_new_champions_take_over_in_all_workers_and_no_request_fails_meanwhile(tmp_path, store):
    """One that was promoted before the start, and one that is promoted while questions come."""
    versions = [sealed(tmp_path / day, day) for day in ("2026-01-01", "2026-01-02")]
    first, second = (registered(tmp_path / day) for day in ("2026-01-01", "2026-01-02"))
    promote(first, reason="it answers at once")
    environment = {"FORERUN_REGISTRY_URI": store, "FORERUN_REGISTRY_POLL_SECONDS": "3"}
    with (
        real_server(tmp_path / "served", workers=2, environment=environment) as server,
        asking(server, {"kind": "kernel", "operator": OPERATOR}) as seen,
    ):
        before = server.workers()
        eventually(lambda: set(seen.values()) == {versions[0]})
        (registry,) = {str(each["registry"]) for each in from_all(server, readiness)}
        assert versions[0] in registry and "'answered': True" in registry
        promote(second, reason="the same with another card")
        eventually(lambda: set(seen.values()) == {versions[1]})
        eventually(lambda: {x["version"] for x in from_all(server, readiness)} == {versions[1]})
        assert server.workers() == before, "no process was replaced"


SIZES = range(64, 124)
ROUNDS = 2


def question(size: int) -> dict:
    return {"workload": linear_row(size, None)["workload"], "device": "t4"}


def answers(server, sizes=SIZES) -> dict[int, dict]:
    """Size -> the answer to a question, asked over several connections."""
    with httpx.Client(base_url=server.url, timeout=120) as client, ThreadPoolExecutor(4) as pool:
        asked = pool.map(lambda size: client.post("/v1/predict", json=question(size)), sizes)
        return {
            size: each.raise_for_status().json() for size, each in zip(sizes, asked, strict=True)
        }


def trial(client: httpx.Client) -> dict | None:
    return client.get("/v1/models").json()["trial"]


def tried(client: httpx.Client) -> str | None:
    return (trial(client) or {}).get("version")


def version_of(answer: dict) -> str:
    return answer["predictor"]["version"]


def test_equal_questions_get_equal_versions_from_all_workers_until_it_is_withdrawn(store, tmp_path):
    """First with a candidate that answers otherwise than sealed, which gets no question."""
    damaged, made = tmp_path / "damaged", tmp_path / "roofline"
    for folder in (damaged, made):
        folder.mkdir()
        Router((Roofline(),)).save(folder)
    (damaged / "examples.json").write_text('{"kernel on l4": {"latency_ms": 1.0}}')
    seal(damaged, "2026-01-01")
    version = seal(made, "2026-01-01").version
    try_out(registered(damaged))
    number = registered(made)
    environment = {
        "FORERUN_REGISTRY_URI": store,
        "FORERUN_REGISTRY_POLL_SECONDS": "1",
        "FORERUN_CANARY_SHARE": "0.3",
        "FORERUN_SHADOW_SHARE": "0.4",
    }
    with real_server(
        tmp_path / "served", workers=2, environment=environment, prepare=fetch_here
    ) as server:
        eventually(lambda: "the candidate cannot be used" in server.log.read_text())
        assert not any(from_all(server, trial))
        before = answers(server)
        assert {version_of(each) for each in before.values()} == {bundled().version}
        try_out(number)
        eventually(
            lambda: all((each or {}).get("version") == version for each in from_all(server, trial))
        )
        rounds = [answers(server) for _ in range(ROUNDS)]
        canary = {size for size, each in rounds[0].items() if version_of(each) == version}
        assert 0.1 < len(canary) / len(SIZES) < 0.5
        for each in rounds:
            assert {size for size, own in each.items() if version_of(own) == version} == canary
            assert all(own == before[size] for size, own in each.items() if size not in canary)
        batch = {"items": [question(size) for size in SIZES]}
        listed = httpx.post(f"{server.url}/v1/predict:batch", json=batch, timeout=120).json()
        assert {
            size
            for size, own in zip(SIZES, listed["items"], strict=True)
            if version_of(own) == version
        } == canary

        fresh = range(1064, 1144)
        unseen = answers(server, fresh)
        with httpx.Client(base_url=server.url, timeout=120) as client:
            eventually(lambda: trial(client)["compared"] > 20)
            report = trial(client)
            assert (report["failed"], report["left_out"]) == (0, 0)
            assert report["differences"]["latency_ms"]["mean_percent"] > 1
            text = client.get("/metrics").text
            found = re.findall(
                r'forerun_shadow_answers_total{outcome="compared",version="(\w+)"}', text
            )
            assert found == [version]
            _observe(client, unseen)
            drift = client.get("/v1/drift").json()
            assert {own["version"] for own in drift["slices"]} == {bundled().version, version}
            labels = set(
                re.findall(
                    r'forerun_live_error_ratio{.*version="(\w+)"}', client.get("/metrics").text
                )
            )
            assert labels == {bundled().version, version}
        withdraw()
        eventually(lambda: not any(from_all(server, trial)))
        assert answers(server) == before


def _observe(client, given) -> None:
    """Send a measurement of each question without its answer, which is that of its version."""
    rows = [
        linear_row(size, 1.1 * own["metrics"]["latency_ms"]["value"]) for size, own in given.items()
    ]
    body = {"measurements": rows, "source": "observe"}
    sent = client.post("/v1/devices/t4/measurements", json=body)
    assert sent.status_code == 201, sent.text
