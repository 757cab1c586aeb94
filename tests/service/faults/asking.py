"""Requests that tests of faults make of a real server, and what every answer must be."""

import json
from math import isfinite
from typing import Any

import httpx

from forerun.service.schemas.fields import example
from forerun.service.schemas.prediction import EXAMPLE, EXAMPLE_SHEET
from tests.service.conftest import linear_row

STORING = {503, 507}
"""Statuses of what was not stored because of the disk or the database."""
NOT_STORED = ("disk-full", "cannot-store", "database-away")


class Asking:
    """A client of one server that refuses statuses which no fault excuses.

    Args:
        url: address of the server.
        variable: environment variable that a problem with storing must name.
    """

    def __init__(self, url: str, variable: str = "FORERUN_HOME") -> None:
        self._client = httpx.Client(base_url=url, timeout=120)
        self._variable = variable

    def __enter__(self) -> "Asking":
        return self

    def __exit__(self, *error: object) -> None:
        self._client.close()

    def __call__(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """Send JSON, or bytes as they are; the answer is below 500, or 503 or 507 with a remedy."""
        content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        headers = {} if content is None else {"content-type": "application/json"}
        answer = self._client.request(method, path, content=content, headers=headers)
        assert answer.status_code < 500 or answer.status_code in STORING, (path, answer.text)
        if answer.status_code in STORING:
            problem = answer.json()
            assert problem["type"].removeprefix("/problems/") in NOT_STORED
            assert self._variable in problem["detail"]
        return answer

    def put_graph(self, number: int = 1) -> httpx.Response:
        """Upload a graph, which its number tells from others."""
        return self("POST", "/v1/graphs", graph(number))

    def put_device(self, name: str = "my-accelerator") -> httpx.Response:
        """Register a device."""
        return self("PUT", f"/v1/devices/{name}", EXAMPLE_SHEET | {"name": name, "title": name})

    def put_rows(self, rows: int = 1, device: str = "l4") -> httpx.Response:
        """Store a measurement, which the size of its layer tells from others."""
        body = {"measurements": [linear_row(rows, 0.05)]}
        return self("POST", f"/v1/devices/{device}/measurements", body)

    def writes(self) -> dict[str, int]:
        """Statuses of one write to every store."""
        return {
            "graph": self.put_graph().status_code,
            "device": self.put_device().status_code,
            "measurement": self.put_rows().status_code,
        }

    def answers(self) -> None:
        """Check that whatever needs no write is answered."""
        asked = (
            ("POST", "/v1/predict", EXAMPLE),
            ("POST", "/v1/predict/model?device=l4&batch_size=2", graph(2)),
            ("GET", "/v1/devices", None),
            ("GET", "/v1/devices/l4/measurements", None),
            ("GET", "/v1/leaderboard?dataset=toy", None),
            ("GET", "/leaderboard", None),
            ("GET", "/healthz", None),
        )
        for method, path, body in asked:
            answer = self(method, path, body)
            assert answer.status_code == 200, (path, answer.text)

    def storing(self) -> tuple[bool, str | None]:
        """Whether /readyz, which answers 200, says that things are stored, and why not."""
        answer = self("GET", "/readyz")
        assert answer.status_code == 200
        return answer.json()["storing"], answer.json()["not_storing"]


def graph(number: int) -> dict[str, Any]:
    """An operator graph with so many further parameters."""
    first, *rest = example("graph")["operators"]
    wider = first | {"parameter_elements": first["parameter_elements"] + number}
    return example("graph") | {"operators": [wider, *rest]}


def is_finite(content: Any) -> bool:
    """Whether no number in plain data is infinite or NaN."""
    if isinstance(content, float):
        return isfinite(content)
    if isinstance(content, dict):
        return all(map(is_finite, content.values()))
    return not isinstance(content, list) or all(map(is_finite, content))
