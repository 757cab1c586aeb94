"""What plans of serving cannot do is said: devices, forms, caps, grids and traces, and why."""

import json

import pytest

import forerun
from forerun.data.device import DeviceCatalog
from forerun.data.device_slices import no_link
from forerun.data.language_models.deployment import Parallelism
from forerun.service.answers.llm import planning
from forerun.service.cli import app
from forerun.service.schemas.llm.answers import EngineOut, PoolOut
from forerun.service.schemas.llm.serving_plan import CLASS_FORM, DRAFT_FORM
from forerun.service.schemas.llm.serving_plan_answers import PlannedServingOut
from tests.service.answers.llm.test_planning import FEW, TRACED, asked

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
        ({}, "sglang", "its engine is vllm; plan with engine sglang for that"),
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


@pytest.mark.parametrize(
    ("changes", "words", "said", "fields"),
    [
        (
            {"startup_s": 30},
            ("--startup-s", "30"),
            "{} is of a plan over time: give {} too",
            ("startup_s", "window_s"),
        ),
        (
            {"stabilization_s": 30},
            ("--stabilization-s", "30"),
            "{} is of a plan over time: give {} too",
            ("stabilization_s", "window_s"),
        ),
        (
            {"cap_risk": 0.1},
            ("--cap-risk", "0.1"),
            "{} is of a power cap: give {} too",
            ("cap_risk", "cap_kw"),
        ),
        (
            {"ttft_ms": 1000, "ttft_p99_ms": 900},
            ("--ttft-ms", "1000", "--ttft-p99-ms", "900"),
            "{} 900 is below {} 1000, but a 99th percentile is above the mean",
            ("ttft_p99_ms", "ttft_ms"),
        ),
        (
            {"ttft_ms": 1000, "request_latency_ms": 900},
            ("--ttft-ms", "1000", "--request-latency-ms", "900"),
            "{} 900 is below {} 1000, but a request takes longer than its first token",
            ("request_latency_ms", "ttft_ms"),
        ),
    ],
    ids=lambda own: next(iter(own)) if isinstance(own, dict) else "",
)
def test_what_another_field_leaves_without_effect_is_refused(
    client, home, changes, words, said, fields
):
    """The message names the options, and over HTTP the problem points at the fields."""
    fault = asked(client, {**FEW, **changes}, 422)
    assert said.format(*fields) in fault["detail"] and "\n" not in fault["detail"]
    assert pointers(fault) == [f"#/{name}" for name in fields]
    flags = [f"--{name.replace('_', '-')}" for name in fields]
    assert said.format(*flags) in refused((*PLAN, *TRAFFIC, *words))


@pytest.mark.parametrize(
    ("changes", "fields"),
    [
        ({"output_variation": 1}, ["output_variation", "trace"]),
        ({"isl": 100}, ["isl", "trace"]),
        ({"sizes": [{"input_tokens": 9, "output_tokens": 9}]}, ["trace", "sizes"]),
        (
            {"formats": ["fp8"], "model": {"name": "llama-3.1-8b", "quantization": "fp8"}},
            ["formats", "model/quantization"],
        ),
    ],
    ids=str,
)
def test_what_is_given_twice_is_refused_at_each_place(client, changes, fields):
    content = {"model": FEW["model"], "devices": ["h100"], "trace": "splitwise_conv", **changes}
    assert pointers(asked(client, content, 422)) == [f"#/{name}" for name in fields]


@pytest.mark.parametrize(
    ("option", "word"),
    [
        ("--class", "chat,10,500"),
        ("--class", "chat,10,500,200,ttft_p99_ms"),
        ("--draft", "ngram,3"),
        ("--draft", "eagle,3,0.4,org/head,9"),
    ],
)
def test_a_class_or_draft_of_another_form_is_shown_the_form(home, option, word):
    forms = {"--class": CLASS_FORM, "--draft": DRAFT_FORM}
    assert refused((*PLAN, option, word)) == f"{option}: {word!r} is not {forms[option]}."


@pytest.mark.parametrize("form", ["vllm", "megatron"])
@pytest.mark.parametrize("option", ["--json", "--explain"])
def test_options_that_one_form_alone_leaves_without_effect_are_refused(home, form, option):
    words = (*PLAN, *TRAFFIC) if form == "vllm" else ("train-plan", "llama-3.1-8b")
    line = refused((*words, "--device", "h100", "--as", form, option))
    assert line == f"{option} has no effect with --as: leave one of the two out."


@pytest.mark.parametrize(
    "words", [(*PLAN, *TRAFFIC), ("train-plan", "llama-3.1-8b"), ("train-step", "llama-3.1-8b")]
)
def test_an_unknown_device_or_form_is_named_with_its_option(home, words):
    line = refused((*words, "--device", "l5"))
    assert line.startswith("--device: No device named 'l5'. Did you mean l4?")
    if words[0] == "llm":
        line = refused((*words, "--device", "h100", "--as", "slurm"))
        assert line.startswith("--as: The plan cannot be written for slurm: there is no such form")


def test_shares_that_do_not_sum_to_one_are_said(adapting):
    sizes = [{"input_tokens": 100, "output_tokens": 100, "share": own} for own in (0.3, 0.5)]
    content = {"model": FEW["model"], "devices": ["h100"], "requests_per_s": 1}
    said = "shares of sizes are parts of their sum, 0.8"
    assert said in asked(adapting, {**content, "sizes": sizes})["chosen"]
    sizes[1]["share"] = 0.7
    whole = asked(adapting, {**content, "sizes": sizes})["chosen"]
    assert not any("shares" in line for line in whole)


