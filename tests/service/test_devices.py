"""Spec sheets and graphs over HTTP."""

import errno
import json
import os
import tempfile

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

from forerun.data import file_store
from forerun.data.bundle import Bundle, find
from forerun.data.datasets.networks.timm_bench import TimmBench
from forerun.data.device import DeviceCatalog
from forerun.data.errors import MissingData, UnreadableModel
from forerun.features.readers import model_zoo
from forerun.features.readers.model_zoo import EagerCall
from forerun.service.cli import app
from forerun.service.schemas.prediction import EXAMPLE
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import Place
from forerun.training.protocols.networks.timm_bench import TimmBenchProtocols
from tests.contracts.tiny_upstream import tiny_upstream
from tests.service.answered import problem_of
from tests.service.conftest import GRAPH, client_of, linear_row
from tests.service.free_models import free_onnx

# Spec sheets over HTTP: listed, registered for good, the catalogue's own protected.


JSON = {"Content-Type": "application/json"}
SHEET = {
    "name": "my-card",
    "title": "My card",
    "vendor": "Me",
    "kind": "gpu",
    "memory_gib": 48,
    "memory_bandwidth_gbs": 900,
    "peak_tflops": {"fp32": 40, "fp16": 160},
    "sources": {},
}


def test_the_catalogue_is_listed_and_filtered(client):
    everything = client.get("/v1/devices").json()["devices"]
    cpus = client.get("/v1/devices", params={"kind": "cpu"}).json()["devices"]
    assert len(everything) >= 45
    assert cpus
    assert all(device["kind"] == "cpu" for device in cpus)


def test_a_registered_device_answers_and_survives_a_restart(client, settings, loaded):
    assert client.put("/v1/devices/my-card", json=SHEET).status_code == 200
    asked = EXAMPLE | {"device": "my-card"}
    assert client.post("/v1/predict", json=asked).json()["device"]["origin"] == "registered"
    with client_of(settings, loaded) as restarted:
        assert restarted.post("/v1/predict", json=asked).status_code == 200


@pytest.mark.parametrize(
    ("path", "changes", "status"),
    [
        ("l4", {"name": "l4"}, 409),
        ("other", {}, 422),
        ("my-card", {"memory_bandwidth_gbs": 0}, 422),
        ("my-card", {"peak_tflops": {}}, 422),
        ("my-card", {"horsepower": 3}, 422),
    ],
)
def test_a_sheet_that_cannot_be_is_refused(client, path, changes, status):
    answer = client.put(f"/v1/devices/{path}", json=SHEET | changes)
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_registered_device_is_deleted_for_good(client, settings, loaded):
    client.put("/v1/devices/my-card", json=SHEET)
    answer = client.delete("/v1/devices/my-card")
    assert (answer.status_code, answer.content) == (204, b"")
    with client_of(settings, loaded) as restarted:
        for each in (client, restarted):
            assert each.get("/v1/devices/my-card").status_code == 404
            assert each.post("/v1/predict", json=EXAMPLE | {"device": "my-card"}).status_code == 404
            assert each.delete("/v1/devices/my-card").status_code == 404
    assert client.put("/v1/devices/my-card", json=SHEET).status_code == 200


@pytest.mark.parametrize("name", ["l4", "geforce-gtx-1660-ti"])
def test_devices_that_came_with_the_package_are_not_deleted(client, name):
    problem_of(client.delete(f"/v1/devices/{name}"), 409, slug="taken-name")
    assert client.get(f"/v1/devices/{name}").status_code == 200


def test_a_device_with_measurements_in_use_is_deleted_only_after_they_are_rolled_back(adapting):
    adapting.put("/v1/devices/my-card", json=SHEET)
    rows = {"measurements": [linear_row(64, 0.05)]}
    made = adapting.post("/v1/devices/my-card/measurements", json=rows).json()["set"]
    refused = problem_of(adapting.delete("/v1/devices/my-card"), 409, slug="still-in-use")
    remedy = f"/v1/devices/my-card/measurements/{made}"
    assert remedy in refused["detail"]
    assert adapting.delete(remedy).status_code == 200
    assert adapting.delete("/v1/devices/my-card").status_code == 204


