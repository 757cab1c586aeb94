"""Plans of serving: one question through every door, agreement with estimates, and commands."""

import json
from dataclasses import replace
from math import ceil, inf
from types import SimpleNamespace

import numpy as np
import pytest
import yaml

import forerun
from forerun.data.device import DeviceCatalog
from forerun.data.errors import DeadlineExceeded
from forerun.data.language_models.deployment import Engine, Parallelism, Pool
from forerun.data.language_models.traces import read_trace
from forerun.features.deadline import Deadline, within
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.answers.deployments.fleets import replayed
from forerun.models.answers.deployments.plans import PlanPricing
from forerun.models.answers.served_models import InUse
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from forerun.models.llm_serving.fleet import Autoscaling, Traffic, fleet_over_time
from forerun.models.llm_serving.plans import ServingLimits, Stock, units_of
from forerun.service.cli import app
from forerun.service.figures import digits
from forerun.service.schemas.llm.serving_plan import EXAMPLE_PLAN
from forerun.service.schemas.llm.serving_plan_answers import MixOut

FEW = {**EXAMPLE_PLAN, "model": "llama-3.1-8b", "devices": ["l40s", "h100-sxm-80gb"]}
LIMITS = ("ttft_ms", "tpot_ms", "request_latency_ms")
CATALOG = DeviceCatalog.load()
H100 = CATALOG.get("h100-sxm-80gb")


@pytest.fixture(scope="module")
def in_use_of_plans():
    return InUse(bundled(Scope(frozenset({"llm_deployment", "llm_serving"}))))


def asked(client, content, status=200):
    answer = client.post("/v1/llm/plan", json=content)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_one_plan_is_the_same_through_every_door(adapting, home, capsys):
    by_http = asked(adapting, {**FEW, "region": "france"})
    own = {name: value for name, value in FEW.items() if name != "model"}
    assert forerun.llm_plan(FEW["model"], **own, region="france").to_dict() == by_http
    words = ("--rate", 5, "--input-tokens", 2000, "--output-tokens", 300, "--ttft-ms", 1000)
    words = ("--request-rate", *words[1:], "--tpot-ms", 50, "--region", "france", "--json")
    called = ("llm", "plan", FEW["model"], "--device", "l40s,h100-sxm-80gb", *words)
    app([*map(str, called)], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == by_http


def figures(own):
    return [own[name] for name in ("value", "low", "high") if own[name] is not None]


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"risk": "value"},
        {"objective": "energy", "tpot_ms": 25},
        {"objective": "speed", "requests_per_s": 0.5},
        {"formats": ["fp8", "bf16"], "request_latency_ms": 9000},
        {"disaggregated": True, "objective": "devices"},
        {"input_variation": 0.5, "requests_per_s": 60},
    ],
    ids=str,
)
def test_estimates_say_what_a_plan_says(adapting, changes):
    """Each option, asked again by its request, has the same figures and keeps the limits."""
    plan = asked(adapting, {**FEW, **changes})
    assert plan["best"]
    end = "value" if plan["risk"] == "value" else "high"
    for one in (*plan["best"], *plan["front"]):
        answer = adapting.post("/v1/llm/estimate", json=one["request"])
        assert answer.status_code == 200, answer.text
        estimate = answer.json()
        assert estimate["metrics"].keys() == one["metrics"].keys()
        for name, own in one["metrics"].items():
            assert figures(estimate["metrics"][name]) == pytest.approx(figures(own), rel=1e-9)
        for name in LIMITS:
            if name in plan["most"]:
                assert estimate["metrics"][name][end] <= plan["most"][name] * (1 + 1e-9)
        capacity = estimate["deployment"]["capacity"]
        rate = one["request"]["requests_per_s"]
        assert rate <= capacity["low" if end == "high" else "requests_per_s"] * (1 + 1e-9)
        assert not any(d["severity"] == "refusal" for d in estimate["limit_details"])


def test_a_histogram_is_its_mean_and_variation(adapting):
    sizes = [
        {"input_tokens": 1000, "output_tokens": 200, "share": 3},
        {"input_tokens": 5000, "output_tokens": 600, "share": 1},
    ]
    lengths = ("input_tokens", "output_tokens")
    content = {name: value for name, value in FEW.items() if name not in lengths}
    traffic = asked(adapting, {**content, "sizes": sizes})["traffic"]
    assert traffic["input_tokens"] == pytest.approx(2000)
    assert traffic["output_tokens"] == pytest.approx(300)
    assert traffic["input_variation"] == pytest.approx(3**0.5 * 1000 / 2000)


