"""Tenants of one service: what the key of one tenant stores, no other key sees."""

import asyncio
from dataclasses import replace

import pytest

from forerun.service.http import tenants
from forerun.service.http.app import create_app
from forerun.service.stores.keys import KeyStore
from forerun.service.stores.places import Place
from tests.coroutines import run
from tests.service.answered import problem_of
from tests.service.conftest import GRAPH, client_of, linear_row
from tests.service.test_tenants import MEASURED, SIZES, WRITES, seen

OWNERS = (None, "vision", "speech")
QUESTION = {"workload": linear_row(777, None)["workload"], "device": "l4"}


@pytest.fixture
def keys(settings) -> dict[str | None, str]:
    """Owner -> its key."""
    store = KeyStore(Place(settings.home) / "keys")
    return {owner: store.create(f"of-{owner}", "admin", owner)[1] for owner in OWNERS}


@pytest.fixture
def served(settings, trained):
    with client_of(settings, trained, "http://127.0.0.1") as client:
        yield client


class As:
    """A client with the key of an owner."""

    def __init__(self, client, text):
        self.client = client
        self.headers = {"Authorization": f"Bearer {text}", "X-Request-ID": "one"}

    def __getattr__(self, method):
        def send(path, **given):
            return getattr(self.client, method)(path, headers=self.headers, **given)

        return send


@pytest.mark.slow
@pytest.mark.parametrize("writer", OWNERS)
def test_every_kind_of_write_stays_with_the_tenant_of_its_key(served, keys, writer):
    clients = {owner: As(served, text) for owner, text in keys.items()}
    before = {owner: seen(client) for owner, client in clients.items()}
    assert len(set(map(str, before.values()))) == 1
    for name in ("device", "graph", "measurements"):
        answer = WRITES[name](clients[writer])
        assert answer.is_success, answer.text
    for owner, client in clients.items():
        assert (seen(client) == before[owner]) == (owner != writer)
    sets = {owner: client.get(MEASURED).json()["sets"] for owner, client in clients.items()}
    assert [owner for owner in OWNERS if sets[owner]] == [writer]
    assert WRITES["removal"](clients[writer]).status_code == 204


def test_stored_files_are_those_of_a_process_for_that_tenant_alone(served, keys, settings, trained):
    assert WRITES["device"](As(served, keys["vision"])).is_success
    with client_of(settings, trained, tenant="vision", auth="off") as client:
        assert client.get("/v1/devices/my-card").status_code == 200


def test_answers_of_a_tenant_are_cached_for_it_alone(served, keys):
    count = served.app.state.forerun.telemetry.known._value.get
    vision, speech = As(served, keys["vision"]), As(served, keys["speech"])
    texts = [client.post("/v1/predict", json=QUESTION).text for client in (vision, vision, speech)]
    assert len(set(texts)) == 1
    assert count() == 1


def test_all_tenants_change_their_version_together(served, keys, trained):
    clients = [As(served, text) for text in keys.values()]

    def versions():
        answers = [client.post("/v1/predict", json=QUESTION).json() for client in clients]
        return {answer["predictor"]["version"] for answer in answers}

    assert versions() == {trained.version}
    served.app.state.forerun.swap(replace(trained, version="newer"))
    assert versions() == {"newer"}


def test_a_tenant_that_asks_later_gets_the_version_of_then(served, keys, trained):
    served.app.state.forerun.swap(replace(trained, version="newer"))
    answer = As(served, keys["vision"]).post("/v1/predict", json=QUESTION)
    assert answer.json()["predictor"]["version"] == "newer"


def test_a_tenant_whose_swap_fails_is_loaded_anew(served, keys, trained, monkeypatch, capsys):
    client, state = As(served, keys["vision"]), served.app.state.forerun
    client.post("/v1/predict", json=QUESTION)
    own = state.tenants.held("vision").answers

    def broken(*_):
        raise OSError("the disk is away")

    monkeypatch.setattr(own, "swap", broken)
    state.swap(replace(trained, version="newer"))
    assert state.tenants.held("vision") is None
    assert "loaded anew" in capsys.readouterr().err
    answer = client.post("/v1/predict", json=QUESTION).json()
    assert answer["predictor"]["version"] == "newer"


def test_the_tenants_that_asked_last_are_held(served, keys, monkeypatch):
    monkeypatch.setattr(tenants, "MOST_HELD", 1)
    vision, speech = As(served, keys["vision"]), As(served, keys["speech"])
    assert WRITES["graph"](vision).status_code == 201
    assert speech.get("/v1/devices").status_code == 200
    state = served.app.state.forerun
    assert state.tenants.held("vision") is None
    assert vision.get(f"/v1/graphs/{GRAPH.digest}").status_code == 200
    assert state.tenants.held("speech") is None


def test_measurements_of_another_process_reach_a_tenant(served, keys, settings, trained):
    client = As(served, keys["vision"])
    client.post("/v1/predict", json=QUESTION)
    with client_of(settings, trained, tenant="vision", auth="off") as other:
        assert WRITES["measurements"](other).is_success
    version = client.post("/v1/predict", json=QUESTION).json()["predictor"]["version"]
    assert version.startswith(f"{trained.version}+")


def test_many_first_requests_make_one_state(settings, loaded):
    made = []

    async def asked():
        app = create_app(settings, loaded)
        async with app.router.lifespan_context(app):
            state = app.state.forerun
            make = state.tenants._make
            state.tenants._make = lambda *given: made.append(given) or make(*given)
            found = await asyncio.gather(*(state.tenants.state("vision") for _ in range(50)))
            assert len({id(one) for one in found}) == 1
            assert found[0].settings.tenant == "vision"

    run(asked())
    assert len(made) == 1


def test_metrics_tell_of_all_tenants_and_are_for_none(served, keys):
    problem_of(As(served, keys["vision"]).get("/metrics"), 403, "--tenant")
    assert As(served, keys[None]).get("/metrics").status_code == 200


def test_the_table_of_workload_classes_has_the_devices_of_the_tenant(
    settings, trained, keys, tmp_path
):
    classes = tmp_path / "classes.yaml"
    classes.write_text(
        "devices: [l4]\nclasses:\n- name: one\n  annotations: {forerun.dev/graph: resnet18}\n"
    )
    with client_of(settings, trained, "http://127.0.0.1", workload_classes=classes) as client:
        vision, speech = As(client, keys["vision"]), As(client, keys["speech"])
        before = vision.get("/v1/kubernetes/table")
        assert before.status_code == 200
        rows = [linear_row(n, n / 100) for n in SIZES]
        assert vision.post(MEASURED, json={"measurements": rows}).is_success
        assert vision.get("/v1/kubernetes/table").headers["etag"] != before.headers["etag"]
        assert speech.get("/v1/kubernetes/table").headers["etag"] == before.headers["etag"]


def test_logs_name_the_tenant_of_a_key(served, keys, capsys):
    WRITES["graph"](As(served, keys["vision"]))
    lines = [line for line in capsys.readouterr().err.splitlines() if "of-vision" in line]
    assert {'"event": "write"' in line for line in lines} == {True, False}
    assert all('"tenant": "vision"' in line or '"tenant":"vision"' in line for line in lines)