@pytest.mark.parametrize(
    "changes",
    [
        {"sources": {"memory_gib": "\ud800"}},
        {"caveats": ["\ud800"]},
        {"aliases": ["a\ud800"]},
        {"caveats": ["long " * 1_000]},
        {"caveats": ["many"] * 1_000},
    ],
)
def test_text_that_cannot_be_stored_is_refused(client, changes):
    """Half of a surrogate pair is no Unicode; JSON may hold it all the same."""
    content = json.dumps(SHEET | changes)
    answer = client.put("/v1/devices/my-card", content=content, headers=JSON)
    problem_of(answer, 422, next(iter(changes)))


# Uploads: kept through a restart, refused with a clear line when they are no model.


def small_onnx(*, cyclic=False, dimension=4) -> bytes:
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [dimension, 8])
    target = helper.make_tensor_value_info("y", TensorProto.FLOAT, [dimension, 8])
    nodes = [
        helper.make_node("Add", ["x", "b" if cyclic else "x"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    return helper.make_model(helper.make_graph(nodes, "g", [source], [target])).SerializeToString()


def test_a_graph_is_stored_once_and_survives_a_restart(client, digest, settings, loaded):
    assert client.post("/v1/graphs", json=GRAPH.to_json()).json()["digest"] == digest
    assert Records.of_texts(Place(settings.home) / "graphs").names() == {f"{digest}.json"}
    with client_of(settings, loaded) as restarted:
        body = restarted.get(f"/v1/graphs/{digest}").json()
    assert body["operators"] == len(GRAPH)
    assert body["parameters"] == 4096 * 1024
    assert body["flops"] == pytest.approx(2 * 1024 * 4096 + 4096)


def test_free_dimensions_are_given_and_kept_with_the_graph(client):
    asked = {"batch_size": 2, "shape": "images:?x3x96x?", "image_size": 64}
    stored = client.post("/v1/graphs", params=asked, content=free_onnx()).json()
    sizes = [(b["axis"], b["size"], b["why"]) for b in stored["bound_dimensions"]]
    assert sizes == [(0, 2, "batch"), (2, 96, "given"), (3, 64, "given")]
    assert client.get(f"/v1/graphs/{stored['digest']}").json() == stored
    workload = {"kind": "network", "graph": stored["digest"], "batch_size": 8}
    answer = client.post("/v1/predict", json={"workload": workload, "device": "l4"}).json()
    asked_at = [(b["axis"], b["size"]) for b in answer["bound_dimensions"]]
    assert asked_at == [(0, 8), (2, 96), (3, 64)]


def test_of_one_graph_read_in_two_ways_each_answer_says_its_own(client):
    def why(**asked):
        params = {"device": "l4"} | asked
        answer = client.post("/v1/predict/model", params=params, content=free_onnx()).json()
        return {b["why"] for b in answer["bound_dimensions"]}

    assert why() == {"batch", "default_image_size"}
    assert why(image_size=224) == {"batch", "given"}
    assert why(shape=["images=1x3x224x224"]) == {"batch", "given"}
    assert why() == {"batch", "default_image_size"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"shape": "images=1x3x8"}, "'images' has 4 dimensions, not 3; its inputs are images"),
        ({"shape": "nonsense"}, "is not of the form name=1x3x640x640"),
        ({"shape": ["images=1x3x8x8", "images=1x3x8x9"]}, "'images' is given two shapes"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/graphs", "/v1/predict/model?device=l4"])
def test_shapes_that_do_not_fit_are_a_problem(client, path, asked, said):
    answer = client.post(
        path, params={"device": "l4"} | asked if "?" in path else asked, content=free_onnx()
    )
    assert answer.status_code == 422
    assert answer.json()["type"].endswith("bad-shape")
    assert said in answer.json()["detail"]


def test_a_full_store_keeps_what_it_has_until_a_graph_is_deleted_for_good(settings, loaded):
    with client_of(settings, loaded, graphs_kept=1) as client:
        first = client.post("/v1/graphs", json=GRAPH.to_json()).json()["digest"]
        problem_of(client.post("/v1/graphs", content=small_onnx()), 507, "FORERUN_GRAPHS_KEPT")
        asked = {"workload": {"kind": "network", "graph": first}, "device": "l4"}
        assert client.post("/v1/predict", json=asked).status_code == 200
        assert client.delete(f"/v1/graphs/{first}").status_code == 204
        for gone in (
            client.get(f"/v1/graphs/{first}"),
            client.post("/v1/predict", json=asked),
            client.delete(f"/v1/graphs/{first}"),
        ):
            assert gone.status_code == 404
        assert client.post("/v1/graphs", content=small_onnx()).status_code == 201


@pytest.mark.parametrize("name", ["resnet50", "0" * 32, "..%2Fdevices%2Fx"])
def test_what_was_not_uploaded_is_not_deleted(client, name):
    assert client.delete(f"/v1/graphs/{name}").status_code == 404


def test_a_graph_that_measurements_name_is_deleted_only_after_they_are_rolled_back(adapting):
    digest = adapting.post("/v1/graphs", json=GRAPH.to_json()).json()["digest"]
    workload = {"kind": "network", "graph": digest, "precision": "fp32"}
    asked = {"workload": workload, "device": "l4"}
    expected = adapting.post("/v1/predict", json=asked).json()["metrics"]["latency_ms"]["value"]
    rows = [{"workload": workload, "metrics": {"latency_ms": expected * 1.1}}]
    path = "/v1/devices/l4/measurements"
    made = adapting.post(path, json={"measurements": rows}).json()["set"]
    problem_of(adapting.delete(f"/v1/graphs/{digest}"), 409, f"{path}/{made}")
    assert adapting.delete(f"{path}/{made}").status_code == 200
    assert adapting.delete(f"/v1/graphs/{digest}").status_code == 204


@pytest.mark.parametrize(("code", "status"), [(errno.ENOSPC, 507), (errno.EROFS, 503)])
def test_a_disk_that_refuses_keeps_no_question_from_being_answered(
    client, monkeypatch, code, status
):
    def refusing(descriptor):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(file_store.os, "fsync", refusing)
    problem_of(client.post("/v1/graphs", json=GRAPH.to_json()), status, "FORERUN_HOME")
    assert client.post("/v1/predict/model?device=l4", json=GRAPH.to_json()).status_code == 200


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"not a model",
        b"{}",
        b'{"format": "forerun.graph/1", "operators": []}',
        b"\x00" * 1000,
        small_onnx()[:-20],
        small_onnx(cyclic=True),
        small_onnx(dimension=0),
        small_onnx(dimension=2**60),
        b"[" * 100_000,
    ],
    ids=[
        "empty",
        "text",
        "json",
        "no operators",
        "zeros",
        "truncated",
        "cyclic",
        "zero dimension",
        "absurd dimension",
        "deep",
    ],
)
def test_what_is_no_model_gets_a_clear_4xx(client, content):
    answer = client.post("/v1/graphs", content=content)
    assert 400 <= answer.status_code < 500, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["detail"].startswith("Cannot read")


def test_an_upload_over_the_limit_is_refused_and_json_has_a_smaller_one(client):
    for path in ("/v1/graphs", "/v1/predict/model?device=l4"):
        problem_of(client.post(path, content=b"\x08" * (2 * 2**20 + 1)), 413, "2 MiB")
    problem_of(client.post("/v1/graphs", content=b"{" + b" " * 2**20), 413, "1 MiB")


def test_an_upload_without_end_is_cut_off(client):
    """The limit holds while reading, also where the request declares no length."""
    for path in ("/v1/graphs", "/v1/predict"):
        endless = (b"\x08" * 2**16 for _ in range(1000))
        kind = {"content-type": "application/json"}
        answer = client.post(path, content=endless, headers=kind)
        assert answer.status_code == 413
        assert answer.headers["content-type"] == "application/problem+json"


def test_a_large_upload_goes_through_a_file_and_reads_the_same(settings, loaded):
    """A model with 12 MiB of weights, more than is held in memory."""
    weights = onnx.numpy_helper.from_array(np.zeros((1024, 3072), np.float32), "w")
    source = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 1024])
    target = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 3072])
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    model = helper.make_model(helper.make_graph([node], "g", [source], [target], [weights]))
    with client_of(settings, loaded, max_upload_mib=16) as client:
        body = client.post("/v1/graphs", content=model.SerializeToString()).json()
    assert body["parameters"] == 1024 * 3072
    assert body["flops"] == pytest.approx(2 * 4 * 1024 * 3072)