def test_a_trace_has_rate_and_lengths(adapting):
    limits = {name: FEW[name] for name in ("model", "devices", "tpot_ms")}
    rows = [{"arrival_s": t / 4, "input_tokens": 500, "output_tokens": 50} for t in range(41)]
    traffic = asked(adapting, {**limits, "requests": rows})["traffic"]
    assert traffic["requests_per_s"] == pytest.approx(4.0)
    assert traffic["input_tokens"] == 500
    fault = asked(adapting, {**limits, "requests": rows, "input_tokens": 3}, 422)
    assert "follows from requests" in fault["detail"]


def test_devices_at_hand_and_budgets_are_kept(adapting):
    free = asked(adapting, FEW)
    few = {**FEW, "devices": [{"device": "l40s", "count": 2}, {"device": "h100", "count": 1}]}
    plan = asked(adapting, few)
    for one in plan["best"]:
        assert one["devices"] <= {"l40s": 2, "h100-sxm-80gb": 1}[one["device"]]
    dear = asked(adapting, {**FEW, "max_usd_per_hour": free["best"][0]["usd_per_hour"] / 2})
    assert dear["best"] == [] and dear["commands"] == {}
    assert dear["failed"]["usd_per_hour"] > 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"devices": ["epyc-9654"], "engine": {"name": "sglang"}}, "is a processor"),
        ({"devices": ["aws/g6.xlarge"]}, "name that GPU"),
        ({"devices": ["aws/m99.*"]}, "no instance type matches"),
        ({"devices": [{"device": "aws/m7i.*", "usd_per_device_hour": 1}]}, "price each"),
        ({"devices": ["l4", "l4"]}, "given twice"),
        ({"devices": ["p100-pcie-16gb"]}, "from compute capability 7.0 on"),
        ({"input_tokens": 1000000}, "the model takes 131,072"),
        ({"devices": [{"device": "rx-7900-xtx"}]}, "usd_per_device_hour"),
        ({"requests_per_s": None}, "rate of all requests"),
        ({"output_tokens": None}, "output_tokens is missing"),
        ({"formats": ["fp3"]}, "fp3"),
        ({"region": "atlantis"}, "united-states"),
        ({"tpot": 5}, "tpot"),
    ],
    ids=str,
)
def test_a_fault_is_one_line(client, changes, words):
    fault = asked(client, {**FEW, **changes}, 422)
    assert words in json.dumps(fault) and "\n" not in fault["detail"]


def test_formats_that_the_engine_does_not_run_are_not_searched_and_refused(adapting):
    """An FP8 checkpoint on A100 runs by its weights alone, and one on V100 does not."""
    devices = ["v100-sxm2-16gb", "a100-sxm-80gb"]
    own = {**FEW, "devices": devices, "formats": ["fp8", "bf16"], "ttft_ms": None, "tpot_ms": None}
    plan = asked(adapting, {**own, "kept": 20})
    tried = {(one["device"], one["format"]) for one in (*plan["best"], *plan["front"])}
    assert ("a100-sxm-80gb", "fp8") in tried
    assert ("v100-sxm2-16gb", "fp8") not in tried
    why = "vllm runs weights in fp8 from compute capability 7.5 on, and v100-sxm2-16gb has 7.0"
    assert plan["not_searched"] == [why]
    fault = asked(adapting, {**own, "devices": devices[:1], "formats": ["fp8"]}, 422)
    assert fault["detail"] == f"{why}."
    four_bits = {**own, "formats": ["awq"]}
    of_awq = "vllm runs weights of AWQ from compute capability 7.5 on, and v100-sxm2-16gb has 7.0"
    plan = asked(adapting, four_bits)
    assert {one["device"] for one in plan["best"]} == {"a100-sxm-80gb"}
    assert plan["not_searched"] == [of_awq]
    assert asked(adapting, {**four_bits, "devices": devices[:1]}, 422)["detail"] == f"{of_awq}."
    content = {"model": {"name": FEW["model"], "quantization": "fp8"}, "device": devices[0]}
    content |= {"requests_per_s": 1, "input_tokens": 500, "output_tokens": 100}
    answer = adapting.post("/v1/llm/estimate", json=content).json()
    assert {"message": why, "severity": "refusal"}.items() <= answer["limit_details"][0].items()


