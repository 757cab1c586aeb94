"""Lowest speeds on nodes, and what is kept between a filter and the scores after it."""

import json
from dataclasses import replace

import pytest
from msgspec import Raw

from forerun.service.answers import colocation
from forerun.service.http.kubernetes import pods as neighbours
from forerun.service.http.kubernetes.extender import ClusterNode
from forerun.service.http.kubernetes.pods import Neighbours
from forerun.service.schemas.colocation import MOST_HOSTS, HostIn, HostsIn, ProgramIn
from tests.service.http.kubernetes.requests import args, node, pod
from tests.service.http.kubernetes.test_advice import RESNET, asked

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
    scores = {row["Host"]: row["Score"] for row in asked(adapting, "prioritize", request)}
    assert scores["a"] > 0
    assert scores["b"] > 0
