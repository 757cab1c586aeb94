"""What plans of serving cannot do is said: devices, forms, caps, grids and traces, and why."""

import json

import pytest

import forerun
from forerun.data.device import DeviceCatalog
from forerun.service.cli import app
from tests.service.answers.llm.test_planning import FEW, TRACED, asked, home

__all__ = ["home"]
CATALOG = DeviceCatalog.load()
TRAFFIC = ("--request-rate", "5", "--isl", "2000", "--osl", "300")
PLAN = ("llm", "plan", FEW["model"])
SHORT = {"requests_per_s": 2, "input_tokens": 500, "output_tokens": 100}


def refused(words):
    """What the command line says."""
    with pytest.raises(forerun.InputError) as fault:
        app([*words], standalone_mode=False)
    return str(fault.value)


def pointers(fault):
    return [one["pointer"] for one in fault["errors"]]


@pytest.mark.parametrize(
    ("devices", "objective", "words"),
    [
        (["gaudi3"], "devices", "gaudi3: it is of kind npu"),
        (["tpu-v5e", "gaudi3"], "devices", "tpu-v5e: it is of kind npu"),
        (["h100"], "vcpus", "h100-sxm-80gb: only instance types of clouds have vCPUs"),
        (
            ["rx-7900-xtx"],
            "price",
            "7900-xtx: no price is known: give usd_per_device_hour",
        ),
        (["epyc-9654"], "energy", "epyc-9654: no power is known"),
    ],
)
def test_devices_none_of_which_can_be_compared_are_refused_with_the_reason(
    adapting, home, devices, objective, words
):
    content = {**FEW, "devices": devices, "objective": objective, "tpot_ms": None, "ttft_ms": None}
    fault = asked(adapting, content, 422)
    assert words in fault["detail"] and pointers(fault) == ["#/devices"]
    line = refused((*PLAN, *TRAFFIC, "--device", ",".join(devices), "--objective", objective))
    said = words.replace("usd_per_device_hour", "--device NAME@USD")
    assert said in line and "--device" in line


@pytest.mark.parametrize(
    ("device", "changes", "words"),
    [
        ({"device": "gaudi3", "usd_per_device_hour": 1}, {}, "No predictor answers"),
        ({"device": "epyc-9654", "usd_per_device_hour": 1}, {"max_power_w": 1e6}, "power"),
        ("radeon-rx-7900-xtx", {"objective": "devices", "max_usd_per_hour": 99}, "no price"),
    ],
)
def test_a_device_that_cannot_be_compared_is_named_next_to_the_plan_of_others(
    adapting, device, changes, words
):
    own = {**FEW, "devices": [device, "l40s"], "tpot_ms": 500, "ttft_ms": None, **changes}
    plan = asked(adapting, own)
    name = device if isinstance(device, str) else device["device"]
    assert {one["device"] for one in plan["best"]} == {"l40s"}
    (line,) = [line for line in plan["not_searched"] if name in line]
    assert words in line


def test_what_mends_a_plan_without_options_is_what_failed(home):
    own = {"requests_per_s": 2, "input_tokens": 500, "output_tokens": 100}
    small = str(forerun.llm_plan("llama-3.1-70b", devices=["l4"], formats=["bf16"], **own,
                                 tpot_ms=1))  # fmt: skip
    assert "loosen a limit" in small and "formats or devices with more memory" in small
    few = forerun.llm_plan("llama-3.1-70b", devices=[{"device": "h100", "count": 1}], **own)
    assert "nothing keeps all limits: add formats or devices with more memory" in str(few)
    assert "loosen" not in str(few)


@pytest.mark.parametrize(
    ("changes", "form", "why"),
    [
        (
            {"devices": [{"device": "epyc-9654", "usd_per_device_hour": 1}], **SHORT},
            "kubernetes",
            "GPUs of nvidia or amd",
        ),
        ({"engine": {"name": "sglang"}}, "llmisvc", "templates start vllm"),
        ({"engine": {"name": "trtllm"}}, "kserve", "manifests are of vllm and sglang"),
        ({}, "sglang", "the plan is for vllm: ask for one for sglang"),
        (
            {"model": "llama-3.1-405b", "devices": ["a100-sxm-80gb"], "requests_per_s": 0.5},
            "kubernetes",
            "1 worker on 2 servers of 8 GPUs",
        ),
    ],
)
def test_a_form_in_which_a_plan_is_not_written_has_a_reason(adapting, home, changes, form, why):
    content = {**FEW, "ttft_ms": None, "tpot_ms": None, **changes}
    plan = asked(adapting, content)
    assert why in plan["not_written"][form]
    assert not plan["not_written"].keys() & plan["commands"].keys()
    own = {name: value for name, value in content.items() if name != "model"}
    with pytest.raises(forerun.InputError) as fault:
        forerun.llm_plan(content["model"], **own).content.written_as(form)
    assert why in str(fault.value) and ", ".join(plan["commands"]) in str(fault.value)


def test_a_fleet_that_exceeds_its_cap_says_so(adapting, home):
    """By the predicted power, by the design power alone, or not at all."""
    plan = asked(adapting, TRACED)
    fleet, first = plan["fleet"], plan["best"][0]
    device = CATALOG.get(first["device"])
    design = max(fleet["replicas"]) * first["devices"] // first["replicas"] * device.tdp_w / 1e3
    assert fleet["cap"]["design_kw"] == pytest.approx(design)
    most = max(fleet["power_kw"])
    assert most < design
    own = {name: value for name, value in TRACED.items() if name != "model"}
    for cap_kw, word in ((most * 0.99, "exceeds"), (most * 1.01, "may exceed"), (design, "keeps")):
        text = str(forerun.llm_plan(TRACED["model"], **{**own, "cap_kw": cap_kw}))
        assert f"the fleet {word} {cap_kw:,.4g} kW" in text