def test_formats_are_one_option_by_two_names(home, capsys):
    words = ("llm", "plan", "llama-3.1-8b", "--device", "l40s", "--isl", "500", "--osl", "100")
    shown = []
    for name in ("--format", "--quantization"):
        app([*words, "--request-rate", "1", name, "fp8,bf16", "--json"], standalone_mode=False)
        shown.append(json.loads(capsys.readouterr().out))
    assert shown[0] == shown[1]
    assert {one["format"] for one in shown[0]["best"]} == {"fp8", "bf16"}


def test_the_command_prints_one_form_alone(home, capsys):
    words = ("llm", "plan", "llama-3.1-8b", "--device", "h100", "--request-rate", "2")
    words += ("--input-tokens", "500", "--output-tokens", "100", "--as")
    app([*words, "sglang"], standalone_mode=False)
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first == "# 1 h100-sxm-80gb, 6.88 USD an hour"
    assert last.startswith("python3 -m sglang.launch_server --model-path")
    with pytest.raises(forerun.InputError, match=r"cannot be written for slurm.*vllm"):
        app([*words, "slurm"], standalone_mode=False)


@pytest.mark.parametrize(("memory", "given", "written"), [(24, None, 32768), (80, None, None),
                                                           (80, 8000, 8000)])  # fmt: skip
def test_a_server_is_told_a_context_that_its_cache_holds(adapting, memory, given, written):
    """VLLM does not start where its cache is smaller than the context of the model."""
    device = "l4" if memory == 24 else "h100"
    traffic = {"requests_per_s": 0.5, "input_tokens": 1000, "output_tokens": 200}
    own = {"model": "llama-3.1-8b", "devices": [device], **traffic}
    plan = asked(adapting, {**own, "engine": {"max_request_tokens": given}})
    option = f"--max-model-len {written}"
    assert (option in plan["commands"]["vllm"]) == (written is not None)
    assert any("at most 32,768 tokens" in line for line in plan["chosen"]) == (written == 32768)


@pytest.mark.parametrize(
    ("words", "said", "field"),
    [
        (("--device", "rx-7900-xtx"), "give --device NAME@USD", "usd_per_device_hour"),
        (("--region", "atlantis"), "give --grid-g-co2-per-kwh", "grid_g_co2_per_kwh"),
        (("--device", "l4=x"), "count of --device: Input should be", "devices.0.count"),
    ],
)
def test_messages_name_options_on_the_command_line_and_fields_over_http(
    client, home, words, said, field
):
    traffic = ("--request-rate", "1", "--isl", "500", "--osl", "100")
    with pytest.raises(forerun.InputError) as fault:
        app(["llm", "plan", "llama-3.1-8b", *traffic, *words], standalone_mode=False)
    assert said in str(fault.value) and field not in str(fault.value)
    changes = {"devices": [{"device": "rx-7900-xtx"}]}
    changes = {"region": "atlantis"} if words[0] == "--region" else changes
    changes = {"devices": [{"device": "l4", "count": "x"}]} if "=" in words[1] else changes
    assert field in asked(client, {**FEW, **changes}, 422)["detail"]


def test_a_search_ends_when_nobody_waits_for_it(home):
    own = {"requests_per_s": 1, "input_tokens": 1000, "output_tokens": 100, "devices": "h100"}
    with within(Deadline.after(-1.0)), pytest.raises(DeadlineExceeded):
        forerun.llm_plan("llama-3.1-8b", **own)


def test_traffic_that_the_engine_refuses_has_no_plan(home):
    own = {"requests_per_s": 1, "input_tokens": 1000, "devices": "h100"}
    with pytest.raises(forerun.InputError, match=r"1,200 tokens .* longer than the 1,100"):
        forerun.llm_plan(
            "llama-3.1-8b", output_tokens=200, engine={"max_request_tokens": 1100}, **own
        )
    with pytest.raises(forerun.InputError, match="no time per further token"):
        forerun.llm_plan("llama-3.1-8b", output_tokens=1, tpot_ms=50, **own)


def test_the_text_says_winner_counts_and_why_the_others_are_worse(home):
    own = {name: value for name, value in FEW.items() if name != "model"}
    plan = forerun.llm_plan(FEW["model"], **own)
    text = str(plan)
    for words in ("options keep all limits", "each replica: vllm serve", "more USD an hour"):
        assert words in text
    assert {"device", "replicas", "usd_per_hour", "tpot_ms_high"} <= set(plan.to_pandas())


