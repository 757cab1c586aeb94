"""Questions to a server of several processes, which answer over connections of their own."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from forerun.service import champion
from forerun.service.settings import Settings
from forerun.training.release import registry
from tests.service.real_server import RealServer, real_server

WORKERS = 2
ENVIRONMENT = {"FORERUN_GRACEFUL_SECONDS": "2"}


@pytest.fixture
def store(prepared_database, tmp_path, monkeypatch) -> str:
    """Address of an empty registry, which is also that of this process."""
    uri = f"sqlite:///{shutil.copy(prepared_database, tmp_path / 'registry.db')}"
    monkeypatch.setenv("FORERUN_TRACKING_URI", uri)
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    return uri


@pytest.fixture(scope="module")
def server(tmp_path_factory) -> Iterator[RealServer]:
    """A server with several workers and the bundled predictors."""
    home = tmp_path_factory.mktemp("home")
    with real_server(home, workers=WORKERS, environment=ENVIRONMENT, fresh=True) as made:
        yield made


async def fetched(settings: Settings) -> tuple[Path | None, Path | None]:
    uri = settings.registry_uri
    return await asyncio.to_thread(lambda: (registry.champion(uri), registry.candidate(uri)))


def fetch_here() -> None:
    """This process asks the registry itself: one that imports mlflow each time takes seconds."""
    champion._fetched = fetched


def answering(folder: Path) -> dict[str, str]:
    """Variables of a server that answers with the predictor of a folder, which starts sooner."""
    return {"FORERUN_PREDICTOR_FOLDER": str(folder)}


def from_all(server: RealServer, ask: Callable[[httpx.Client], object]) -> list[object]:
    """Answers over many connections that are open at once, so that all workers have some."""
    clients = [httpx.Client(base_url=server.url, timeout=120) for _ in range(8 * WORKERS)]
    try:
        for client in clients:
            client.get("/healthz").raise_for_status()
        return [ask(client) for client in clients]
    finally:
        for client in clients:
            client.close()


def counted(server: RealServer, route: str) -> float:
    """Requests of a route since the start, as /metrics says."""
    text = httpx.get(f"{server.url}/metrics", timeout=120).text
    found = re.findall(rf'forerun_requests_total{{route="{route}",status="200"}} (\S+)', text)
    assert len(found) <= 1, "every process has a line of its own"
    return float(found[0]) if found else 0.0


def shared_mib(server: RealServer) -> float:
    """Memory of all processes, MiB; a shared page is divided among those that share it."""
    return sum(map(_proportional_mib, {server.pid, *server.workers()}))


def _proportional_mib(pid: int) -> float:
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.M)
    assert found is not None
    return int(found[1]) / 1024
