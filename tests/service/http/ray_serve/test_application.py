"""Replicas of Ray Serve answer as one service, and lose nothing when one of them is killed."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import httpx
import pytest
import yaml

from forerun.data.errors import InputError
from forerun.models.artifact.sealed_folder import seal
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.http.app import create_app
from forerun.service.http.ray_serve.application import Replica, application
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_SHEET
from forerun.service.settings import Settings
from tests.coroutines import run
from tests.postgres import PASSWORD, needs_postgres, postgres_server
from tests.service.answered import content_of
from tests.service.conftest import linear_row
from tests.service.faults.asking import graph
from tests.waiting import eventually

pytest.importorskip("ray.serve", reason="needs the ray extra", exc_type=ImportError)

CONFIGURATION = Path(__file__).parents[4] / "deploy/ray-serve/serve.yaml"
STOPS_WITHIN_S = 60
WITHOUT_DASHBOARD = """
import ray
from ray.serve.scripts import cli
ray.init(include_dashboard=False, namespace="serve")
cli()
"""
"""The command `serve`, whose cluster has no web page: processes of that take seconds to start."""


def configuration() -> dict[str, Any]:
    content = yaml.safe_load(CONFIGURATION.read_text())
    assert isinstance(content, dict)
    return content


def test_the_configuration_fits_its_schema_and_names_the_application_and_settings():
    from ray.serve.schema import ServeDeploySchema

    parsed = ServeDeploySchema.model_validate(configuration())
    (served,) = parsed.applications
    assert served.import_path == f"{application.__module__}:{application.__name__}"
    assert [each.name for each in served.deployments] == ["forerun"]
    names = {f"FORERUN_{name.upper()}" for name in Settings.model_fields}
    assert set(served.runtime_env["env_vars"]) <= names


def test_requests_and_the_time_to_end_follow_the_settings(monkeypatch, tmp_path):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    monkeypatch.setenv("FORERUN_REQUESTS_IN_FLIGHT", "77")
    monkeypatch.setenv("FORERUN_GRACEFUL_SECONDS", "13")
    deployment = application({})._bound_deployment
    assert deployment.max_ongoing_requests == 77
    assert deployment._deployment_config.graceful_shutdown_timeout_s == 13


def test_a_public_address_needs_keys_and_arguments_are_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"args of Ray Serve are not read \(port\)"):
        application({"port": "1"})
    monkeypatch.setenv("FORERUN_HOST", "0.0.0.0")
    with pytest.raises(InputError, match=r"not a loopback address, and there are no keys"):
        application({})


def test_a_replica_that_is_not_ready_is_unhealthy(settings, loaded):
    replica = Replica()
    replica.app = create_app(settings, loaded)

    async def asked() -> None:
        with pytest.raises(RuntimeError, match=r"^/readyz answers 503$"):
            await replica.check_health()
        async with replica.app.router.lifespan_context(replica.app):
            await replica.check_health()

    run(asked())


@dataclass(frozen=True)
class Served:
    """A local Ray Serve.

    Attributes:
        url: address of its proxy.
        log: file with all that it has printed.
    """

    url: str
    log: Path
    process: "subprocess.Popen[bytes]"

    def replicas(self) -> list[int]:
        """Process ids of the replicas."""
        return [pid for pid in self.pids() if b"ServeReplica:forerun:forerun" in _command(pid)]

    def pids(self) -> list[int]:
        """Process ids of all that it has started, itself first."""
        parents = {int(each.name): _parent(each) for each in Path("/proc").glob("[0-9]*")}
        found = [self.process.pid]
        for pid in found:
            found += [child for child, parent in parents.items() if parent == pid]
        return found

    def ready(self) -> bool:
        """Whether two replicas run, and a request is answered."""
        assert self.process.poll() is None, self.log.read_text()
        with suppress(httpx.TransportError):
            return len(self.replicas()) == 2 and httpx.get(f"{self.url}/readyz").status_code == 200
        return False

    def stop(self) -> None:
        """Ask it to end, and end what is left."""
        pids = self.pids()
        self.process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(STOPS_WITHIN_S)
        for pid in {*pids, *self.pids()}:
            if b"ray" in _command(pid) or pid == self.process.pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.process.wait(STOPS_WITHIN_S)


def _command(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def _parent(process: Path) -> int | None:
    with suppress(OSError):
        return int((process / "stat").read_text().rpartition(")")[2].split()[1])
    return None


def _free_port() -> int:
    """A free port that no outgoing connection is given: Ray opens many before it listens."""
    for port in range(20_000 + os.getpid() % 10_000, 32_000):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@contextmanager
def ray_serve(database: str) -> Iterator[Served]:
    """The configuration of `deploy`, on a free port of this machine and on any number of cores."""
    content = configuration()
    port = _free_port()
    content["http_options"] = {"host": "127.0.0.1", "port": port}
    (served,) = content["applications"]
    served["runtime_env"]["env_vars"] = {"FORERUN_HOST": "127.0.0.1", "FORERUN_AUTH": "off"}
    (deployment,) = served["deployments"]
    del deployment["max_replicas_per_node"]
    deployment["ray_actor_options"]["num_cpus"] = 0.1
    deployment["health_check_period_s"] = 1
    # The path of a socket in Ray's folder may have 107 characters.
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        predictor = folder / "predictor"
        Router((Roofline(),)).save(predictor)
        seal(predictor, "2026-01-01")
        (folder / "serve.yaml").write_text(yaml.safe_dump(content))
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("FORERUN_", "RAY"))}
        environment |= {
            "FORERUN_HOME": str(folder / "home"),
            "FORERUN_DATABASE_URL": database,
            "FORERUN_PREDICTOR_FOLDER": str(predictor),
            "RAY_TMPDIR": str(folder),
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        with (folder / "log").open("wb") as printed:
            process = subprocess.Popen(
                [sys.executable, "-c", WITHOUT_DASHBOARD, "run", str(folder / "serve.yaml")],
                env=environment, stdout=printed, stderr=printed, start_new_session=True,
            )  # fmt: skip
        started = Served(f"http://127.0.0.1:{port}", folder / "log", process)
        try:
            eventually(started.ready, every_s=0.2)
            yield started
            assert PASSWORD not in started.log.read_text()
        finally:
            started.stop()


def write(client: httpx.Client, number: int) -> set[str]:
    """Store a device, a graph and a measurement; the paths that then must have an answer."""
    name = f"card-{number}"
    sheet = EXAMPLE_SHEET | {"name": name, "title": name}
    sent = (
        ("PUT", f"/v1/devices/{name}", sheet),
        ("POST", "/v1/graphs", graph(number)),
        ("POST", "/v1/devices/l4/measurements", {"measurements": [linear_row(number, 0.05)]}),
    )
    acknowledged = set()
    for method, path, body in sent:
        with suppress(httpx.TransportError):
            answer = client.request(method, path, json=body)
            if answer.is_success:
                stored = answer.json()
                acknowledged.add(
                    path if method == "PUT" else f"{path}/{stored.get('digest', stored.get('set'))}"
                )
    return acknowledged


def is_stored(client: httpx.Client, path: str) -> bool:
    collection, _, name = path.rpartition("/")
    if collection.endswith("measurements"):
        return name in {each["set"] for each in client.get(collection).json()["sets"]}
    return client.get(path).status_code == 200


@pytest.mark.slow
@needs_postgres
def test_two_replicas_answer_and_a_killed_one_loses_nothing_acknowledged():
    from forerun.service.stores.database.connections import Database
    from forerun.service.stores.database.upgrading import upgraded

    acknowledged: set[str] = set()
    with postgres_server() as postgres:
        database = Database(postgres.url)
        upgraded(database)
        database.close()
        with (
            ray_serve(postgres.url) as served,
            httpx.Client(base_url=served.url, timeout=60) as client,
        ):
            assert client.get("/healthz").json() == {"status": "ok"}
            first_answer = content_of(client.post("/v1/predict", json=EXAMPLE))
            ended = Event()

            def ingest() -> None:
                with httpx.Client(base_url=served.url, timeout=60) as own:
                    for number in count(1):
                        acknowledged.update(write(own, number))
                        if ended.wait(0.1):
                            return

            writes = Thread(target=ingest)
            writes.start()
            try:
                victim, other = served.replicas()
                eventually(lambda: acknowledged)
                os.kill(victim, signal.SIGKILL)
                eventually(lambda: victim not in served.replicas() and served.ready())
                after = len(acknowledged)
                eventually(lambda: len(acknowledged) > after)
            finally:
                ended.set()
                writes.join()
            assert other in served.replicas()
            again = client.post("/v1/predict", json=EXAMPLE)
            assert again.json()["metrics"] == first_answer["metrics"]
            # What another replica stored is found within 2 seconds.
            eventually(lambda: all(is_stored(client, each) for each in acknowledged), every_s=1)
