"""Requests that schemathesis makes of the OpenAPI document: some fit it, and some do not."""

from collections.abc import Callable

import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, seed, settings
from schemathesis import Case
from schemathesis.core.failures import FailureGroup
from schemathesis.core.transport import Response
from schemathesis.generation import GenerationMode
from schemathesis.schemas import APIOperation
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.fuzz.asked import Asked
from tests.fuzz.promises import broken

WITHIN_S = 600
"""Seconds after which a request is taken to hang, far beyond what any machine needs."""

DOCUMENTED = [status_code_conformance, content_type_conformance, response_schema_conformance]


def generated_cases(
    client: TestClient, cases: int, number: int, note: Callable[[Asked, list[str], int], None]
) -> None:
    """Send about so many requests, spread evenly over operations and both modes.

    Args:
        client: client of the application.
        cases: about the number of requests.
        number: seed of the requests.
        note: takes a request, the promises that its answer broke, and the status.
    """
    document = schemathesis.openapi.from_asgi("/openapi.json", client.app)
    operations = [found.ok() for found in document.get_all_operations()]
    kinds = [
        (operation, mode)
        for operation in operations
        for mode in GenerationMode
        if mode.is_positive or _can_be_wrong(operation)
    ]
    for operation, mode in kinds:
        _of_operation(operation, mode, -(-cases // len(kinds)), number, note)


def _of_operation(
    operation: APIOperation,
    mode: GenerationMode,
    cases: int,
    number: int,
    note: Callable[[Asked, list[str], int], None],
) -> None:
    @seed(number)
    @settings(
        max_examples=cases,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def check(case: Case) -> None:
        response = case.call(timeout=WITHIN_S, headers={"Host": "localhost"})
        sent = response.request
        body = sent.body if isinstance(sent.body, bytes) else (sent.body or "").encode()
        path, _, query = sent.path_url.partition("?")
        asked = Asked(case.method, path, query, body, sent.headers.get("Content-Type", ""))
        kind = "".join(response.headers.get("content-type", []))
        wrong = broken(path, response.status_code, kind, response.content)
        wrong += _undocumented(case, response)
        note(asked, wrong, response.status_code)

    check()


def _undocumented(case: Case, response: Response) -> list[str]:
    """What the OpenAPI document does not say of the answer."""
    try:
        case.validate_response(response, checks=DOCUMENTED)
    except FailureGroup as failures:
        return [f"{type(each).__name__}: {each}"[:500] for each in failures.exceptions]
    return []


def _can_be_wrong(operation: APIOperation) -> bool:
    """Whether it takes anything at all."""
    return bool(operation.body) or any(True for _ in operation.iter_parameters())
