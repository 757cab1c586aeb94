"""Requests that are repeated after their server was killed: nothing is lost, nothing is twice.

FORERUN_KILL_ROUNDS says how many times it is killed, by default 2.
"""

import os
import random
from collections import Counter
from contextlib import suppress
from threading import Timer

import httpx
import pytest

from forerun.service.stores.measurement_sets import AdaptationStore
from tests.service.conftest import linear_row
from tests.service.real_server import real_server

pytestmark = pytest.mark.slow
ROUNDS = int(os.environ.get("FORERUN_KILL_ROUNDS", "2"))
PATH = "/v1/devices/l4/measurements"


def test_every_request_is_stored_once_however_often_its_server_dies(tmp_path, roofline_folder):
    chance, waiting = random.Random(0), list(range(60))
    acknowledged: dict[int, bytes] = {}
    variables = {"FORERUN_PREDICTOR_FOLDER": str(roofline_folder)}
    for life in range(ROUNDS + 1):
        with real_server(tmp_path / "home", workers=2, environment=variables) as server:
            if life < ROUNDS:
                Timer(chance.uniform(0.05, 0.5), server.kill).start()
            # Also what was acknowledged is sent again, and has the same answer.
            for number in [*acknowledged, *waiting]:
                rows = [linear_row(64 + number, 0.02 + number / 1e4)]
                body = {"measurements": rows, "source": "observe"}
                with suppress(httpx.TransportError):
                    answer = httpx.post(
                        server.url + PATH, json=body, headers={"Idempotency-Key": f"n{number}"}
                    )
                    assert answer.status_code == 201, answer.text
                    assert acknowledged.setdefault(number, answer.content) == answer.content
            waiting = [number for number in waiting if number not in acknowledged]
            if life < ROUNDS:
                server.wait()
    assert sorted(acknowledged) == list(range(60))
    stored = AdaptationStore(tmp_path / "home" / "measurements").sets("l4", "observe")
    counts = Counter(each.request.key for each in stored if each.request is not None)
    assert counts == {f"n{number}": 1 for number in range(60)}
