"""What fuzzing starts from is valid: every endpoint and page is asked, and each answers."""

import pytest

from forerun.models.artifact.loading import bundled
from tests.fuzz.promises import judged
from tests.fuzz.service import in_process
from tests.fuzz.valid import valid_requests

pytestmark = pytest.mark.slow


def test_valid_requests_of_every_endpoint_are_answered_as_promised():
    with in_process(bundled()) as client:
        valid = valid_requests(client)
        for asked in valid:
            answer = asked.sent(client)
            assert answer.status_code < 300, (asked.name, answer.text[:300])
            assert judged(asked, answer) == [], asked.name
        document = client.get("/openapi.json").json()["paths"]
    asked_of = {(asked.method.lower(), asked.path) for asked in valid}
    for path, methods in document.items():
        for method in set(methods) - {"delete"}:
            start = path.partition("{")[0]
            assert any(m == method and p.startswith(start) for m, p in asked_of), (method, path)
