"""Replicas that share a database lose nothing acknowledged, whichever of them or it goes away."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from threading import Event

import httpx
import pytest

from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.graphs import GraphStore
from forerun.service.stores.measurement_sets import AdaptationStore
from forerun.service.stores.places import Place
from tests.postgres import PASSWORD, Postgres, needs_postgres, postgres_server
from tests.service.faults.asking import Asking
from tests.service.real_server import RealServer, real_server
from tests.waiting import eventually

pytestmark = [pytest.mark.slow, needs_postgres]
VARIABLE = "FORERUN_DATABASE_URL"


@pytest.fixture(scope="module")
def postgres() -> Iterator[Postgres]:
    from forerun.service.stores.database.connections import Database
    from forerun.service.stores.database.upgrading import upgraded

    with postgres_server() as server:
        database = Database(server.url)
        upgraded(database)
        database.close()
        yield server


@contextmanager
def replica(postgres, folder: Path, predictor: Path, workers: int = 1) -> Iterator[RealServer]:
    """A server on the shared database, with a folder of its own for the rest."""
    environment = {VARIABLE: postgres.url, "FORERUN_PREDICTOR_FOLDER": str(predictor)}
    with real_server(folder, workers=workers, environment=environment) as server:
        yield server
        assert PASSWORD not in server.log.read_text()


@dataclass
class Ingest:
    """Clients that store graphs, devices and measurements until they get the signal to end.

    Attributes:
        stored: kind of write -> what was acknowledged.
        refused: answers 503 that said when to ask again.
    """

    servers: tuple[RealServer, ...]
    stored: dict[str, set[str]] = field(
        default_factory=lambda: {"graphs": set(), "devices": set(), "measurements": set()}
    )
    refused: list[str] = field(default_factory=list)
    numbers: "count[int]" = field(default_factory=lambda: count(1))
    ended: Event = field(default_factory=Event)

    @property
    def acknowledged(self) -> int:
        """Number of acknowledged writes."""
        return sum(map(len, self.stored.values()))

    def write(self, server: RealServer, kind: str) -> None:
        """Write one after the other to a server, until its process or the ingest ends."""
        send: dict[str, tuple[Callable[[Asking, int], httpx.Response], str]] = {
            "graphs": (lambda ask, n: ask.put_graph(n), "digest"),
            "devices": (lambda ask, n: ask.put_device(f"card-{n}"), "name"),
            "measurements": (lambda ask, n: ask.put_rows(n), "set"),
        }
        ask_for, name = send[kind]
        with Asking(server.url, VARIABLE) as ask, suppress(httpx.TransportError):
            while server.runs and not self.ended.is_set():
                answer = ask_for(ask, next(self.numbers))
                if answer.is_success:
                    self.stored[kind].add(answer.json()[name])
                else:
                    assert answer.status_code == 503
                    self.refused.append(answer.headers["retry-after"])

    @contextmanager
    def running(self) -> Iterator[None]:
        """Write to all servers within the block."""
        with ThreadPoolExecutor(8) as pool:
            writers = [
                pool.submit(self.write, server, kind)
                for server in self.servers
                for kind in self.stored
            ]
            try:
                yield
            finally:
                self.ended.set()
            for writer in writers:
                writer.result()

    def more(self, number: int = 20) -> None:
        """Wait until so many more writes are acknowledged."""
        enough = self.acknowledged + number
        eventually(lambda: self.acknowledged >= enough)


def found(postgres) -> dict[str, set[str]]:
    """Kind of write -> what a new process finds in the database."""
    from forerun.service.stores.database.connections import Database

    database = Database(postgres.url)
    place = Place(database)
    graphs = GraphStore(place / "graphs", 1)
    digests = {name.partition(".")[0] for name in graphs._files.names()}
    in_database = {
        "graphs": {graphs.get(digest).digest for digest in digests},
        "devices": set(DeviceStore(place / "devices").catalog.names()),
        "measurements": {each.id for each in AdaptationStore(place / "measurements").live()},
    }
    database.close()
    return in_database


def test_replicas_answer_with_what_the_other_one_stored(postgres, tmp_path, roofline_folder):
    with (
        replica(postgres, tmp_path / "one", roofline_folder) as one,
        replica(postgres, tmp_path / "other", roofline_folder, workers=2) as other,
        Asking(one.url, VARIABLE) as ask,
        Asking(other.url, VARIABLE) as also,
    ):
        digest = ask.put_graph(900_001).json()["digest"]
        workload = {"kind": "network", "graph": digest, "batch_size": 1, "precision": "fp32"}
        asked = {"workload": workload, "device": "l4"}
        for _ in range(6):  # more than there are workers
            one_says, other_says = (each("POST", "/v1/predict", asked) for each in (ask, also))
            assert one_says.json() == other_says.json()
        version = also("GET", "/readyz").json()["version"]
        ask.put_device("shared-card")
        made = ask.put_rows(7, "t4").json()["set"]
        asked = {**asked, "device": "shared-card"}

        def agree() -> bool:
            answers = [also("POST", "/v1/predict", asked) for _ in range(6)]
            return all(answer.status_code == 200 for answer in answers)

        eventually(agree)
        eventually(lambda: made in also("GET", "/v1/devices/t4/measurements").text)
        eventually(lambda: also("GET", "/readyz").json()["version"] != version)
        assert ask.storing() == (True, None)
        assert not (tmp_path / "one" / "graphs").exists()
        assert not (tmp_path / "one" / "measurements").exists()


def test_nothing_acknowledged_is_lost_when_the_database_or_a_replica_goes_away(
    postgres, tmp_path, roofline_folder
):
    with (
        replica(postgres, tmp_path / "one", roofline_folder) as one,
        replica(postgres, tmp_path / "other", roofline_folder) as other,
        Asking(one.url, VARIABLE) as ask,
    ):
        ask.put_device("asked-card")
        ingest = Ingest((one, other))
        with ingest.running():
            ingest.more()
            for how in ("fast", "immediate"):
                postgres.stop(how)
                eventually(lambda: len(ingest.refused) >= 5)
                ingest.refused.clear()
                ask.answers()
                eventually(lambda: not ask.storing()[0])
                assert VARIABLE in str(ask.storing()[1])
                assert "forerun_database_answered 0.0" in ask("GET", "/metrics").text
                postgres.start()
                ingest.more()
            other.kill()
            ingest.more()
        eventually(lambda: ask.storing() == (True, None))
        assert "forerun_database_answered 1.0" in ask("GET", "/metrics").text
        held = found(postgres)
        assert {kind: ingest.stored[kind] - held[kind] for kind in held} == {
            "graphs": set(),
            "devices": set(),
            "measurements": set(),
        }
        time.sleep(2)
        catalog = {each["name"] for each in ask("GET", "/v1/devices").json()["devices"]}
        assert ingest.stored["devices"] <= catalog


def test_a_key_of_the_database_is_needed_at_every_replica(postgres, tmp_path, roofline_folder):
    from forerun.service.stores.database.connections import Database
    from forerun.service.stores.database.upgrading import upgraded
    from forerun.service.stores.keys import KeyStore

    url = postgres.new_database()
    database = Database(url)
    upgraded(database)
    environment = {VARIABLE: url, "FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}
    with real_server(tmp_path, workers=2, environment=environment) as server:
        assert httpx.get(f"{server.url}/v1/devices", timeout=60).status_code == 200
        keys = KeyStore(Place(database, "keys"))
        key, text = keys.create("scheduler", "read")

        def statuses(**headers) -> set[int]:
            return {
                httpx.get(f"{server.url}/v1/devices", headers=headers, timeout=60).status_code
                for _ in range(6)
            }

        eventually(lambda: statuses() == {401}, every_s=0.2)
        assert statuses(Authorization=f"Bearer {text}") == {200}
        keys.revoke(key.id)
        eventually(lambda: statuses(Authorization=f"Bearer {text}") == {401}, every_s=0.2)
    database.close()