def test_a_temporary_folder_that_is_full_is_a_problem_of_its_own(client, monkeypatch):
    def full(file, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "write", full)
    problem_of(client.post("/v1/predict/model?device=l4", content=small_onnx()), 507, "TMPDIR")


def test_formats_that_need_more_than_reading_stay_outside(client):
    """Configurations are built and traced by large libraries: on the command line, not here."""
    archive = b"PK\x03\x04" + bytes(100)
    for content in (b'{"model_type": "bert"}', archive):
        problem_of(client.post("/v1/graphs", content=content), 422, "forerun trace")


def test_a_name_that_is_no_sound_unicode_is_answered(client):
    """JSON can spell half a character; no answer can."""
    content = (
        json.dumps(GRAPH.to_json()).replace("relu", "\\ud800").replace("elementwise", "unknown")
    )
    upload = client.post("/v1/graphs", content=content)
    assert upload.json()["unknown_operators"] == {"?": 1}
    asked = {"workload": {"kind": "network", "graph": upload.json()["digest"]}, "device": "l4"}
    body = client.post("/v1/predict", json=asked).json()
    assert body["unknown_operators"] == {"?": 1}
    assert not body["in_domain"]


# `forerun data pull timm_bench`: its networks are traced where timm is, else a line says how.


RETIRED = "dla_2"