def test_laws_hold_by_the_predictors_of_the_release(adapting):
    """Looser limits and a wider choice never cost more, more traffic never less."""

    def costs(several):
        plans = [asked(adapting, {**FEW, **changes}) for changes in several]
        found = [plan["best"][0]["usd_per_hour"] if plan["best"] else inf for plan in plans]
        assert min(found) < inf
        return found

    limits = costs({"tpot_ms": most} for most in (5, 15, 25, 50, 200))
    assert limits == sorted(limits, reverse=True)
    traffic = costs({"requests_per_s": rate} for rate in (0.5, 5, 20, 80))
    assert traffic == sorted(traffic)
    names = ["a100-sxm-80gb", "h100-sxm-80gb", "l40s", "l4"]
    choice = costs({"devices": names[:number]} for number in range(1, 5))
    assert choice == sorted(choice, reverse=True)


MIXED = {
    **{"model": "llama-3.1-8b", "requests_per_s": 6, "tpot_ms": 80, "mix": True, "kept": 1},
    "devices": [{"device": "l4", "count": 4}, "h100-sxm-80gb"],
    "sizes": [
        {"input_tokens": 200, "output_tokens": 100, "share": 0.8},
        {"input_tokens": 8000, "output_tokens": 400, "share": 0.2},
    ],
}


