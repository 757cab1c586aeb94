"""Tenants of a server with several workers: every worker answers each by its key."""

import httpx
import pytest

from forerun.service.stores.keys import KeyStore
from tests.service.conftest import linear_row
from tests.service.real_server import real_server
from tests.service.test_devices import SHEET

pytestmark = pytest.mark.slow
CONNECTIONS = 20
ROWS = [linear_row(size, size / 100) for size in range(64, 640, 64)]


def test_all_workers_answer_each_tenant_with_what_it_stored(tmp_path):
    keys = KeyStore(tmp_path / "keys")
    headers = {
        tenant: {"Authorization": f"Bearer {keys.create(tenant, 'write', tenant)[1]}"}
        for tenant in ("vision", "speech")
    }
    with real_server(tmp_path, workers=2) as server:

        def ask(tenant, method, path, **given):
            """A request over a connection of its own, which any worker may take."""
            return httpx.request(
                method, server.url + path, headers=headers[tenant], timeout=60, **given
            )

        assert ask("vision", "PUT", "/v1/devices/my-card", json=SHEET).is_success
        body = {"measurements": ROWS}
        assert ask("vision", "POST", "/v1/devices/l4/measurements", json=body).is_success
        question = {"workload": linear_row(777, None)["workload"], "device": "l4"}
        versions = {"vision": set(), "speech": set()}
        for _ in range(CONNECTIONS):
            for tenant, status in (("vision", 200), ("speech", 404)):
                assert ask(tenant, "GET", "/v1/devices/my-card").status_code == status
                answer = ask(tenant, "POST", "/v1/predict", json=question).json()
                versions[tenant].add(answer["predictor"]["version"])
        (adapted,), (plain,) = versions["vision"], versions["speech"]
        assert adapted.startswith(f"{plain}+")