def test_windows_that_are_not_as_asked_are_said(adapting):
    plan = asked(adapting, {**TRACED, "window_s": 41})
    used = plan["fleet"]["window_s"]
    assert f"windows of {used:,.4g} s in place of 41: equal parts of the trace" in plan["chosen"]
    again = asked(adapting, {**TRACED, "window_s": used})
    assert not any("in place of" in line for line in again["chosen"])


BOTH = {"region": "france", "grid_g_co2_per_kwh": 30}
TRAINED = {"model": "llama-3.1-8b", "device": "h100", "devices": 8}


@pytest.mark.parametrize(
    ("path", "content", "words"),
    [
        ("/v1/llm/plan", FEW, (*PLAN, *TRAFFIC)),
        ("/v1/training/plan", TRAINED, ("train-plan", "llama-3.1-8b", "--devices", "8")),
        ("/v1/training/estimate", TRAINED, ("train-step", "llama-3.1-8b", "--devices", "8")),
    ],
)
def test_one_rule_of_the_electricity_holds_wherever_a_region_is(
    adapting, home, path, content, words
):
    answer = adapting.post(path, json={**content, **BOTH})
    assert answer.status_code == 422, answer.text
    assert "give region or grid_g_co2_per_kwh, not both" in answer.json()["detail"]
    assert pointers(answer.json()) == ["#/region"]
    line = refused((*words, "--device", "h100", "--region", "france", "--grid-g-co2-per-kwh", "30"))
    assert "give --region or --grid-g-co2-per-kwh, not both" in line


def test_carbon_without_electricity_is_refused_and_with_it_is_ranked(adapting, home):
    fault = asked(adapting, {**FEW, "objective": "carbon"}, 422)
    assert "give region or grid_g_co2_per_kwh too" in fault["detail"]
    assert pointers(fault) == ["#/objective"]
    line = refused((*PLAN, *TRAFFIC, "--objective", "carbon"))
    assert "give --region or --grid-g-co2-per-kwh too" in line
    grams = [
        one["g_co2_per_million_tokens"]
        for one in asked(adapting, {**FEW, "objective": "carbon", "region": "france"})["best"]
    ]
    assert grams and None not in grams


def test_messages_about_traces_name_the_field_and_the_option(adapting, home, tmp_path):
    own = {"model": FEW["model"], "devices": ["h100"]}
    row = {"arrival_s": 0, "input_tokens": 5, "output_tokens": 6}
    bad = {"arrival_s": 1, "input_tokens": 5}
    faults = [
        ({"trace": "splitwise"}, "#/trace", "there are splitwise_code"),
        ({"requests": [row, bad]}, "#/requests/1", "output_tokens is missing"),
        ({"requests": [row]}, "#/requests_per_s", "give requests_per_s too"),
        ({"requests": [row], "requests_per_s": 1, "window_s": 9}, "#/window_s", "0 windows"),
    ]
    for changes, where, words in faults:
        fault = asked(adapting, {**own, **changes}, 422)
        assert words in fault["detail"] and pointers(fault) == [where]
    file = tmp_path / "trace.jsonl"
    call = (*PLAN, "--device", "h100", "--trace")
    assert refused((*call, "splitwise")).startswith("--trace: ")
    assert "--trace" in refused((*call, str(tmp_path / "none.jsonl")))
    file.write_text(f"{json.dumps(row)}\n{json.dumps(bad)}\n")
    line = refused((*call, str(file)))
    assert line.startswith("--trace: ") and "line 2): output_tokens is missing" in line
    file.write_text(json.dumps(row))
    assert "give --requests-per-s too" in refused((*call, str(file)))
    assert "--isl follows from --trace" in refused((*call, str(file), "--isl", "9"))
    words = (*call, str(file), "--request-rate", "1", "--window-s", "9")
    assert refused(words).startswith("--window-s: 0 windows")
    words = (*PLAN, *TRAFFIC, "--window-s", "9")
    assert refused(words).startswith("--window-s is of a trace: give --trace too")


def test_a_percentile_of_times_that_no_answer_has_is_refused(adapting):
    fault = asked(adapting, {**FEW, "output_tokens": 1, "tpot_ms": None, "tpot_p99_ms": 50}, 422)
    assert "no time per further token" in fault["detail"]
    assert pointers(fault) == ["#/tpot_p99_ms"]


@pytest.mark.parametrize("device", ["jetson-agx-orin-64gb", "h100-sxm-80gb-mig-3g-40gb"])
def test_devices_that_no_link_joins_are_replicas_by_themselves(adapting, device):
    stock = {"device": device, "usd_per_device_hour": 1}
    own = {**FEW, "devices": [stock], "tpot_ms": None, "ttft_ms": None, "disaggregated": True}
    plan = asked(adapting, own)
    assert plan["best"] and all(
        one["devices"] == one["replicas"] and one["prefill"] is None
        for one in (*plan["best"], *plan["front"])
    )
    assert f"replicas of several {device}, which no link joins" in plan["not_searched"]
    content = {"model": "llama-3.1-70b", "device": device, "requests_per_s": 1}
    content |= {"input_tokens": 500, "output_tokens": 100}
    answer = adapting.post("/v1/llm/estimate", json=content)
    assert answer.status_code == 422 and "do not fit" in answer.json()["detail"]
    content |= {"model": FEW["model"], "parallelism": {"tensor": 2}}
    said = adapting.post("/v1/llm/estimate", json=content).json()["limits"]
    assert any("goes beyond the 1 that links join" in line for line in said)