def test_a_mix_serves_all_sizes_within_the_devices_at_least_price(adapting, home, capsys):
    found = asked(adapting, MIXED)
    own = found["mix"]
    assert own["parts"]
    rates = {}
    for part in own["parts"]:
        for size in part["sizes"]:
            tokens = size["input_tokens"]
            rates[tokens] = rates.get(tokens, 0.0) + size["requests_per_s"]
    assert rates == pytest.approx({200.0: 4.8, 8000.0: 1.2})
    assert sum(part["usd_per_hour"] for part in own["parts"]) == pytest.approx(own["usd_per_hour"])
    assert sum(part["devices"] for part in own["parts"] if part["device"] == "l4") <= 4
    singles = [cost for cost in own["single_types"].values() if cost is not None]
    assert own["usd_per_hour"] <= min(singles)
    assert own["saving"] == pytest.approx(1.0 - own["usd_per_hour"] / min(singles))
    words = {name: value for name, value in MIXED.items() if name != "model"}
    plan = forerun.llm_plan("llama-3.1-8b", **words)
    assert plan.to_dict() == found
    cheaper = own["usd_per_hour"] < found["best"][0]["usd_per_hour"]
    assert ("mix of types" if cheaper else "no mix is cheaper") in str(plan)
    called = ("llm", "plan", "llama-3.1-8b", "--device", "l4=4,h100-sxm-80gb", "--mix", "--json")
    called += ("--request-rate", "6", "--tpot-ms", "80", "--kept", "1")
    called += ("--size", "200,100,0.8", "--size", "8000,400,0.2")
    app([*called], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == found


TAILS = ("ttft_p99_ms", "tpot_p99_ms", "request_latency_p99_ms")


def test_percentiles_are_those_of_the_event_model_and_are_kept(adapting, home, capsys):
    """Of drawn requests and of a trace; varied lengths have later ones, and need no less."""
    own = {**FEW, "ttft_ms": None, "input_variation": 1.0, "output_variation": 0.5, "kept": 2}
    own["ttft_p99_ms"] = 600
    plan = asked(adapting, own)
    for one in plan["best"]:
        mean = one["metrics"]["ttft_ms"]
        assert mean["value"] < one["p99_ms"]["ttft_ms"] * mean["high"] / mean["value"] <= 600
        assert set(one["p99_ms"]) == {"ttft_ms", "tpot_ms", "request_latency_ms"}
    free = asked(adapting, {**own, "ttft_p99_ms": None})
    assert free["best"][0]["usd_per_hour"] <= plan["best"][0]["usd_per_hour"]
    assert free["best"][0]["p99_ms"] == {}
    none = asked(adapting, {**own, "ttft_p99_ms": 1})
    assert none["best"] == [] and none["failed"]["ttft_ms"] > 0
    called = ("llm", "plan", FEW["model"], "--device", "h100-sxm-80gb", "--trace")
    called += ("splitwise_conv", "--request-rate", "4", "--ttft-p99-ms", "2000", "--kept", "1")
    app([*called], standalone_mode=False)
    assert "99th percentiles of the first by the event model" in capsys.readouterr().out


@pytest.mark.parametrize("name", TAILS)
def test_percentiles_that_are_not_answered_are_refused_by_their_field(adapting, name):
    assert name in str(asked(adapting, {**MIXED, name: 9000}, 422))
    for changes in ({"engine": {"name": "llama.cpp"}}, {"devices": ["h100", "epyc-9654"]}):
        fault = asked(adapting, {**FEW, **changes, name: 9000}, 422)
        assert name in str(fault["errors"]) and "only on GPUs" in fault["detail"]


@pytest.mark.parametrize(
    ("changes", "where"),
    [({"objective": "energy"}, "objective"), ({"max_power_w": 900}, "max_power_w")],
)
def test_what_a_mix_cannot_keep_is_refused(adapting, changes, where):
    assert where in str(asked(adapting, {**MIXED, **changes}, 422))


TRACED = {
    **{"model": "llama-3.1-8b", "devices": ["h100-sxm-80gb"], "tpot_ms": 25, "kept": 1},
    **{"requests_per_s": 40, "window_s": 50, "startup_s": 20, "region": "france", "cap_kw": 100},
    "requests": [
        {"arrival_s": 0.25 * t + 0.2 * (t % 100), "input_tokens": 500 + t, "output_tokens": 50}
        for t in range(0, 800, 2)
    ],
}


def test_a_plan_over_time_is_the_same_through_every_door(adapting, home, tmp_path, capsys):
    found = asked(adapting, TRACED)
    fleet, first = found["fleet"], found["best"][0]
    assert set(fleet["keeps"]) == {True} and fleet["missed_share"] == 0
    rates = fleet["requests_per_s"]
    assert sum(rates) / len(rates) == pytest.approx(40)
    hours = fleet["window_s"] * len(rates) / 3600
    devices = first["devices"] // first["replicas"]
    price = first["usd_per_hour"] / first["devices"]
    assert fleet["fixed"]["device_hours"] == pytest.approx(
        hours * devices * fleet["fixed_replicas"]
    )
    assert f"replicas: {fleet['fixed_replicas']}\n" in found["commands"]["kubernetes"]
    for own in (fleet["scaled"], fleet["fixed"]):
        assert own["usd"] == pytest.approx(own["device_hours"] * price)
        assert own["kg_co2"] == pytest.approx(own["kwh"] * found["grid"]["g_co2_per_kwh"] / 1e3)
    mean_kw = sum(fleet["power_kw"]) / len(rates)
    assert fleet["scaled"]["kwh"] == pytest.approx(hours * mean_kw)
    assert fleet["cap"]["by_design_power"] == 100_000 // (8 * 700) <= fleet["cap"]["servers"]
    own = {name: value for name, value in TRACED.items() if name != "model"}
    plan = forerun.llm_plan("llama-3.1-8b", **own)
    assert plan.to_dict() == found
    for words in ("over time", "event model", "under 100 kW"):
        assert words in str(plan)
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join(map(json.dumps, TRACED["requests"])))
    words = "--tpot-ms 25 --kept 1 --request-rate 40 --window-s 50 --startup-s 20 --cap-kw 100"
    called = ("llm", "plan", "llama-3.1-8b", "--device", "h100-sxm-80gb", "--trace", str(file))
    app([*called, *words.split(), "--region", "france", "--json"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out) == found


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"requests": None, "input_tokens": 9, "output_tokens": 9}, "window_s is of a trace"),
        ({"window_s": None}, "is of a plan over time: give window_s too"),
        ({"window_s": 0.01}, "from 1 to 2,016 are planned"),
        ({"cap_risk": 0.6}, "cap_risk"),
    ],
    ids=str,
)
def test_a_fault_of_a_plan_over_time_is_one_line(adapting, changes, words):
    fault = asked(adapting, {**TRACED, **changes}, 422)
    assert words in json.dumps(fault) and "\n" not in fault["detail"]


