"""Whatever fits the OpenAPI document, and much that does not, gets an answer below 500."""

import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error

from forerun.models.bundled import LoadedPredictor
from forerun.models.chosen import Chosen
from forerun.models.roofline import Roofline
from forerun.service.app import create_app
from forerun.service.settings import Settings


def _app(tmp):
    loaded = LoadedPredictor(Chosen((Roofline(),)), "test", "2026-01-01", "")
    return create_app(Settings(home=tmp, max_upload_mib=1), loaded)


def test_no_request_makes_the_service_fail(tmp_path):
    app = _app(tmp_path)
    with TestClient(app, raise_server_exceptions=False):
        document = schemathesis.openapi.from_asgi("/openapi.json", app)
        operations = [found.ok() for found in document.get_all_operations()]
        assert len(operations) >= 10
        for operation in operations:

            @settings(
                max_examples=25,
                deadline=None,
                derandomize=True,
                database=None,
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def check(case):
                case.call_and_validate(checks=[not_a_server_error])

            check()
