"""Endpoints about programs that share a host, answered by a predictor of a made-up one."""

from dataclasses import dataclass, replace
from functools import cache

import pytest
from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.baselines.roofline import Roofline
from forerun.models.colocation.slowed_class import ClassErrors
from forerun.models.conformal import LogQuantiles
from forerun.models.router import Router
from forerun.service.answers.colocation import rank
from forerun.service.http.app import create_app
from forerun.service.schemas.colocation import HostIn, HostsIn, ProgramIn
from tests.contracts.fitted_colocation import boost
from tests.contracts.tiny_colocation import METRICS, PROGRAMS, host, profile


@cache
def trained():
    return LoadedPredictor(Router((Roofline(), boost())), "test", "2026-01-01", "")


@pytest.fixture
def service(settings):
    with TestClient(create_app(settings, trained()), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def ask(service):
    """Asks about a candidate on a host; the answer."""

    def asked(candidate, path="", **content):
        sent = {"program": candidate} if path == "/now" else {"candidate": candidate}
        answer = service.post(f"/v1/colocation{path}", json=sent | content)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return asked


def program(name, **more):
    known = profile(name)
    alone = dict(zip(METRICS, known.alone.seconds[0], strict=True))
    facts = {"working_set_mib": known.working_set_mib, "cpu_share": known.cpu_share}
    return {"name": name, "alone": alone, **facts, **more}


def window(cpu, cache, seconds=3):
    return {"metrics": list(METRICS), "seconds": [list(host(cpu, cache))] * seconds}


def test_the_candidate_and_every_resident_are_answered_with_intervals(ask):
    body = ask(program("table"), host={"residents": [program("chase"), program("spin")]})
    assert [one["program"] for one in body["residents"]] == ["chase", "spin"]
    everyone = [body["candidate"], *body["residents"]]
    for one in everyone:
        p = one["p_cpu"]
        assert p["low"] <= p["value"] <= p["high"]
        assert p["coverage"] == 0.9
        assert p["slowed"] is None
    least = min(everyone, key=lambda one: one["p_cpu"]["value"])
    assert body["worst"] == least["program"]
    assert any("idle host" in line for line in body["assumed"])


def test_a_crowded_host_costs_more_than_an_empty_one(ask):
    neighbours = {"residents": [program("table"), program("sweep")]}
    empty, crowded = (ask(program("chase"), host=one) for one in ({}, neighbours))
    assert crowded["candidate"]["p_cpu"]["value"] < empty["candidate"]["p_cpu"]["value"]
    assert crowded["candidate"]["dominant_resource"] == "cache"


def test_more_programs_than_cpus_wait_for_their_share(ask):
    def p_wall(**known):
        return ask(program("spin"), host=known)["candidate"]["p_wall"]["value"]

    crowd = [program("matrix", cpu_share=1.0) for _ in range(8)]
    alone, crowded = p_wall(cpus=2), p_wall(cpus=2, residents=crowd)
    assert crowded < 0.35 * alone
    assert p_wall(cpus=16, residents=crowd) > 3 * crowded
    busy = {"cpu.user_share": 8.0}
    assert p_wall(cpus=2, metrics=busy) < 0.35 * alone, "who is not named counts too"
    metrics = busy | {"cpu.idle_share": 8.0}
    assert p_wall(metrics=metrics) == p_wall(metrics=metrics, cpus=16), "they add up to 16"
    body = ask(program("spin"), host={"residents": crowd})
    assert body["candidate"]["dominant_resource"] == "cpu"


def test_a_program_of_many_threads_counts_as_often(ask):
    def candidate(residents, **host):
        return ask(program("spin"), host={"residents": residents, **host})["candidate"]

    eight = program("matrix", cpu_share=1.0)
    same = candidate([eight | {"threads": 8}], cpus=4)
    assert same == candidate([eight] * 8, cpus=4)
    assert same["p_wall"]["value"] < candidate([eight], cpus=4)["p_wall"]["value"]
    own = program("spin", threads=8)

    def p_wall(residents, cpus):
        body = ask(own, host={"residents": residents, "cpus": cpus})
        return body["candidate"]["p_wall"]["value"]

    assert p_wall([], 2) == p_wall([], 16), "it has no neighbours"
    assert p_wall([eight | {"threads": 8}], 2) < 0.6 * p_wall([], 2)
    assert p_wall([eight | {"threads": 8}], 16) > 0.9 * p_wall([], 16)


def test_what_a_host_is_said_to_show_may_be_anything(ask):
    for much in (1e3, 1e15):
        body = ask(program("spin"), host={"metrics": {"cpu.user_share": much}})
        assert 0 < body["candidate"]["p_wall"]["value"] < 0.2
    many = program("chase", threads=1024)
    body = ask(program("table"), host={"residents": [many] * 64})["candidate"]
    one = {"residents": [program("chase")]}
    with_one_neighbour = ask(program("table"), host=one)["candidate"]
    assert body["p_cpu"]["value"] <= with_one_neighbour["p_cpu"]["value"]
    assert not body["missing_metrics"]


def test_a_program_that_was_measured_is_marked(ask):
    new = program("spin") | {"name": "new"}
    body = ask(program("spin"), host={"residents": [new]})
    assert (body["candidate"]["measured"], body["residents"][0]["measured"]) == (True, False)


def test_a_window_of_the_host_counts_its_residents_once(ask):
    measured_host = {"residents": [program("chase")], "window": window(0.9, 0.3)}
    body = ask(program("table"), host=measured_host)
    assert any("shows now" in line for line in body["assumed"])
    medians = dict(zip(METRICS, host(0.9, 0.3), strict=True))
    same = {"residents": [program("chase")], "metrics": medians}
    assert ask(program("table"), host=same)["candidate"] == body["candidate"]


def test_a_live_window_of_any_length_is_answered_and_gaps_are_said(ask):
    for seconds in (1, 4, 60):
        body = ask(program("chase"), "/now", window=window(0.9, 0.8, seconds))
        assert body["program"]["p_cpu"]["value"] < 0.8
    part = {"metrics": list(METRICS[:2]), "seconds": [[0.5, None]]}
    body = ask(program("spin"), "/now", window=part)["program"]
    assert set(body["missing_metrics"]) == set(METRICS[1:])
    assert not body["in_domain"]


def test_p_is_1_without_neighbours_and_an_empty_host_is_first(ask):
    for name in ("spin", "chase", "never-measured"):
        body = ask(program("chase") | {"name": name}, host={"cpus": 4})["candidate"]
        for metric in ("p_cpu", "p_wall"):
            assert body[metric]["value"] == pytest.approx(1.0)
            assert body[metric]["low"] <= 1.0 <= body[metric]["high"]
    hosts = [{"residents": [program("table"), program("sweep")]}, {}]
    body = ask(program("chase"), "/rank", hosts=hosts)["hosts"]
    assert [one["index"] for one in body] == [1, 0], "unnamed hosts are identified by index"
    assert body[0]["score"] == pytest.approx(1.0)
    assert all(isinstance(one["in_domain"], bool) for one in body)


def test_a_profile_under_a_measured_name_is_reported(ask):
    said = ask(program("chase"), host={})["assumed"]
    assert any("measured under that name" in line and "chase" in line for line in said)
    said = ask(program("chase") | {"name": "mine"}, host={})["assumed"]
    assert not any("measured under that name" in line for line in said)
    assert not any("adds nothing" in line for line in said)
    said = ask({"name": "bare"}, host={})["assumed"]
    assert any("adds nothing to the host: bare" in line for line in said)


def test_unread_metrics_are_reported(ask):
    odd = {"metrics": [METRICS[0], "cpu.usre_share"], "seconds": [[0.5, 0.5]]}
    known, candidate = program("spin"), program("chase")
    candidate["alone"] = candidate["alone"] | {"cpu.typo": 1.0}
    for path, asked, unread in (
        ("/now", (known, {"window": odd}), ["cpu.usre_share"]),
        ("", (candidate, {"host": {"window": odd}}), ["cpu.typo", "cpu.usre_share"]),
        ("/rank", (candidate, {"hosts": [{"metrics": {"x": 1.0}}]}), ["cpu.typo", "x"]),
        ("", (known, {"host": {"residents": [known]}}), []),
    ):
        assert ask(asked[0], path, **asked[1])["unread_metrics"] == unread


def test_hundreds_of_hosts_are_ranked(ask):
    names = list(PROGRAMS)
    hosts = [
        {"name": f"h{i}", "residents": [program(names[(i + j) % 5]) for j in range(i % 4)]}
        for i in range(300)
    ]
    found = ask(program("table"), "/rank", hosts=hosts)["hosts"]
    scores = [one["score"] for one in found]
    assert len(scores) == 300
    assert scores == sorted(scores, reverse=True)
    for one in found:
        assert one["score"] == one["worst"]["value"] <= one["candidate"]["value"]
        assert one["worst"]["low"] <= one["worst"]["value"] <= one["worst"]["high"]


def varied_hosts():
    """Hosts that differ in residents, threads, CPUs and in what is known of their metrics."""
    busy = {"cpu.user_share": 1.3, "cpu.idle_share": 2.7, "probe.evicted": 0.4}
    shaky = program("sweep") | {"name": "shaky", "cpu_spread": 0.2}
    return [
        {"name": "empty"},
        {"name": "cache", "residents": [program("chase"), program("table", threads=3)]},
        {"name": "watched", "residents": [program("spin")], "window": window(1.9, 0.8)},
        {"name": "longer", "residents": [program("sweep")], "window": window(1.1, 0.3, 7)},
        {"name": "summed", "metrics": busy, "residents": [program("matrix")]},
        {"name": "unknown", "residents": [{"name": "bare"}, shaky], "cpus": 16},
        {"name": "outside", "metrics": {"cpu.user_share": 1e6}},
    ]


@pytest.mark.parametrize("metric", ["p_cpu", "p_wall"])
def test_the_answer_for_a_host_does_not_depend_on_the_other_hosts(ask, metric):
    hosts = varied_hosts()

    def ranked(some):
        found = ask(program("chase"), "/rank", hosts=some, metric=metric)["hosts"]
        return {host.pop("name"): host | {"index": 0} for host in found}

    together = ranked(hosts * 3)
    assert together.keys() == {host["name"] for host in hosts}
    for one in hosts:
        among_others, alone = together[one["name"]], ranked([one])[one["name"]]
        assert numbers(among_others) == pytest.approx(numbers(alone), rel=1e-12)
        assert among_others["worst_program"] == alone["worst_program"]


def test_a_rank_says_of_the_candidate_what_the_question_about_one_host_says(ask):
    hosts, candidate = varied_hosts(), program("chase")
    ranked = ask(candidate, "/rank", hosts=hosts, metric="p_cpu")["hosts"]
    assert ranked == sorted(ranked, key=lambda host: -host["score"])
    for one in ranked:
        body = ask(candidate, host=hosts[one["index"]])
        programs = [body["candidate"], *body["residents"]]
        worst = min(programs, key=lambda program: program["p_cpu"]["value"])
        assert numbers(one["candidate"]) == pytest.approx(numbers(body["candidate"]["p_cpu"]))
        assert numbers(one["worst"]) == pytest.approx(numbers(worst["p_cpu"]))
        assert one["in_domain"] == all(program["in_domain"] for program in programs)
        assert one["worst_program"] == worst["program"] == body["worst"]


def test_the_boosters_are_called_once_for_all_hosts():
    """They take most of the time of an answer: wall time follows from the one call of CPU time."""
    part, sizes = trained().predictor.parts[1], []
    engines = {metric: CountedEngine(engine, sizes) for metric, engine in part.engines.items()}
    counted = replace(trained(), predictor=Router((replace(part, engines=engines),)))
    hosts = [HostIn(residents=[ProgramIn(name="spin")] * (i % 3)) for i in range(30)]
    rank(HostsIn(candidate=ProgramIn(name="chase"), hosts=hosts, metric="p_wall"), counted)
    assert sizes == [30 + 30]


@dataclass
class CountedEngine:
    """An engine that notes how many rows it is asked about."""

    engine: object
    sizes: list

    def predict(self, rows):
        self.sizes.append(len(rows))
        return self.engine.predict(rows)


def numbers(answer):
    """All numbers of an answer as one flat mapping that can be compared closely."""
    flat = {}
    for name, value in answer.items():
        inner = numbers(value) if isinstance(value, dict) else {"": value}
        flat |= {f"{name}.{key}": each for key, each in inner.items()}
    flat = {key: float("inf") if value is None else value for key, value in flat.items()}
    return {key: value for key, value in flat.items() if not isinstance(value, str)}


def test_too_many_programs_at_once_are_refused(service):
    full = {"residents": [{"name": "x"}] * 60}
    answer = service.post(
        "/v1/colocation/rank", json={"candidate": {"name": "y"}, "hosts": [full] * 100}
    )
    assert answer.status_code == 422
    assert "fewer hosts" in answer.json()["detail"]


@pytest.mark.parametrize("objective", ["worst", "candidate", "mean"])
def test_the_objective_decides_the_order(ask, objective):
    hosts = [
        {"name": "cache", "residents": [program("chase"), program("sweep")]},
        {"name": "empty"},
    ]
    body = ask(program("table"), "/rank", hosts=hosts, objective=objective)
    assert [one["name"] for one in body["hosts"]] == ["empty", "cache"]


def test_without_a_predictor_of_colocation_it_says_how_to_get_one(client):
    answer = client.post("/v1/colocation", json={"candidate": {"name": "x"}, "host": {}})
    assert answer.status_code == 422
    assert "collect contention" in answer.json()["detail"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"metrics": ["a", "a"], "seconds": []},
        {"metrics": ["a"], "seconds": [[1.0, 2.0]]},
        {"metrics": ["a"], "seconds": [["x"]]},
    ],
)
def test_a_window_that_is_no_table_is_a_clear_problem(service, wrong):
    asked = {"program": program("spin"), "window": wrong}
    answer = service.post("/v1/colocation/now", json=asked)
    assert answer.status_code == 422
    assert "window" in answer.json()["detail"]