def test_looser_limits_are_kept_by_more_of_the_replayed_requests(in_use_of_plans):
    """Of the same fleet; and only in windows whose limits hold."""
    requests = read_trace(TRACED["requests"])
    load = replace(requests.load(), requests_per_s=40.0)
    unit = next(
        units_of(named_language_model("meta-llama/Llama-3.1-8B"), load, Engine(), Stock(H100))
    )
    limits, pricing = ServingLimits({"tpot_ms": 25.0}), PlanPricing(in_use_of_plans)
    fleet = fleet_over_time(
        unit, Traffic.of(requests, 50.0, load), pricing, limits, Autoscaling(60.0, 100.0)
    )
    checks = [replayed(fleet, {"tpot_ms": most, "ttft_ms": 20 * most}, in_use_of_plans, most=500)
              for most in (0.1, 6.0, 10.0, 25.0, 1e6)]  # fmt: skip
    kept = [check.kept for check in checks]
    assert kept == sorted(kept) and kept[0] == 0.0 < kept[2] < kept[-1] == 1.0
    for check in checks:
        assert check.low <= check.kept <= check.high and check.requests == checks[0].requests
    windows = [check.windows_kept for check in checks]
    assert windows == sorted(windows) and windows[-1] == 1.0
    some = replace(fleet, missed=np.arange(len(fleet.missed)) > 0)
    assert 0 < replayed(some, {}, in_use_of_plans, most=500).requests < checks[0].requests
    nothing = replace(fleet, missed=np.ones(len(fleet.missed), dtype=bool))
    assert replayed(nothing, {}, in_use_of_plans, most=500) is None
    stages = replace(unit.query.deployment, pool=Pool(Parallelism(pipeline=2)))
    piped = replace(unit, query=replace(unit.query, workload=stages))
    assert replayed(replace(fleet, unit=piped), {}, in_use_of_plans, most=500) is None


CHAT = {
    "name": "chat",
    **{"requests_per_s": 10, "input_tokens": 500, "output_tokens": 200},
    "limits": {"ttft_p99_ms": 1000},
}
BATCH = {
    "name": "batch",
    **{"requests_per_s": 1, "input_tokens": 8000, "output_tokens": 300},
    "limits": {"request_latency_p95_ms": 60000},
}
OF_CLASSES = {"model": "llama-3.1-8b", "devices": ["l40s", "h100-sxm-80gb"], "kept": 1}


def test_each_class_of_requests_has_its_own_limits(adapting, home, capsys):
    """A further class never makes a plan cheaper, and what fails is named by class and limit."""
    plan = asked(adapting, {**OF_CLASSES, "classes": [CHAT, BATCH]})
    (first, *_) = plan["best"]
    traffic = plan["traffic"]
    assert traffic["requests_per_s"] == 11
    assert traffic["input_tokens"] == pytest.approx((10 * 500 + 8000) / 11)
    assert traffic["input_variation"] > 1
    own = first["classes"]
    assert own["chat"]["ttft_p99_ms"] < own["batch"]["ttft_p99_ms"]
    high = {n: m["high"] / m["value"] for n, m in first["metrics"].items() if n in LIMITS}
    assert own["chat"]["ttft_p99_ms"] * high["ttft_ms"] <= 1000
    assert own["batch"]["request_latency_p95_ms"] * high["request_latency_ms"] <= 60000
    for one in (CHAT, BATCH):
        alone = asked(adapting, {**OF_CLASSES, "classes": [one]})["best"][0]
        assert alone["usd_per_hour"] <= first["usd_per_hour"]
    tight = {**BATCH, "limits": {"ttft_p95_ms": 10}}
    none = asked(adapting, {**OF_CLASSES, "classes": [CHAT, tight]})
    assert none["best"] == [] and none["failed"]["batch.ttft_ms"] > 0
    words = ("chat,10,500,200,ttft_p99_ms=1000", "batch,1,8000,300,ttft_p95_ms=10")
    called = ("llm", "plan", "llama-3.1-8b", "--device", "l40s,h100-sxm-80gb", "--kept", "1")
    app([*called, "--class", words[0], "--class", words[1]], standalone_mode=False)
    said = capsys.readouterr().out
    assert "exceed the limit on batch: 95th percentile of the time to first token" in said