@pytest.fixture
def pull(tmp_path, monkeypatch):
    """Pulls made-up upstream files into a home of its own; the lines on standard error."""
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    raw = tiny_upstream("timm_bench", tmp_path / "upstream")

    def made(self):
        return Bundle.write(
            tmp_path / "home" / "bundles" / self.name,
            self.name,
            self.tidy(raw),
            facts={"licence": self.licence},
        )

    monkeypatch.setattr(TimmBench, "pull", made)

    def call(*words):
        done = CliRunner().invoke(app, ["data", "pull", "timm_bench", *words])
        assert done.exit_code == 0, done.exception
        return done.stderr

    return call


@pytest.fixture
def zoo(monkeypatch):
    """In place of timm: networks of one operator, one of them retired. Lists what was traced."""
    traced = []

    def calls(model, size):
        traced.append((model, size))
        if model in (RETIRED, "too_large"):
            raise UnreadableModel(model, "it is retired.")
        shape = f"[1,3,{size},{size}]"
        area = 3 * size * size
        return [EagerCall(0, "relu", f"[{shape}]", shape, "", 0, area, area, 0, "")]

    monkeypatch.setattr(model_zoo, "is_installed", lambda: True)
    monkeypatch.setattr(model_zoo, "versions", lambda: {"timm": "1.0", "torch": "2.13"})
    monkeypatch.setattr(model_zoo, "zoo_calls", calls)
    return traced


def test_without_timm_a_line_says_what_adds_the_graphs(pull, monkeypatch):
    monkeypatch.setattr(model_zoo, "is_installed", lambda: False)
    assert "scripts/install zoo" in pull()
    bundle = find("timm_bench")
    assert bundle.tables() == ("bench",)
    with pytest.raises(MissingData, match=r"forerun data pull timm_bench.*scripts/install zoo"):
        TimmBenchProtocols().training_rows(bundle, DeviceCatalog.load())


def test_networks_are_traced_into_the_bundle(pull, zoo):
    lines = pull()
    assert "2 of 11 networks" in lines
    assert RETIRED in lines
    bundle = find("timm_bench")
    TimmBench().validate({name: bundle.table(name) for name in bundle.tables()})
    assert "`graphs`: 9 rows" in bundle.datasheet
    assert bundle.facts["digest"] == bundle.digest
    assert bundle.facts["licence"] == "Apache-2.0"
    assert bundle.facts["graphs"] == {
        "timm": "1.0",
        "torch": "2.13",
        "not_traced": [f"{RETIRED}@224", "too_large@224"],
    }
    training_rows = TimmBenchProtocols().training_rows(bundle, DeviceCatalog.load())
    assert set(training_rows.groups["model"]) == set(bundle.table("graphs")["model"])


def test_the_next_pull_traces_only_what_is_missing(pull, zoo):
    pull()
    first, digest = list(zoo), find("timm_bench").digest
    zoo.clear()
    pull()
    assert len(first) == 11
    assert sorted(zoo) == [(RETIRED, 224), ("too_large", 224)]
    assert find("timm_bench").digest == digest


def test_other_versions_trace_anew(pull, zoo, monkeypatch):
    pull()
    zoo.clear()
    monkeypatch.setattr(model_zoo, "versions", lambda: {"timm": "1.1", "torch": "2.13"})
    pull()
    assert len(zoo) == 11
