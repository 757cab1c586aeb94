"""Advice on nodes of a cluster that is followed, with their neighbours."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest
from msgspec import Raw

from forerun.service.answers import colocation
from forerun.service.http.kubernetes import pods as neighbours
from forerun.service.http.kubernetes.cluster import Cluster
from forerun.service.http.kubernetes.extender import ClusterNode
from forerun.service.http.kubernetes.pods import Neighbours
from forerun.service.schemas.colocation import MOST_HOSTS, HostIn, HostsIn, ProgramIn
from tests.service.answered import content_of, problem_of
from tests.service.conftest import client_of
from tests.service.http.kubernetes.fake_api import FakeApi, fake_api
from tests.service.http.kubernetes.requests import args, names, node, pod
from tests.waiting import eventually

RESNET = {"graph": "resnet50", "batch-size": "64", "precision": "amp"}
NODES = [
    node("h100", "NVIDIA-H100-80GB-HBM3"),
    node("t4", "Tesla-T4"),
    node("l4-a", "NVIDIA-L4"),
    node("l4-b", "NVIDIA-L4"),
    node("unknown", "NVIDIA-Z9000"),
    node("cpu"),
]


def asked(client, verb: str, request: dict):
    return content_of(client.post(f"/v1/kubernetes/{verb}", json=request))


def scores_of(client, request: dict) -> dict[str, int]:
    return {row["Host"]: row["Score"] for row in asked(client, "prioritize", request)}


def passing(result: dict) -> list[str]:
    return [one["metadata"]["name"] for one in result["Nodes"]["items"]]


def ranked(client, **more) -> dict[str, float]:
    """Device -> latency in milliseconds by POST /v1/rank."""
    workload = {"kind": "network", "graph": "resnet50", "batch_size": 64, "precision": "amp"}
    devices = ["h100-sxm-80gb", "t4", "l4"]
    answer = client.post("/v1/rank", json={"workload": workload, "devices": devices, **more})
    return {row["device"]["name"]: row["objective"]["value"] for row in answer.json()["ranked"]}


def test_scores_compare_each_device_with_the_best(adapting):
    scores = scores_of(adapting, args(pod(RESNET), NODES))
    latency = ranked(adapting)
    best = min(latency.values())
    assert scores["h100"] == 10
    assert scores["t4"] == round(10 * best / latency["t4"])
    assert scores["l4-a"] == scores["l4-b"] == round(10 * best / latency["l4"])
    assert scores["unknown"] == scores["cpu"] == 0


def test_what_is_maximised_scores_the_other_way_round(adapting):
    request = args(pod({**RESNET, "objective": "throughput_per_w"}), NODES)
    scores = scores_of(adapting, request)
    rates = ranked(adapting, objective="throughput_per_w")
    assert scores["t4"] == round(10 * rates["t4"] / max(rates.values()))
    assert max(scores.values()) == 10


def test_nodes_that_break_a_limit_fail_for_good_and_say_why(adapting):
    latency = ranked(adapting, risk="value")
    most = (latency["h100-sxm-80gb"] + latency["l4"]) / 2
    limits = {"max-latency-ms": str(most), "risk": "value"}
    result = asked(adapting, "filter", args(pod({**RESNET, **limits}), NODES))
    assert passing(result) == ["h100", "unknown", "cpu"]
    assert result["FailedNodes"] == {}
    reasons = result["FailedAndUnresolvableNodes"]
    assert set(reasons) == {"t4", "l4-a", "l4-b"}
    assert "latency_ms" in reasons["t4"]


def test_a_slice_too_small_for_the_network_fails(adapting):
    large = {**RESNET, "batch-size": "2048"}
    nodes = [node("whole", "NVIDIA-H100-80GB-HBM3")]
    whole = asked(adapting, "filter", args(pod(large, {"nvidia.com/gpu": "1"}), nodes))
    part = asked(adapting, "filter", args(pod(large, {"nvidia.com/mig-1g.10gb": "1"}), nodes))
    assert passing(whole) == ["whole"]
    assert "does not fit" in part["FailedAndUnresolvableNodes"]["whole"]


def test_what_is_not_known_keeps_no_pod_from_a_node(adapting):
    nodes = [node("slice", "NVIDIA-H100-80GB-HBM3-MIG-7g.80gb")]
    request = args(pod({**RESNET, "max-power-w": "1"}), nodes)
    assert passing(asked(adapting, "filter", request)) == ["slice"]
    assert asked(adapting, "prioritize", request) == [{"Host": "slice", "Score": 0}]


@pytest.mark.parametrize(
    "annotations", [{}, {"graph": "no-such-network"}, {"graph": "resnet50", "batch-size": "-1"}]
)
def test_a_pod_that_asks_nothing_or_nonsense_may_run_anywhere(adapting, annotations):
    request = args(pod(annotations), NODES)
    assert passing(asked(adapting, "filter", request)) == [one["metadata"]["name"] for one in NODES]
    assert {*scores_of(adapting, request).values()} == {0}


def test_programs_are_kept_from_nodes_where_one_would_be_slowed_too_much(adapting):
    alone = node("idle", residents="[]")
    crowded = node("crowded", residents='[{"name": "a", "threads": 64}]')
    request = args(pod({"program": "b", "min-relative-speed": "0.6"}), [alone, crowded, node("c")])
    result = asked(adapting, "filter", request)
    assert passing(result) == ["idle", "c"]
    assert "the least is 0.6" in result["FailedNodes"]["crowded"]
    scores = scores_of(adapting, request)
    assert scores["idle"] == 10
    assert scores["crowded"] < 6
    assert scores["c"] == 0


def test_device_and_neighbours_both_count(adapting):
    crowded = node("crowded", "NVIDIA-H100-80GB-HBM3", residents='[{"name": "a", "threads": 3}]')
    request = args(pod({**RESNET, "program": "b"}), [NODES[0], crowded])
    scores = scores_of(adapting, request)
    assert scores["h100"] == 10
    assert 0 < scores["crowded"] < 10


def test_a_body_that_is_no_request_is_a_problem(adapting):
    problem_of(adapting.post("/v1/kubernetes/filter", content=b'{"Pod": {}}'), 422, "metadata")


def test_requests_are_counted_by_the_routes_that_alerts_name(adapting):
    asked(adapting, "filter", args(pod({}), NODES))
    text = adapting.get("/metrics").text
    assert 'forerun_request_seconds_bucket{le="0.5",route="/v1/kubernetes/filter"}' in text


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
    request = names(pod({"graph": "resnet50", "batch-size": "64"}), ["big", "small", "new"])
    with client_of(settings, trained, kubernetes_api=api.url) as client:

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
    request = names(pod({"program": "b", "min-relative-speed": "0.6"}), ["idle", "busy"])
    with client_of(settings, trained, kubernetes_api=api.url) as client:

        def passing() -> list[str]:
            return client.post("/v1/kubernetes/filter", json=request).json()["NodeNames"]

        eventually(lambda: passing() == ["idle"])


NEW = ProgramIn(name="new", threads=2)


def on(name: str, *programs: dict, text: str | None = None) -> ClusterNode:
    residents = json.dumps(programs) if text is None else text
    return ClusterNode(name, {}, {"forerun.dev/residents": residents}, Raw())


@pytest.fixture
def predicted(monkeypatch) -> list[int]:
    """Number of hosts of each call of the predictor."""
    calls: list[int] = []

    def counted(candidate, hosts, loaded):
        calls.append(len(hosts))
        return colocation.slowest_programs(candidate, hosts, loaded)

    monkeypatch.setattr(neighbours, "slowest_programs", counted)
    return calls


def test_speeds_are_those_of_the_ranking_of_hosts(trained):
    residents = {"idle": [], "one": [{"name": "a", "threads": 3}], "own": [{"name": "b"}] * 2}
    hosts = [HostIn(name=name, residents=own) for name, own in residents.items()]
    ranked = colocation.rank(HostsIn(candidate=NEW, hosts=hosts), trained).hosts
    nodes = [on(name, *own) for name, own in residents.items()]
    found = Neighbours().slowest(NEW, nodes, None, trained)
    assert found == {
        host.name: (pytest.approx(host.score, rel=1e-12), host.worst_program) for host in ranked
    }
    assert found["idle"] == (1.0, "new")


def test_nodes_with_equal_programs_are_predicted_once_and_kept(trained, predicted):
    own = Neighbours()
    nodes = [on("a", {"name": "x"}), on("b", {"name": "x"}), on("c", {"name": "y"})]
    first = own.slowest(NEW, nodes, None, trained)
    assert (first["a"], predicted) == (first["b"], [2])
    assert own.slowest(NEW, nodes[:2], None, trained) == {"a": first["a"], "b": first["b"]}
    assert predicted == [2]


def test_another_predictor_or_program_is_predicted_anew(trained, predicted):
    own, nodes = Neighbours(), [on("a", {"name": "x"})]
    own.slowest(NEW, nodes, None, trained)
    own.slowest(NEW, nodes, None, replace(trained, version="next"))
    own.slowest(ProgramIn(name="new", threads=3), nodes, None, trained)
    own.slowest(NEW, nodes, {"a": [ProgramIn(name="y")]}, trained)
    own.slowest(NEW, nodes, {"a": [ProgramIn(name="y", threads=2)]}, trained)
    assert predicted == [1] * 5


def test_a_node_whose_annotation_does_not_fit_is_left_out_alone(trained):
    crowded = json.dumps([{"name": "x"}] * 65)
    nodes = [on("a"), on("bad", text="{"), on("many", text=crowded)]
    assert set(Neighbours().slowest(NEW, nodes, None, trained)) == {"a"}


def test_nodes_of_which_nothing_tells_the_programs_are_left_out(trained):
    silent = ClusterNode("silent", {}, {}, Raw())
    assert Neighbours().slowest(NEW, [silent], None, trained) == {}
    assert set(Neighbours().slowest(NEW, [silent], {}, trained)) == {"silent"}


def test_more_nodes_than_a_request_may_rank_are_estimated(trained, predicted):
    nodes = [on(str(each), {"name": f"p{each}"}) for each in range(MOST_HOSTS + 1)]
    assert len(Neighbours().slowest(NEW, nodes, None, trained)) == MOST_HOSTS + 1
    assert predicted == [MOST_HOSTS, 1]


def test_scores_after_a_filter_ask_no_predictor(adapting, monkeypatch):
    nodes = [node("a", "NVIDIA-L4", residents='[{"name": "x"}]'), node("b", "Tesla-T4")]
    request = args(pod({**RESNET, "program": "new"}), nodes)
    asked(adapting, "filter", request)

    def unexpected(*_):
        raise AssertionError("a predictor is asked again")

    monkeypatch.setattr(neighbours, "slowest_programs", unexpected)
    monkeypatch.setattr("forerun.service.http.answers.answers_to", unexpected)
    request["Nodes"]["items"] = nodes[::-1]
    scores = scores_of(adapting, request)
    assert scores["a"] > 0
    assert scores["b"] > 0
