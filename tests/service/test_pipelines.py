"""POST /v1/pipeline, `forerun pipeline`, `forerun.pipeline`: one answer, refusals of one line."""

import json
import sys

import pytest
import yaml

import forerun
from forerun.data.errors import InputError
from forerun.service import cli
from forerun.service.schemas.fields import example
from forerun.service.schemas.pipelines import EXAMPLE_PIPELINE, PipelineOut
from tests.service.answered import content_of, problem_of

NETWORK = {"kind": "network", "graph": "resnet50", "batch_size": 32, "precision": "amp"}
LLM = example("deployment")["workload"]
DESIGN = example("design")
GIVEN = {"name": "a", "time_ms": 2.0, "power_w": 30.0, "idle_w": 10.0, "usd_per_hour": 1.0}
OTHER = {"name": "b", "time_ms": 4.0, "count": 3, "power_w": 20.0, "idle_w": 5.0}
LINK = {"from": "a", "to": "b", "bytes_per_item": 1e6, "bandwidth_gb_s": 0.25, "latency_us": 500}


def ask(client, *stages, **more):
    return content_of(client.post("/v1/pipeline", json={"stages": stages, **more}))


def predicted(client, workload, device):
    answer = client.post("/v1/predict", json={"workload": workload, "device": device})
    return content_of(answer)


def test_one_stage_says_what_predict_says(adapting):
    found = ask(adapting, {"name": "a", "workload": NETWORK, "device": "l4", "idle_w": 16})
    own = predicted(adapting, NETWORK, "l4")["metrics"]
    time = own["latency_ms"]
    for name in ("value", "low", "high", "coverage"):
        assert found["latency_ms"][name] == time[name]
    rates = {"value": "value", "low": "high", "high": "low"}
    for name, of in rates.items():
        assert found["throughput_per_s"][name] == pytest.approx(32e3 / time[of])
    assert found["throughput_per_s"]["coverage"] == time["coverage"]
    assert found["grade"] == time["grade"]
    assert found["grade_reason"] == f"a: {time['grade_reason']}"
    assert found["power_w"] == found["busy_power_w"] == own["power_w"]["value"]
    energy = own["power_w"]["value"] * time["value"] / 32e3
    assert found["energy_per_item_j"] == pytest.approx(energy)


def test_a_stage_that_cannot_fit_its_device_is_refused(adapting):
    stage = {"name": "a", "workload": {**NETWORK, "batch_size": 1 << 14}, "device": "l4"}
    answer = adapting.post("/v1/pipeline", json={"stages": [stage]})
    assert answer.status_code == 422
    assert "it cannot run as asked: " in answer.json()["detail"]


def test_a_language_model_takes_as_many_requests_as_it_answers_at_once(adapting):
    stage = {"name": "a", "workload": LLM, "device": "h100-sxm-80gb", "count": 2}
    found = ask(adapting, stage)
    own = predicted(adapting, LLM, "h100-sxm-80gb")["metrics"]
    assert found["latency_ms"]["value"] == own["request_latency_ms"]["value"]
    rate = 2 * own["requests_per_s"]["value"]
    assert found["throughput_per_s"]["value"] == pytest.approx(rate)
    assert found["busy_power_w"] == 2 * own["power_w"]["value"]


def test_a_design_runs_at_its_clock(adapting):
    stage = {"name": "a", **DESIGN, "clock_mhz": 200}
    found = ask(adapting, stage)
    cycles = predicted(adapting, DESIGN["workload"], DESIGN["device"])["metrics"]["latency_cycles"]
    assert found["latency_ms"]["value"] == pytest.approx(cycles["value"] / 200e3)


def test_figures_of_given_times_are_those_of_their_arithmetic(client):
    found = ask(client, GIVEN, OTHER, links=[LINK], rate_per_s=125)
    assert found["bottleneck"] == "a -> b"
    assert found["throughput_per_s"]["value"] == pytest.approx(250)
    assert found["latency_ms"]["value"] == pytest.approx(2 + 4 + 0.5 + 4)
    assert found["latency_at_rate_ms"]["value"] > found["latency_ms"]["value"]
    busy = {one["name"]: one["utilisation"] for one in found["stations"]}
    assert busy == pytest.approx({"a": 0.25, "b": 0.5 / 3, "a -> b": 0.5})
    assert found["power_w"] == pytest.approx(10 + 0.25 * 20 + 3 * 5 + 0.5 * 15)
    assert found["busy_power_w"] == pytest.approx(30 + 60)
    assert found["energy_per_item_j"] == pytest.approx(30 * 2e-3 + 20 * 4e-3)
    assert found["missing"] == {"usd_per_hour": "usd_per_hour is not known of b"}
    assert (found["grade"], found["throughput_per_s"]["low"]) == (None, None)
    headroom = {one["name"]: one["headroom"] for one in found["stations"]}
    assert headroom == pytest.approx({"a": 3, "b": 5, "a -> b": 1})


def test_beyond_the_throughput_there_is_no_time_and_nothing_is_busier_than_all_the_time(client):
    found = ask(client, GIVEN, OTHER, links=[LINK], rate_per_s=1000)
    assert found["latency_at_rate_ms"] is None
    assert "a -> b grows without bound" in found["missing"]["latency_at_rate_ms"]
    assert max(one["utilisation"] for one in found["stations"]) == 1.0
    assert found["stations"][-1]["headroom"] == pytest.approx(-0.75)
    assert PipelineOut.model_validate(found).text().endswith("too slow for the rate")