@pytest.mark.parametrize("limits", [{"ttft_p95_ms": 10}, {"ttft_ms": 9, "ttft_p95_ms": 10}])
def test_a_mean_above_the_limit_of_a_percentile_is_said_as_such(home, limits):
    """With the figure of the mean and the limit that it exceeds."""
    plan = forerun.llm_plan(
        "llama-3.1-8b", devices=["l40s"], classes=[{**CHAT, "limits": limits}]
    ).content
    miss = plan.misses[0]
    high = digits(miss.metrics["ttft_ms"].high)
    mean = f"chat: time to first token up to {high} ms (limit 9)"
    if len(limits) == 1:
        limit = "chat: 95th percentile of the time to first token"
        mean = f"{limit}: already the mean is up to {high} ms (limit 10)"
    assert miss.missed(plan.most, plan.risk) == [mean]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"requests_per_s": 3}, "requests_per_s follows from classes"),
        ({"input_tokens": 3}, "input_tokens follows from classes"),
        ({"trace": "splitwise_conv"}, "give one of trace and classes"),
        ({"mix": True}, "classes is not kept by a mix"),
        ({"classes": [CHAT, CHAT]}, "two of classes have the name chat"),
        (
            {"classes": [{**CHAT, "limits": {"ttft_p50_ms": 1}}]},
            "ttft_p50_ms is no limit: there are",
        ),
        (
            {"classes": [{**CHAT, "limits": {"ttft_ms": 1000, "ttft_p99_ms": 10}}]},
            "chat: ttft_p99_ms 10 is below ttft_ms 1000, but a 99th percentile is above the mean",
        ),
        (
            {"classes": [{**CHAT, "limits": {"tpot_p95_ms": 20, "tpot_p99_ms": 10}}]},
            "chat: tpot_p99_ms 10 is below tpot_p95_ms 20, but a 99th percentile is above the 95th",
        ),
        ({"engine": {"name": "llama.cpp"}}, "Percentiles are supported only on GPUs"),
        (
            {"classes": [{**CHAT, "output_tokens": 1, "limits": {"tpot_p95_ms": 9}}]},
            "An answer of one token has no time per further token",
        ),
        ({"classes": [CHAT, {**BATCH, "input_tokens": 1e6}]}, "the model takes 131,072"),
    ],
    ids=lambda own: next(iter(own)) if isinstance(own, dict) else "",
)
def test_classes_that_contradict_a_plan_are_refused(adapting, changes, words):
    own = {**OF_CLASSES, "classes": [CHAT, BATCH], **changes}
    assert words in asked(adapting, own, 422)["detail"]


def drafted(tokens, acceptance, method="ngram", **more):
    return {"method": method, "tokens": tokens, "acceptance": acceptance, **more}


def test_drafts_are_tried_next_to_none_and_never_win_where_none_are_accepted(
    adapting, home, capsys
):
    own = {**FEW, "tpot_ms": 30, "kept": 8}
    free = asked(adapting, own)
    none = asked(adapting, {**own, "drafts": [drafted(2, 0), drafted(4, 0)]})
    assert none["searched"] > free["searched"]
    first = none["best"][0]
    assert first["engine"]["draft_tokens"] == 0
    assert first["usd_per_hour"] == free["best"][0]["usd_per_hour"]
    head = drafted(3, 0.8, "eagle", model="org/head")
    good = asked(adapting, {**own, "drafts": [head, drafted(1, 0.1)]})
    best = min(good["best"], key=lambda one: one["metrics"]["request_latency_ms"]["value"])
    assert best["engine"]["draft_tokens"] == 3
    assert good["best"][0]["usd_per_hour"] <= first["usd_per_hour"]
    called = ("llm", "plan", FEW["model"], "--device", "l40s,h100-sxm-80gb", "--objective", "speed")
    called += ("--request-rate", "0.5", "--isl", "500", "--osl", "300", "--draft")
    app([*called, "eagle,3,0.8,org/head", "--as", "vllm"], standalone_mode=False)
    said = capsys.readouterr().out
    assert "3 drafted (acceptance 0.8)" in said and '"model": "org/head"' in said
    assert '"method": "eagle", "num_speculative_tokens": 3' in said
    for one in good["best"]:
        estimate = adapting.post("/v1/llm/estimate", json=one["request"]).json()
        latency = estimate["metrics"]["request_latency_ms"]["value"]
        assert latency == pytest.approx(one["metrics"]["request_latency_ms"]["value"], rel=1e-9)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"drafts": [drafted(1, 0.5, "mtp")]}, "has no layers that draft (mtp)"),
        ({"drafts": [drafted(1, 0.5, "eagle")]}, "eagle needs a model, the checkpoint of a head"),
        ({"drafts": [drafted(1, 0.5, model="org/head")]}, "ngram has no model"),
        ({"drafts": [drafted(1, 0.5), drafted(1, 0.5)]}, "have the same tokens and acceptance"),
        ({"drafts": [drafted(0, 0.5)]}, "greater than or equal to 1"),
        (
            {"drafts": [drafted(1, 0.5)], "engine": {"name": "llama.cpp"}},
            "Speculative decoding is supported with vllm, sglang and trtllm on GPUs",
        ),
    ],
    ids=str,
)
def test_drafts_that_cannot_be_are_refused(adapting, changes, words):
    assert words in asked(adapting, {**FEW, **changes}, 422)["detail"]


