"""What CONTRIBUTING says about additions to forerun itself works as written.

`tests/contracts/test_plugins.py` adds what a package of somebody else's declares.
"""

import re

import pytest
import yaml
from fastapi import APIRouter
from fastapi.testclient import TestClient

from forerun.data import device as device_module
from forerun.data.device import DeviceCatalog
from forerun.data.query import Query
from forerun.data.workload import Kernel
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.service.http import app as http_app
from forerun.service.http.routes import ROUTERS
from forerun.service.schemas.prediction import StatusOut
from forerun.service.settings import Settings
from tests.docs.documents import program
from tests.house.sources import REPOSITORY, modules, text_of
from tests.training.leaderboard.toy_protocols import RELU

TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
BLOCK = """
  - name: toy-1
    title: Toy 1
    vendor: toys
    kind: gpu
    memory_gib: 8
    memory_bandwidth_gbs: 100
    peak_tflops: {fp32: 2}
    source: nvidia-t4
"""


def table():
    """What is added -> the cell that says where, from CONTRIBUTING's table."""
    lines = TEXT.split("## Adding something")[1].split("\n\n")[0].splitlines()[3:]
    return {cells[1].strip(): cells[2] for cells in (line.split("|") for line in lines)}


def test_each_thing_that_can_be_added_is_in_the_table():
    new = {"device", "dataset", "graph reader", "collector", "predictor", "endpoint"}
    assert new <= set(table())


def test_every_file_and_list_of_the_table_exists():
    sources = "\n".join(text_of(path) for path in modules())
    for cell in table().values():
        for name in re.findall(r"`([^`]+)`", cell):
            place = re.sub(r"/(PACKAGE/)?x(\.py|/)$", "", name)
            if "/" in name:
                assert (REPOSITORY / place).exists(), name
            else:
                assert re.search(rf"\b{name}\b", sources), name


@pytest.fixture
def toy_device(tmp_path, monkeypatch):
    """The catalogue with one more block in a copy of `data/devices.yaml`."""
    text = (REPOSITORY / "data" / "devices.yaml").read_text(encoding="utf-8")
    (tmp_path / "devices.yaml").write_text(text.rstrip("\n") + BLOCK, encoding="utf-8")
    monkeypatch.setattr(device_module, "files", lambda package: tmp_path)
    device_module._shipped_devices.cache_clear()
    yield DeviceCatalog.load().get("Toy 1")
    device_module._shipped_devices.cache_clear()


def test_a_device_is_one_block_with_a_source(toy_device):
    assert toy_device.name == "toy-1"
    assert "T4" in toy_device.sources["memory_bandwidth_gbs"]
    answers = Router((Roofline(),)).predict([Query(Kernel(RELU), toy_device)])
    assert answers.values["latency_ms"][0] == pytest.approx(2 * 4 * 4096**2 / 100e9 * 1e3, rel=0.2)


def test_a_block_without_a_source_is_refused():
    (block,) = yaml.safe_load(BLOCK)
    del block["source"]
    with pytest.raises(KeyError, match="source"):
        device_module._from_block(block, {})


def test_an_endpoint_is_one_router_in_the_list(client_with_toy):
    assert client_with_toy.get("/v1/toy").json() == {"status": "toy"}
    assert client_with_toy.get("/v1/toy?unknown=1").status_code == 422
    assert "/v1/toy" in client_with_toy.get("/openapi.json").json()["paths"]
    assert "|`GET /v1/toy`|Whether toys are served.|" in program("reference").endpoints()


@pytest.fixture
def client_with_toy(tmp_path, monkeypatch):
    """A client of the service with the router of one more endpoint."""
    loaded = LoadedPredictor(Router((Roofline(),)), "test", "2026-01-01", "")
    router = APIRouter()

    @router.get("/v1/toy")
    async def toy() -> StatusOut:
        """Whether toys are served."""
        return StatusOut(status="toy")

    monkeypatch.setattr(http_app, "ROUTERS", (*ROUTERS, router))
    with TestClient(http_app.create_app(Settings(home=tmp_path), loaded)) as client:
        yield client