def test_an_alternative_is_the_pipeline_with_that_stage(adapting):
    first = OTHER | {"device": "xeon-platinum-8380"}
    stages = [first, {"name": "a", "workload": NETWORK, "device": "l4", "power_w": 50}]
    links = [{"from": "b", "to": "a", "bytes_per_item": 1e6, "bandwidth_gb_s": 3}]
    fpga = GIVEN | {"name": "fpga"}
    more = {"links": links, "rate_per_s": 100}
    found = ask(adapting, *stages, **more, alternatives={"a": ["t4", "t5", fpga], "b": ["t4"]})
    assert list(found["unanswered"]) == ["a: t5", "b: t4"]
    assert "give a workload or the time of a call" in found["unanswered"]["b: t4"]
    ranked = {own.pop("name"): own for own in found["alternatives"]}
    rates = [own["throughput_per_s"]["value"] for own in ranked.values()]
    assert rates == sorted(rates, reverse=True)
    t4 = {name: value for name, value in stages[1].items() if name != "power_w"} | {"device": "t4"}
    for name, stage in (("t4", t4), ("fpga", GIVEN)):
        own, asked = ranked[name], ask(adapting, first, stage, **more)
        differences, _ = own.pop("differences"), own.pop("stage")
        assert own == {name: asked[name] for name in own}
        change = asked["throughput_per_s"]["value"] - found["throughput_per_s"]["value"]
        assert differences["throughput_per_s"] == change
        assert differences.keys() == {"throughput_per_s", "latency_ms", "latency_at_rate_ms"} | {
            name
            for name in ("power_w", "busy_power_w", "energy_per_item_j", "usd_per_hour")
            if None not in (asked[name], found[name])
        }


NO_PLACE = {"stages": [GIVEN, {"name": "b", "workload": NETWORK}], "links": [LINK]}
FAULTS = {
    "cycle": ({"links": [LINK, LINK | {"from": "b", "to": "a"}]}, "links: ", "is a cycle"),
    "unknown": ({"links": [LINK | {"to": "c"}]}, "links.0.to: no stage 'c'; there are a, b"),
    "alternative": ({"alternatives": {"c": ["l4"]}, "links": [LINK]}, "alternatives.c: no stage"),
    "unconnected": ({"links": []}, "stages.0.name: no link joins 'a'"),
    "twice": ({"stages": [GIVEN, GIVEN]}, "stages: 'a' is there twice"),
    "no bandwidth": ({"links": [LINK | {"bandwidth_gb_s": 0}]}, "links.0.bandwidth_gb_s"),
    "none given": ({"links": [LINK | {"bandwidth_gb_s": None}]}, "links.0.bandwidth_gb_s: give"),
    "two links": ({"links": [LINK, LINK]}, "links: 'a -> b' is there twice"),
    "both": ({"stages": [GIVEN | {"workload": NETWORK}]}, "stages.0 (a): give a workload or"),
    "no device": (NO_PLACE, "stages.1 (b): device: name the device"),
    "empty": ({"stages": [{"name": "a"}]}, "stages.0 (a): give a workload"),
    "rate": (
        {"stages": [{"name": "a", "workload": LLM | {"concurrency": None, "requests_per_s": 3},
                     "device": "l4"}]},
        "stages.0 (a): workload.concurrency: give the requests",
    ),
    "clock": ({"stages": [{"name": "a", **DESIGN}]}, "stages.0 (a): ", "needs clock_mhz"),
    "device": ({"stages": [{"name": "a", "workload": NETWORK, "device": "l5"}]}, "No device named"),
    "shares": (
        {"stages": [GIVEN, OTHER, {"name": "c", "time_ms": 1}],
         "links": [LINK | {"share": 0.5}, LINK | {"to": "c"}, LINK | {"from": "b", "to": "c"}]},
        "links: c gets unequal shares",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_no_pipeline_is_one_line_that_names_the_field(adapting, name):
    changes, *said = FAULTS[name]
    body = {"stages": [GIVEN, OTHER]} | changes
    answer = adapting.post("/v1/pipeline", json=body)
    problem = problem_of(answer, 404 if name == "device" else 422, *said)
    assert "\n" not in problem["detail"]
    assert problem["errors"][0]["pointer"]


def test_every_door_gives_the_same_answer(adapting, home, monkeypatch, capsys, tmp_path):
    over_http = content_of(adapting.post("/v1/pipeline", json=EXAMPLE_PIPELINE))
    in_python = forerun.pipeline(**EXAMPLE_PIPELINE)
    assert in_python.to_dict() == over_http
    assert in_python.bottleneck in str(in_python)
    assert len(in_python.to_pandas()) == len(over_http["stations"])
    for file, write in (("chain.yaml", yaml.safe_dump), ("chain.json", json.dumps)):
        (tmp_path / file).write_text(write(EXAMPLE_PIPELINE))
        words = ["forerun", "pipeline", str(tmp_path / file), "--json"]
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as left:
            cli.main()
        assert not left.value.code
        assert json.loads(capsys.readouterr().out) == over_http
    with pytest.raises(InputError, match="rate_per_s"):
        forerun.pipeline(**EXAMPLE_PIPELINE | {"rate_per_s": -1})


@pytest.mark.parametrize(
    ("content", "said"),
    [("[]", "holds no object"), ("a: [", "line 2 is not YAML"), (None, "No such file")],
)
def test_a_file_that_is_no_question_is_one_line(home, monkeypatch, capsys, tmp_path, content, said):
    file = tmp_path / "chain.yaml"
    if content is not None:
        file.write_text(content + "\n")
    monkeypatch.setattr(sys, "argv", ["forerun", "pipeline", str(file)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    err = capsys.readouterr().err
    assert left.value.code == 2
    assert said in err and err.count("\n") == 1
