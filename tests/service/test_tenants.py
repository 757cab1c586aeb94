"""Tenants: what one stores changes no answer, listing, refusal or ETag of another one."""

from contextlib import ExitStack

import pytest
from fastapi.testclient import TestClient

from forerun.data.device import Device
from forerun.service.http.app import create_app
from forerun.service.settings import BadSetting, Settings
from forerun.service.stores import places
from forerun.service.stores.database.upgrading import imported
from forerun.service.stores.devices import DeviceStore
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.model_file_cache import cached_answer
from forerun.service.stores.places import place_of
from tests.service.conftest import GRAPH, linear_row
from tests.service.stores.database.conftest import connect as connect
from tests.service.stores.database.conftest import opened as opened
from tests.service.stores.database.conftest import postgres as postgres
from tests.service.stores.test_model_file_cache import written
from tests.service.test_devices import SHEET

TENANTS = (None, "vision", "speech")
MEASURED = "/v1/devices/l4/measurements"
SIZES = range(64, 640, 64)
WRITES = {
    "device": lambda client: client.put("/v1/devices/my-card", json=SHEET),
    "removal": lambda client: client.delete("/v1/devices/my-card"),
    "graph": lambda client: client.post("/v1/graphs", json=GRAPH.to_json()),
    "measurements": lambda client: client.post(
        MEASURED, json={"measurements": [linear_row(n, n / 100) for n in SIZES]}
    ),
}
READS = ("/v1/devices", "/v1/devices/my-card", "/v1/models", f"/v1/graphs/{GRAPH.digest}")


def seen(client) -> list[tuple[int, str | None, str]]:
    """Status, ETag and body of what a tenant can ask."""
    answers = [client.get(path) for path in READS]
    for device in ("l4", "my-card"):
        asked = {"workload": linear_row(777, None)["workload"], "device": device}
        answers.append(client.post("/v1/predict", json=asked))
    return [(a.status_code, a.headers.get("etag"), a.text) for a in answers]


def client_of(stack, home, loaded, tenant, **settings) -> TestClient:
    app = create_app(Settings(home=home, tenant=tenant, port=0, **settings), loaded)
    client = TestClient(app, raise_server_exceptions=False, headers={"X-Request-ID": "one"})
    return stack.enter_context(client)


@pytest.mark.slow
def test_after_interleaved_writes_and_a_restart_each_tenant_is_as_if_alone(tmp_path, trained):
    writes = (
        ("vision", "device"),
        ("speech", "device"),
        ("vision", "removal"),
        ("speech", "removal"),
        ("vision", "graph"),
    )
    with ExitStack() as stack:
        together = {t: client_of(stack, tmp_path / "all", trained, t) for t in TENANTS}
        alone = {t: client_of(stack, tmp_path / f"only-{t}", trained, t) for t in TENANTS}
        for tenant, name in writes:
            answers = [WRITES[name](clients[tenant]) for clients in (together, alone)]
            assert answers[0].status_code == answers[1].status_code
        for tenant in TENANTS:
            expected = seen(alone[tenant])
            assert seen(together[tenant]) == expected
            assert seen(client_of(stack, tmp_path / "all", trained, tenant)) == expected


def test_a_limit_on_graphs_holds_for_each_tenant(tmp_path, trained):
    with ExitStack() as stack:
        for tenant in TENANTS:
            client = client_of(stack, tmp_path, trained, tenant, graphs_kept=1)
            assert WRITES["graph"](client).status_code == 201


def test_a_key_opens_the_service_of_its_tenant_only(tmp_path, trained):
    with ExitStack() as stack:
        keys = {
            tenant: KeyStore(place_of(Settings(home=tmp_path, tenant=tenant)) / "keys").create(
                "client", "admin"
            )[1]
            for tenant in TENANTS
        }
        for tenant in TENANTS:
            client = client_of(stack, tmp_path, trained, tenant)
            statuses = {
                owner: client.get("/v1/devices", headers={"Authorization": f"Bearer {key}"})
                for owner, key in keys.items()
            }
            let_in = [owner for owner, answer in statuses.items() if answer.status_code == 200]
            assert let_in == [tenant]


@pytest.mark.parametrize("name", ["", "../vision", "a/b", "Vision", "-a", "a\n", "a" * 65, "."])
def test_a_name_that_is_no_tenant_is_refused(monkeypatch, name):
    monkeypatch.setenv("FORERUN_TENANT", name)
    with pytest.raises(BadSetting, match=r"FORERUN_TENANT.*lower-case letters"):
        Settings.load()


def test_a_database_keeps_tenants_apart_and_imports_each(tmp_path, connect, monkeypatch):
    database = connect()
    for tenant in TENANTS:
        home = place_of(Settings(home=tmp_path, tenant=tenant))
        KeyStore(home / "keys").create(str(tenant), "read")
    copied = imported(tmp_path, database)
    assert copied == {"keys": 1, "tenants/vision/keys": 1, "tenants/speech/keys": 1}
    monkeypatch.setattr(places, "_at", lambda url: database)
    for tenant in TENANTS:
        store = KeyStore(place_of(Settings(tenant=tenant, database_url="any")) / "keys")
        assert [key.name for key in store.keys()] == [str(tenant)]  # noqa: SIM118


def test_a_command_keeps_answers_for_each_tenant_until_its_devices_change(tmp_path, monkeypatch):
    source, computed = written(tmp_path / "model.onnx", "a network"), []
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))

    def ask(tenant):
        monkeypatch.setenv("FORERUN_TENANT", tenant)
        cached_answer(str, source, ["predict"], lambda: computed.append(tenant) or tenant)
        return len(computed)

    assert [ask("vision"), ask("speech"), ask("vision"), ask("speech")] == [1, 2, 2, 2]
    store = DeviceStore(place_of(Settings.load()) / "devices")
    store.register(Device(name="my-card", title="My card", vendor="nvidia", kind="gpu"))
    assert [ask("vision"), ask("speech"), ask("speech")] == [3, 4, 4]
