"""A cluster is followed through its API, and what is known of it enters the advice."""

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from forerun.service.http.app import create_app
from forerun.service.http.kubernetes.cluster import Cluster
from tests.service.http.kubernetes.fake_api import FakeApi, fake_api
from tests.service.http.kubernetes.requests import names, node, pod
from tests.waiting import eventually


def running(name: str, on: str, program: str | None, phase: str = "Running") -> dict:
    """A pod on a node."""
    annotations = {} if program is None else {"program": program}
    content = pod(annotations)
    content["metadata"]["name"] = name
    content["spec"]["nodeName"] = on
    content["status"] = {"phase": phase}
    return content


@pytest.fixture
def api() -> Iterator[FakeApi]:
    with fake_api() as api:
        yield api


@pytest.fixture
def cluster(api, tmp_path) -> Iterator[Cluster]:
    (tmp_path / "token").write_text("secret\n")
    cluster = Cluster(api.url, tmp_path)
    cluster.start()
    eventually(api.watched)
    yield cluster
    cluster.stop()


def residents(cluster: Cluster) -> dict[str, list[str]]:
    programs = cluster.programs()
    return {name: sorted(one.name for one in own) for name, own in programs.items()}


def test_nodes_and_programs_are_listed_over_pages_and_then_followed(api, tmp_path):
    for number in range(5):
        api.put("nodes", node(f"n{number}", "NVIDIA-L4"))
        api.put("pods", running(f"p{number}", "n0", f"program-{number}"))
    cluster = Cluster(api.url, tmp_path)
    cluster.start()
    eventually(lambda: len(residents(cluster).get("n0", ())) == 5)
    eventually(lambda: cluster.node("n4") is not None)
    assert cluster.node("n4").labels["nvidia.com/gpu.product"] == "NVIDIA-L4"
    eventually(api.watched)
    api.put("nodes", node("n9", "Tesla-T4"))
    api.delete("nodes", "n4")
    eventually(lambda: cluster.node("n9") is not None)
    eventually(lambda: cluster.node("n4") is None)
    cluster.stop()


def test_pods_without_a_node_or_program_and_finished_ones_do_not_count(api, cluster):
    api.put("pods", running("a", "n0", "kept"))
    api.put("pods", running("b", "", "waits"))
    api.put("pods", running("c", "n0", None))
    api.put("pods", running("d", "n0", "done", "Succeeded"))
    api.put("pods", running("e", "n0", "failed", "Failed"))
    api.put("pods", running("f", "n0", '{"threads": 1}'))
    api.put("pods", running("z", "n1", "last"))
    eventually(lambda: "n1" in residents(cluster))
    assert residents(cluster) == {"n0": ["kept"], "n1": ["last"]}
    api.put("pods", running("a", "n0", "kept", "Succeeded"))
    api.delete("pods", "z")
    eventually(lambda: residents(cluster) == {})


def test_a_watch_that_ends_goes_on(api, cluster):
    api.end_watches()
    eventually(api.watched)
    api.put("pods", running("a", "n0", "new"))
    eventually(lambda: residents(cluster) == {"n0": ["new"]})


def test_what_was_missed_while_the_version_was_too_old_is_listed_again(api, cluster):
    api.put("pods", running("a", "n0", "old"))
    eventually(lambda: residents(cluster) == {"n0": ["old"]})
    api.expired.set()
    api.end_watches()
    eventually(lambda: not any(api._watches.values()))
    api.delete("pods", "a")
    api.put("pods", running("b", "n0", "new"))
    api.expired.clear()
    eventually(lambda: residents(cluster) == {"n0": ["new"]})


def test_the_token_of_the_account_is_sent(api, cluster):
    assert set(api.tokens) == {"Bearer secret"}


def test_nodes_that_are_only_named_are_known_from_the_cluster(api, settings, trained):
    api.put("nodes", node("big", "NVIDIA-H100-80GB-HBM3"))
    api.put("nodes", node("small", "Tesla-T4"))
    followed = settings.model_copy(update={"kubernetes_api": api.url})
    request = names(pod({"graph": "resnet50", "batch-size": "64"}), ["big", "small", "new"])
    with TestClient(create_app(followed, trained)) as client:

        def scores() -> list[int]:
            answer = client.post("/v1/kubernetes/prioritize", json=request)
            return [row["Score"] for row in answer.json()]

        eventually(lambda: scores()[0] == 10)
        eventually(lambda: 0 < scores()[1] < 10)
        assert scores()[2] == 0


def test_programs_of_pods_slow_a_program_down(api, settings, trained):
    for name in ("idle", "busy"):
        api.put("nodes", node(name))
    api.put("pods", running("a", "busy", '{"name": "a", "threads": 64}'))
    followed = settings.model_copy(update={"kubernetes_api": api.url})
    request = names(pod({"program": "b", "min-relative-speed": "0.6"}), ["idle", "busy"])
    with TestClient(create_app(followed, trained)) as client:

        def passing() -> list[str]:
            return client.post("/v1/kubernetes/filter", json=request).json()["NodeNames"]

        eventually(lambda: passing() == ["idle"])
