"""`python -m tests.reload`: requests that failed, and how long two versions answered at a time.

Promotes and rolls back in a registry of its own, while a server with several workers answers a
steady stream of questions over connections that are kept.
"""

import argparse
import asyncio
import json
import os
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from importlib.resources import as_file, files
from pathlib import Path
from time import monotonic

from forerun.models.artifact.examples import FILE, examples_text
from forerun.models.artifact.sealed_folder import bundled, seal
from forerun.training.release.registry import promote, register, rollback
from forerun.training.tracking.runs import tracked
from tests.benchmarks.client import post
from tests.service.conftest import linear_row
from tests.service.real_server import RealServer, real_server

CONNECTIONS = 24
SETTLED_S = 60.0


@dataclass
class Load:
    """What a stream of questions saw.

    Attributes:
        answers: (seconds, version) of each answer, in order.
        failures: kind of failure -> number.
    """

    answers: list[tuple[float, str]] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    over: bool = False

    async def stream(self, server: RealServer, per_s: float) -> None:
        """Send questions at a rate until it is over, in turn on each of the connections."""
        start = monotonic()
        await asyncio.gather(
            *(self._ask(server.port, start, number, per_s) for number in range(CONNECTIONS))
        )

    async def _ask(self, port: int, start: float, number: int, per_s: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not self.over:
            await asyncio.sleep(max(0.0, start + number / per_s - monotonic()))
            workload = linear_row(64 + number % 500, None)["workload"]
            body = json.dumps({"workload": workload, "device": "t4"}).encode()
            try:
                answer = json.loads(await post(reader, writer, "/v1/predict", body))
                self.answers.append((monotonic(), answer["predictor"]["version"]))
            except (OSError, EOFError, RuntimeError) as error:
                self.failures[f"{type(error).__name__}: {error}"] += 1
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
            number += CONNECTIONS
        writer.close()


async def measured(changes: int, per_s: float, workers: int) -> dict[str, object]:
    """Figures of a number of changes under load."""
    with tempfile.TemporaryDirectory() as place:
        folder, uri = Path(place), f"sqlite:///{place}/registry.db"
        os.environ["FORERUN_TRACKING_URI"] = uri
        numbers = [await asyncio.to_thread(_registered, folder / name) for name in "ab"]
        await asyncio.to_thread(promote, numbers[0])
        environment = {"FORERUN_REGISTRY_URI": uri, "FORERUN_REGISTRY_POLL_SECONDS": "1"}
        home = folder / "home"
        with real_server(home, workers=workers, environment=environment) as server:
            load = Load()
            stream = asyncio.create_task(load.stream(server, per_s))
            both, until = [], []
            for change in range(changes):
                known = await _settled(load)
                begun = monotonic()
                if change % 2 == 0:
                    await asyncio.to_thread(promote, numbers[1])
                else:
                    await asyncio.to_thread(rollback)
                until.append(await _changed(load, known) - begun)
                await _settled(load)
                both.append(_overlap(load, begun))
            load.over = True
            await stream
    return {
        "changes": changes,
        "answers": len(load.answers),
        "failures": dict(load.failures),
        "per_s": len(load.answers) / (load.answers[-1][0] - load.answers[0][0]),
        "longest_time_of_two_versions_s": max(both),
        "longest_time_until_a_change_s": max(until),
    }


def _registered(folder: Path) -> int:
    """The bundled predictors as a version, whose card is the name of the folder."""
    with as_file(files("forerun.models") / "pretrained") as source:
        shutil.copytree(source, folder)
    (folder / FILE).write_text(examples_text(bundled().predictor))
    (folder / "card.md").write_text(folder.name)
    seal(folder, "2026-01-01")
    with tracked(folder.name) as run:
        return register(run, folder)


async def _settled(load: Load) -> str:
    """The version of all answers of the last second."""
    end = monotonic() + SETTLED_S
    while monotonic() < end:
        await asyncio.sleep(1.0)
        recent = {version for time, version in load.answers if time > monotonic() - 1.0}
        if len(recent) == 1:
            return recent.pop()
    raise TimeoutError("the answers do not settle on one version")


async def _changed(load: Load, known: str) -> float:
    """When the first answer of another version came."""
    end = monotonic() + SETTLED_S
    while monotonic() < end:
        await asyncio.sleep(0.05)
        for time, version in reversed(load.answers[-100:]):
            if version != known:
                return time
    raise TimeoutError("no other version answers")


def _overlap(load: Load, since: float) -> float:
    """Seconds from the first answer of the new version to the last of the one before."""
    own = [(time, version) for time, version in load.answers if time >= since]
    before, after = own[0][1], own[-1][1]
    first = min(time for time, version in own if version == after)
    last = max(time for time, version in own if version == before)
    return max(0.0, last - first)


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m tests.reload")
    parser.add_argument("--changes", type=int, default=10, help="promotions and rollbacks")
    parser.add_argument("--per-second", type=float, default=300.0, help="questions a second")
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    figures = asyncio.run(measured(given.changes, given.per_second, given.workers))
    print(json.dumps(figures, indent=1))


if __name__ == "__main__":
    main()