def undecided():
    """The same predictor with intervals of new programs that decide nothing."""
    part = trained().predictor.parts[1]
    width = LogQuantiles({"all": (-20.0, 20.0)})
    widths = {key: width if key[1] == "new" else one for key, one in part.widths.items()}
    errors = {(m, "new"): ClassErrors(0.25, 0.125, 40) for m in part.metrics}
    return LoadedPredictor(Router((replace(part, widths=widths, errors=errors),)), "test", "", "")


def test_an_interval_that_decides_nothing_is_a_class_with_its_error_rates(settings):
    asked = {"candidate": program("chase") | {"name": "never"}}
    asked["host"] = {"residents": [program("spin")]}
    with TestClient(create_app(settings, undecided())) as client:
        body = client.post("/v1/colocation", json=asked).json()
        hosts = {"candidate": asked["candidate"], "hosts": [asked["host"]], "metric": "p_cpu"}
        (ranked,) = client.post("/v1/colocation/rank", json=hosts).json()["hosts"]
        live = {"program": asked["candidate"], "window": window(1.9, 0.8)}
        now = client.post("/v1/colocation/now", json=live).json()["program"]
    for answer in (body["candidate"]["p_cpu"], ranked["candidate"], now["p_cpu"]):
        assert (answer["low"], answer["high"], answer["coverage"]) == (None, None, None)
        rates = {"false_alarms": 0.25, "misses": 0.125, "runs": 40}
        assert answer["slowed"] == {"slowed": answer["value"] < 0.9, **rates}
    assert body["residents"][0]["p_cpu"]["slowed"] is None


def test_a_slower_reference_makes_p_as_much_higher(ask):
    def value(**more):
        body = ask(program("chase", **more), "/now", window=window(1.9, 0.8))
        return body["program"]["p_cpu"]["value"]

    assert value(reference_ratio=1.25) == pytest.approx(1.25 * value())
