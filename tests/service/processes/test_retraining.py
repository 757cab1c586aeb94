"""From a device that drifted to better answers of the running service, step by step."""

import json

import httpx
import numpy as np
import pandas as pd
import pytest
from fastapi.testclient import TestClient

from forerun.data.errors import PromotionRefused
from forerun.models.artifact.sealed_folder import bundled
from forerun.service.cli.retraining import retrained
from forerun.service.http.app import create_app
from forerun.service.settings import Settings
from forerun.training.release.registry import champion, promote, rollback
from forerun.training.tracking.runs import connect
from tests.service.conftest import linear_row
from tests.service.processes.conftest import fetch_here, fetched
from tests.service.real_server import real_server
from tests.waiting import eventually

pytestmark = pytest.mark.slow
SIZES = [int(size) for size in np.geomspace(64, 8192, 60)]
SLOWER = 1.4
DEVICE = "t4"


@pytest.fixture(autouse=True)
def fetched_here(monkeypatch):
    """The tests ask the registry as the server does."""
    monkeypatch.setattr("forerun.service.champion._fetched", fetched)


def answers(client: httpx.Client) -> np.ndarray:
    """Latency of each size, milliseconds."""
    items = [{"workload": linear_row(size, None)["workload"], "device": DEVICE} for size in SIZES]
    found = client.post("/v1/predict:batch", json={"items": items}).json()
    return np.array([each["metrics"]["latency_ms"]["value"] for each in found["items"]])


def observe(client, *rows):
    """Send observations."""
    body = {"measurements": list(rows), "source": "observe"}
    sent = client.post(f"/v1/devices/{DEVICE}/measurements", json=body)
    assert sent.status_code == 201, sent.text


def test_a_drifted_device_is_answered_better_after_retraining_and_promotion(tmp_path, store):
    environment = {"FORERUN_REGISTRY_URI": store, "FORERUN_REGISTRY_POLL_SECONDS": "1"}
    with (
        real_server(tmp_path / "home", environment=environment, prepare=fetch_here) as server,
        httpx.Client(base_url=server.url, timeout=120) as client,
    ):
        before = answers(client)
        truth = SLOWER * before * np.exp(np.random.default_rng(0).normal(0, 0.02, len(before)))
        rows = [linear_row(size, own) for size, own in zip(SIZES, truth, strict=True)]
        observe(client, *rows)
        assert np.array_equal(answers(client), before), "observations change no answer"

        made, number = retrained()
        (whole, *_) = made.comparison.slices
        assert whole.high < 0, "better on workloads that were held out, beyond the noise"
        assert_rows_are_logged(store, number, made)
        promote(number)
        eventually(lambda: not np.array_equal(answers(client), before))
        after = answers(client)
        version = client.get("/readyz").json()["version"]
    is_held_out = np.isin([str(size) for size in SIZES], held_out_sizes(made))
    assert 5 <= is_held_out.sum() < len(SIZES) / 2
    errors = [np.abs(given / truth - 1)[is_held_out].mean() for given in (before, after)]
    assert errors[1] < errors[0] / 3
    assert version.startswith(made.version)
    assert champion(store).name == made.version


def assert_rows_are_logged(uri, number, made):
    """The run has the held-out rows as a table, from which the errors follow, and pictures."""
    client = connect(uri)
    run = client.get_model_version("forerun", str(number)).run_id
    listed = json.loads(client.get_run(run).data.tags["mlflow.loggedArtifacts"])
    assert listed == [{"path": "held_out.json", "type": "table"}]
    rows = pd.read_json(client.download_artifacts(run, "held_out.json"), orient="split")
    (whole, *_) = made.comparison.slices
    rows = rows[rows.metric == whole.metric]
    assert len(rows) == whole.rows
    for column, error in (("in_use", whole.before), ("candidate", whole.after)):
        found = 100 * (rows[column] / rows.measured - 1).abs().mean()
        assert found == pytest.approx(error, rel=1e-9)
    pictures = {entry.path for entry in client.list_artifacts(run, "figures")}
    assert pictures == {f"figures/latency_ms-{name}.png" for name in ("in_use", "candidate")}


def held_out_sizes(made) -> list[str]:
    """Sizes of the workloads that the candidate does not come with."""
    text = (made.folder / "support.json").read_text()
    return [str(size) for size in SIZES if f"[{size}," not in text.replace(" ", "")]


def test_candidates_are_made_once_and_refused_against_another_champion(store, tmp_path):
    settings = Settings(home=tmp_path / "home")
    with TestClient(create_app(settings, bundled())) as client:
        observe(client, linear_row(640, 0.13), linear_row(1280, 0.26))
        made, first = retrained()
        stamp = (made.folder / "manifest.json").stat().st_mtime_ns
        repeated, again = retrained()
        assert (repeated.version, again) == (made.version, first)
        assert (repeated.folder / "manifest.json").stat().st_mtime_ns == stamp
        observe(client, linear_row(2560, 0.5))
    _, second = retrained()
    promote(first)
    with pytest.raises(PromotionRefused, match="compared with"):
        promote(second)
    promote(second, reason="both are the same but for one row")
    assert rollback() == first
