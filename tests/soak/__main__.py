"""`python -m tests.soak --minutes N`: ask a real server for minutes, and watch its memory.

The caches hold few answers and graphs, so that they are full after the warm-up; what grows from
then on is a leak. Printed are resident memory over time, its growth, and the statuses by route.
"""

import argparse
import secrets
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random

import httpx
from rich.console import Console
from rich.table import Table

from tests.fuzz.asked import Asked
from tests.fuzz.promises import UNAVAILABLE
from tests.service.real_server import RealServer, real_server
from tests.soak.mix import requests_of_users

LARGEST_GROWTH_PERCENT = 3.0
END_SHARE = 0.1
"""Share of a phase at its end over which memory is a median."""

CACHES = {"FORERUN_ANSWERS_KEPT": "200"}
SHOWN_EVERY_S = 60.0


def main() -> int:
    """Run warm-up and soak; 1 when memory grew or an answer was a fault."""
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="after the warm-up")
    parser.add_argument("--warm-up", type=float, default=4.0, help="minutes")
    parser.add_argument("--rate", type=float, default=8.0, help="largest requests per second")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**32))
    given = parser.parse_args()
    print(f"seed {given.seed}")
    statuses: Counter[tuple[str, int]] = Counter()
    with (
        tempfile.TemporaryDirectory() as home,
        real_server(Path(home), workers=given.workers, environment=CACHES) as server,
        httpx.Client(base_url=server.url, timeout=120) as client,
    ):
        asked = requests_of_users(client, Random(given.seed))
        paced = lambda minutes: _paced(client, server, asked, minutes, given.rate, statuses)  # noqa: E731
        before = _at_end(list(paced(given.warm_up)))
        after = _at_end(list(paced(given.minutes)))
    return _told(statuses, before, after)


def _paced(
    client: httpx.Client,
    server: RealServer,
    requests: Iterator[Asked],
    minutes: float,
    rate: float,
    statuses: Counter[tuple[str, int]],
) -> Iterator[float]:
    """Resident memory in MiB after each request of some minutes."""
    start = time.monotonic()
    shown, number = start, 0
    while (now := time.monotonic()) < start + 60 * minutes:
        time.sleep(max(0.0, start + number / rate - now))
        asked, number = next(requests), number + 1
        statuses[_route(asked), asked.sent(client).status_code] += 1
        memory = server.memory_mib()
        if time.monotonic() > shown + SHOWN_EVERY_S:
            shown = time.monotonic()
            print(f"{number:6} requests, {memory:7.1f} MiB", flush=True)
        yield memory


def _route(asked: Asked) -> str:
    """Method and path, without names and digests."""
    parts = asked.path.split("/")
    kept = [part if len(part) < 24 or ":" in part else "..." for part in parts]
    return f"{asked.method} {'/'.join(kept)}"


def _at_end(memory: list[float]) -> float:
    return statistics.median(memory[-max(1, int(END_SHARE * len(memory))) :])


def _told(statuses: Counter[tuple[str, int]], before: float, after: float) -> int:
    table = Table(box=None)
    for heading in ("route", "status", "requests"):
        table.add_column(heading)
    for (route, status), count in sorted(statuses.items()):
        table.add_row(route, str(status), str(count))
    Console().print(table)
    growth = 100 * (after / before - 1)
    faults = sum(n for (_, s), n in statuses.items() if s >= 500 and s not in UNAVAILABLE)
    print(f"{sum(statuses.values())} requests, {faults} faults")
    print(f"{before:.1f} MiB after the warm-up, {after:.1f} at the end: {growth:+.2f} %")
    return 1 if faults or growth > LARGEST_GROWTH_PERCENT else 0


if __name__ == "__main__":
    sys.exit(main())
