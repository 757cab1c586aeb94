"""A registry decides what answers, but never whether something answers."""

import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from threading import Event

import httpx
import pytest

from forerun.models.artifact.sealed_folder import seal
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.champion import FOLDER, Champion, keep
from forerun.service.settings import Settings
from forerun.training.release.registry import promote, register
from forerun.training.tracking.runs import tracked
from tests.service.conftest import linear_row
from tests.service.processes.conftest import from_all
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
    with tracked("roofline") as run:
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
