"""One process takes a new champion over in place, and no champion that it cannot load."""

from datetime import UTC, datetime

import pytest
from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.champion import Champion, keep, kept
from forerun.service.http import upkeep
from tests.service.conftest import client_of
from tests.service.test_champion import sealed
from tests.waiting import eventually

URI = "http://127.0.0.1:1"


def said(version: str | None, problem: str | None = None) -> Champion:
    return Champion(uri=URI, version=version, asked=datetime.now(UTC), problem=problem)


@pytest.fixture
def service(settings, loaded, monkeypatch):
    """A client of a service whose registry says one thing."""

    def made(champion: Champion) -> TestClient:
        async def ask(given):
            return champion

        monkeypatch.setattr(upkeep, "ask", ask)
        return client_of(settings, loaded, registry_uri=URI)

    return made


def ready(client: TestClient) -> dict:
    return client.get("/readyz").json()


def test_a_new_champion_answers_and_is_kept_for_the_next_start(service, settings):
    version = sealed(settings)
    with service(said(version)) as client:
        eventually(lambda: ready(client)["version"] == version)
        eventually(lambda: ready(client)["registry"] is not None)
        assert ready(client)["registry"]["answered"]
        assert client.get("/v1/models").json()["models"][0]["version"] == version


def test_a_registry_without_a_champion_leaves_the_bundled_predictors(service, settings):
    with service(said(None)) as client:
        eventually(lambda: ready(client)["version"] == bundled().version)


def test_a_champion_that_cannot_be_loaded_changes_nothing(service, settings):
    before = sealed(settings)
    registry = settings.model_copy(update={"registry_uri": URI})
    keep(said(before), registry)
    with service(said("0123456789ab")) as client:
        eventually(lambda: not ready(client)["registry"]["answered"])
        assert ready(client)["version"] == before, "the one that was kept answers"
    after = kept(registry)
    assert after is not None and after.version == before


def test_a_registry_that_fails_changes_nothing(service, settings):
    with service(said(sealed(settings), "it is closed")) as client:
        eventually(lambda: ready(client)["registry"] is not None)
        assert ready(client)["version"] == "test"
        assert "forerun_registry_answered 0.0" in client.get("/metrics").text