def test_where_nothing_fits_the_layout_nearest_to_it_is_shown(adapting, home):
    content = {"model": "llama-3.1-70b", "devices": [{"device": "l4", "count": 4}], **SHORT}
    plan = asked(adapting, content)
    assert plan["failed"].keys() == {"memory"} and plan["best"] == []
    (miss,) = plan["misses"]
    assert miss["devices"] == 4 and miss["over"]["memory"] > 1
    text = str(forerun.llm_plan("llama-3.1-70b", devices=content["devices"], **SHORT))
    assert f"weights and one request take {miss['over']['memory']:.2f} times the memory" in text
    assert "take best estimates" not in text
    estimate = adapting.post("/v1/llm/estimate", json=miss["request"]).json()
    assert any("does not fit" in line for line in estimate["limits"])
    more = asked(adapting, {**content, "devices": [{"device": "l4", "count": 16}]})
    assert "memory" in more["failed"] and not any("memory" in m["over"] for m in more["misses"])


@pytest.mark.parametrize(
    ("changes", "helps"),
    [
        ({"request_latency_ms": 3500, "devices": [{"device": "l40s", "count": 2}]}, True),
        ({"ttft_ms": 300, "devices": [{"device": "l4", "count": 1}]}, False),
        ({"tpot_ms": 1, "devices": ["h100"]}, False),
    ],
)
def test_best_estimates_are_advised_exactly_where_an_option_keeps_the_limits_by_them(
    adapting, home, changes, helps
):
    own = {"requests_per_s": 3, "input_tokens": 1000, "output_tokens": 150, **changes}
    plan = forerun.llm_plan("llama-3.1-8b", **own)
    by_value = forerun.llm_plan("llama-3.1-8b", **own, risk="value")
    assert not plan.best and bool(by_value.best) == helps
    assert ("take best estimates (risk value)" in str(plan)) == helps
    assert "take best estimates" not in str(by_value)


def test_what_fits_is_nearer_than_what_does_not_however_slow_it_is(adapting):
    content = {"model": "llama-3.1-70b", "devices": ["h200"], **SHORT, "tpot_ms": 0.5}
    plan = asked(adapting, content)
    assert "memory" in plan["failed"] and plan["best"] == []
    (miss,) = plan["misses"]
    assert miss["over"].keys() == {"tpot_ms"}


@pytest.mark.parametrize(
    "changes", [{"engine": {"name": "llama.cpp"}}, {"devices": ["epyc-9654"]}], ids=str
)
def test_workers_for_prompts_are_refused_where_there_are_none(client, changes):
    fault = asked(client, {**FEW, **changes, "disaggregated": True}, 422)
    assert "only on GPUs, and not with llama.cpp" in fault["detail"]
    assert pointers(fault) == ["#/disaggregated"]


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
    why = no_link(CATALOG.get(device))
    assert f"replicas of several devices, as {why}" in plan["not_searched"]
    content = {"model": "llama-3.1-70b", "device": device, "requests_per_s": 1}
    content |= {"input_tokens": 500, "output_tokens": 100}
    answer = adapting.post("/v1/llm/estimate", json=content)
    assert answer.status_code == 422 and "do not fit" in answer.json()["detail"]
    content |= {"model": FEW["model"]}
    divided = {"parallelism": {"tensor": 2}, "prefill": {}}
    for field, own in (*divided.items(), ("parallelism", {"pipeline": 2})):
        fault = adapting.post("/v1/llm/estimate", json=content | {field: own}).json()
        assert why in fault["detail"] and fault["errors"][0]["pointer"].startswith(f"#/{field}/")
    by_sizes = {"model": FEW["model"], "device": device, "device_count": 2}
    assert why in adapting.post("/v1/llm/estimate", json=by_sizes).json()["detail"]
    assert adapting.post("/v1/llm/estimate", json=content | {"workers": 2}).status_code == 200


def test_a_slice_is_answered_by_sizes_as_a_whole_gpu_is_but_for_power(adapting):
    whole, part = (
        adapting.post("/v1/llm/estimate", json={"model": FEW["model"], "device": device}).json()
        for device in ("h100-sxm-80gb", "h100-sxm-80gb-mig-3g-40gb")
    )
    rates = [own["metrics"]["tokens_per_s"]["value"] for own in (whole, part)]
    assert 0.25 * rates[0] < rates[1] < rates[0]
    assert {"power_w", "energy_per_token_j"} <= part["missing"].keys() - whole["missing"].keys()
    assert "share the power limit" in part["missing"]["power_w"]


def option(replicas, wins):
    """An option of a plan whose wins are drawn."""
    pool = PoolOut.model_construct(parallelism=Parallelism())
    own = {"device": "l4", "devices": replicas, "replicas": replicas, "wins": wins, "pool": pool}
    engine = EngineOut.model_construct(max_sequences=None, max_batched_tokens=None, draft_tokens=0)
    return PlannedServingOut.model_construct(**own, engine=engine, prefill=None, format="")


@pytest.mark.parametrize(("risk", "ends"), [("upper", "upper ends"), ("value", "best estimates")])
def test_a_first_option_that_is_not_the_likely_best_says_which_to_take(risk, ends):
    line = planning._measure(option(2, 0.3), option(3, 0.6), risk)
    assert "\n" not in line
    assert "3 x 1 l4 in 60 %: that is the likely best, but " in line
    assert ends in line and "take the first unless you measure" in line
    assert "likely best" not in planning._measure(option(2, 0.6), option(3, 0.3), risk)