def test_a_mix_takes_spot_devices_and_moves_as_few_as_it_may(adapting, home, capsys):
    l4 = {"device": "l4", "spot_usd_per_device_hour": 0.1, "spot_count": 30}
    plan = asked(adapting, {**MIXED, "devices": [l4, "h100-sxm-80gb"]})
    spot, lines = plan["mix"], plan["commands"]["vllm"].splitlines()
    assert len(lines) == 2 * len(spot["parts"]) and plan["not_written"]["kubernetes"]
    for part, said, command in zip(spot["parts"], lines[::2], lines[1::2], strict=True):
        assert part["device"] in said and ("spot" in said) == part["spot"]
        tensor = part["pool"]["parallelism"]["tensor"]
        assert command.startswith("vllm serve") and f"--tensor-parallel-size {tensor}" in command
    free = asked(adapting, {**MIXED, "devices": ["l4", "h100-sxm-80gb"]})
    assert spot["usd_per_hour"] < free["mix"]["usd_per_hour"] and spot["changes"] is None
    own = [part for part in spot["parts"] if part["spot"]]
    assert 0 < sum(part["devices"] for part in own) <= 30
    assert sum(part["usd_per_hour"] for part in own) == pytest.approx(
        0.1 * sum(part["devices"] for part in own)
    )
    called = ("llm", "plan", "llama-3.1-8b", "--mix", "--request-rate", "6", "--tpot-ms", "80")
    called += ("--size", "200,100,0.8", "--size", "8000,400,0.2", "--device")
    runs = "l4:spot=0.1:spot_count=30,h100-sxm-80gb:current=1"
    for change, said in ((("--change-cost", "50"), "no change"), (("--max-changes", "99"), "+")):
        app([*called, runs, *change], standalone_mode=False)
        assert f"against what runs now: {said}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"change_cost": 1}, "change_cost is of a mix: give mix too"),
        ({"max_changes": 1}, "max_changes is of a mix: give mix too"),
        ({"devices": [{"device": "l4", "current": 2}]}, "devices has current, which is of a mix"),
    ],
    ids=str,
)
def test_spot_devices_and_changes_are_of_mixes(client, changes, words):
    assert words in asked(client, {**FEW, **changes}, 422)["detail"]


@pytest.mark.parametrize("changes", [{}, {"ttft_p99_ms": 1500}], ids=str)
def test_a_replica_scales_by_the_rate_with_which_it_keeps_the_limits(adapting, changes):
    """At the rate of the plan its replicas are wanted, and no more."""
    plan = asked(adapting, {**FEW, "requests_per_s": 40, "kept": 1, **changes})
    first = plan["best"][0]
    rules = yaml.safe_load(plan["commands"]["prometheus"])["groups"][0]["rules"]
    by = {one["labels"].get("by"): float(one["expr"].rpartition("/")[2]) for one in rules[:3]}
    assert ceil(40 / by["requests"] - 1e-6) == first["replicas"]
    assert by["prompts"] == pytest.approx(2000 * by["requests"])
    assert by["answers"] == pytest.approx(300 * by["requests"])


def test_costs_of_one_type_are_said_to_be_with_default_schedulers():
    """A tuned scheduler may cost less in the table above."""
    part = SimpleNamespace(line=lambda: "2 l4")
    fields = {"usd_per_hour": 13.76, "devices": 2, "single_types": {"l4": 17.8}, "changes": None}
    for saving, share in ((0.14, ", 14 % less than one type"), (0.001, ""), (None, "")):
        lines = MixOut.model_construct(parts=[part], saving=saving, **fields).lines()
        assert lines[0] == f"mix of types: 13.76 USD an hour{share}"
        assert "alone (with default schedulers, limits kept for each size): l4 17.8" in lines[1]
