"""Public cases, answered by the service in this process with the bundled predictors."""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from forerun.service.http.app import create_app
from forerun.service.settings import Settings
from tests.golden.bundle import predictors
from tests.golden.graphs import graph_named
from tests.public_cases.graphs import case_graph
from tests.public_cases.rows import Case


@dataclass(frozen=True)
class Asked:
    """What the service said to one case.

    Attributes:
        case: the case.
        status: of HTTP.
        value: best estimate in the unit of the case; None where refused.
        low: lower end of the 90 % interval; None without one.
        high: upper end of it; None without one.
        grade: A, B or C; empty where refused.
        refusal: why there is no value, one line; empty where there is one.
        unit: unit of the answer.
    """

    case: Case
    status: int
    value: float | None = None
    low: float | None = None
    high: float | None = None
    grade: str = ""
    refusal: str = ""
    unit: str = ""

    @property
    def inside(self) -> bool | None:
        """Whether the interval holds the published value; None without an interval."""
        if self.low is None or self.high is None:
            return None
        return self.low <= self.case.value <= self.high


def ask(cases: Sequence[Case]) -> list[Asked]:
    """Ask the cases one after the other, in an empty home."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(home=Path(folder), access_log=False), predictors())
        with TestClient(app, raise_server_exceptions=False) as client:
            digests: dict[str, str] = {}
            return [_asked(client, case, digests) for case in cases]


def _asked(client: TestClient, case: Case, digests: dict[str, str]) -> Asked:
    answer = client.post(case.ask, json=_body(client, case, digests))
    try:
        content = answer.json()
    except ValueError:
        return Asked(case, answer.status_code, refusal=answer.text)
    if answer.status_code != 200:
        return Asked(case, answer.status_code, refusal=str(content.get("detail", "")))
    estimate = content["metrics"].get(case.metric)
    if estimate is None:
        reason = content.get("missing", {}).get(case.metric, "the answer has no such metric")
        return Asked(case, answer.status_code, refusal=reason)
    said = {name: estimate[name] for name in ("value", "low", "high", "grade", "unit")}
    return Asked(case, answer.status_code, **said)


def _body(client: TestClient, case: Case, digests: dict[str, str]) -> Mapping[str, Any]:
    """The request; graphs named `folder/graph` are uploaded the first time, and named by digest."""
    workload = case.question.get("workload", {})
    name = workload.get("graph", "")
    if "/" not in name:
        return case.question
    if name not in digests:
        folder, _, graph = name.rpartition("/")
        content = case_graph(graph) if folder == "cases" else graph_named(name)
        uploaded = client.post("/v1/graphs", json=content)
        assert uploaded.status_code == 201, uploaded.text
        digests[name] = uploaded.json()["digest"]
    return {**case.question, "workload": {**workload, "graph": digests[name]}}
