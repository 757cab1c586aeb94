"""Requests about every kind of workload: what they mean, and what is refused with a remedy."""

import json

import pytest

from forerun.data.named.networks import program_named

CELL = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|avg_pool_3x3~2|"
NB201 = {"kind": "architecture", "space": "nb201", "cell": CELL}
LAYER = {
    "d_in": 64,
    "d_out": 32,
    "multipliers": 2048,
    "precision_bits": 14,
    "reuse_factor": 1,
    "strategy": "resource",
}


def benchmark(suite, **settings):
    return {"kind": "benchmark", "suite": suite, "settings": settings}


RESNET = benchmark("mlperf_inference", model="resnet50", scenario="Offline")


def ask(adapting, workload, device, **more):
    answer = adapting.post("/v1/predict", json={"workload": workload, "device": device, **more})
    return answer.status_code, answer.json()


def test_an_architecture_is_known_by_the_device_names_of_its_measurements(adapting):
    code, answer = ask(adapting, NB201, "Pixel3")
    assert code == 200
    assert answer["device"] == {"name": "pixel3", "origin": "training_set"}
    assert set(answer["metrics"]) == {"latency_ms"}
    assert answer["metrics"]["latency_ms"]["grade"] == "A"
    assert answer["fits"] is None
    assert answer["roofline"] == answer["breakdown_ms"] == {}
    code, answer = ask(adapting, NB201, "v100-pcie-32gb")
    assert answer["metrics"]["latency_ms"] is None
    assert "too uncertain" in answer["missing"]["latency_ms"]


def design_answer(adapting, **directives):
    asked = {"kind": "design", "program": "2mm", "directives": directives}
    code, answer = ask(adapting, asked, "xilinx-vcu1525")
    assert code == 200
    return answer


def test_a_design_that_does_not_fit_is_refused_and_its_grade_is_c(adapting):
    answer = design_answer(adapting, __PARA__L3=80, __PIPE__L0="flatten", __PARA__L0=16)
    (limit,) = answer["limit_details"]
    assert limit["severity"] == "refusal"
    assert "times the DSP blocks" in limit["message"]
    assert "of the chip: it does not fit" in limit["message"]
    assert {own["grade"] for own in answer["metrics"].values()} == {"C"}
    assert not answer["in_domain"]


def test_directives_outside_the_training_designs_of_the_program_give_grade_c(adapting):
    inside = design_answer(adapting, __PARA__L3=2, __PIPE__L2="flatten")
    assert inside["limits"] == []
    assert {own["grade"] for own in inside["metrics"].values()} == {"A"}
    answer = design_answer(adapting, __TILE__L2=8)
    (limit,) = answer["limit_details"]
    assert limit["severity"] == "outside"
    assert (limit["feature"], limit["value"], limit["high"]) == ("__TILE__L2", 8.0, 1.0)
    assert "__TILE__L2 is 8, measured designs of this program have 1" in answer["limits"]
    for own in answer["metrics"].values():
        assert own["grade"] == "C"
        assert own["grade_reason"].startswith("extrapolated: __TILE__L2 is 8")


def test_a_combination_far_from_all_measured_designs_gives_grade_c(adapting):
    """Every value is one of a measured design of the program, and two of the three are near one."""
    assert design_answer(adapting, __PARA__L0=32, __PIPE__L0="")["limits"] == []
    answer = design_answer(adapting, __PARA__L0=32, __PIPE__L0="", __PARA__L2=32)
    (limit,) = answer["limit_details"]
    assert (limit["severity"], limit["high"]) == ("outside", 1.0)
    assert limit["value"] > 1.2
    for own in answer["metrics"].values():
        assert own["grade"] == "C"
        assert own["grade_reason"].startswith("extrapolated: each directive value was measured")
        assert "combination is 1.36 times as far" in own["grade_reason"]


def test_a_design_is_answered_for_its_program_tool_and_chip(adapting):
    design = {"kind": "design", "program": "gesummv", "directives": {"__PARA__L1": 9}}
    sdx = ask(adapting, design, "xilinx-vcu1525")[1]["metrics"]
    vitis = ask(adapting, design, "xilinx-vcu1525", software={"framework": "vitis"})[1]["metrics"]
    plain = ask(adapting, {**design, "directives": {}}, "xilinx-vcu1525")[1]["metrics"]
    cycles = [answer["latency_cycles"]["value"] for answer in (sdx, vitis, plain)]
    assert len(set(cycles)) == 3
    assert sdx["latency_cycles"]["unit"] == "cycles"
    graph = program_named("gesummv")
    names = ("types", "texts", "full_texts", "edges", "blocks", "functions")
    given = {name: getattr(graph, name) for name in names}
    assert ask(adapting, {**design, "program": given}, "xilinx-vcu1525")[1]["metrics"] == sdx


def test_a_design_on_a_list_of_devices_is_said_to_have_one_device(adapting):
    design = {"kind": "design", "program": "2mm", "directives": {}}
    code, problem = ask(adapting, design, "xilinx-vcu1525,l4")
    assert (code, problem["errors"][0]["pointer"]) == (422, "#/device")
    assert "lists several devices in one name" in problem["detail"]
    assert "xilinx-vcu1525 alone, which is the one device to name" in problem["detail"]
    assert "was not measured" in ask(adapting, design, "l4")[1]["detail"]


def test_an_architecture_on_a_list_of_devices_is_asked_for_each(adapting):
    code, problem = ask(adapting, NB201, "l4,t4")
    assert (code, problem["did_you_mean"]) == (404, ["l4", "t4"])
    assert "lists several devices in one name" in problem["detail"]


@pytest.mark.parametrize("value", [["resnet50"], True, None])
def test_a_setting_of_a_wrong_type_has_one_error(adapting, value):
    code, problem = ask(adapting, benchmark("mlperf_inference", model=value), "h100-sxm-80gb")
    (wrong,) = problem["errors"]
    assert (code, wrong["pointer"]) == (422, "#/workload/settings/model")
    assert "a setting is a number, or a text" in wrong["detail"]


def test_settings_that_are_left_out_are_taken_as_usual_and_named(adapting):
    code, answer = ask(adapting, RESNET, "h100-sxm-80gb", operation={"device_count": 8})
    assert code == 200
    (note,) = (one for one in answer["limit_details"] if one["severity"] == "note")
    assert "framework vendor" in note["message"]
    assert "part NVIDIA H100-SXM-80GB" in note["message"]
    settings = dict(RESNET["settings"], framework="vendor", part="NVIDIA H100-SXM-80GB")
    again = ask(
        adapting,
        benchmark("mlperf_inference", **settings),
        "h100-sxm-80gb",
        operation={"device_count": 8},
    )[1]
    assert again["metrics"] == answer["metrics"]
    one = ask(adapting, RESNET, "h100-sxm-80gb")[1]["metrics"]["samples_per_s"]["value"]
    assert answer["metrics"]["samples_per_s"]["value"] > 4 * one


def test_a_power_limit_slows_a_training_job(adapting):
    job = benchmark("zeus_powercap", dataset="imagenet", network="resnet50", batch_size=256)
    free, capped = (
        ask(adapting, job, "v100-pcie-32gb", operation=operation)[1]["metrics"]
        for operation in ({}, {"power_limit_w": 125})
    )
    assert capped["latency_ms"]["value"] > free["latency_ms"]["value"]
    assert capped["power_w"]["value"] < free["power_w"]["value"]
    unknown = benchmark("zeus_powercap", dataset="squad", network="ncf", batch_size=32)
    answer = ask(adapting, unknown, "v100-pcie-32gb")[1]
    assert answer["missing"]["energy_j"] == "the job squad/ncf was not measured"


REFUSED = {
    "space": ({**NB201, "space": "darts"}, "l4", {}, "`space` nb201, fbnet or ofa"),
    "cell": ({**NB201, "cell": "conv"}, "pixel3", {}, "is not a NAS-Bench-201 cell; one is |"),
    "phone": (NB201, "pixel33", {}, "Did you mean pixel3"),
    "phones": (NB201, "pixel33", {}, "Architectures were measured on 1080ti-1"),
    "metric": (NB201, "pixel3", {"metrics": ["power_w"]}, "there are latency_ms"),
    "program": (
        {"kind": "design", "program": "nothing"},
        "xilinx-vcu1525",
        {},
        "No program named 'nothing'; there are 2mm",
    ),
    "chip": ({"kind": "design", "program": "atax"}, "l4", {}, "for xilinx-vcu1525 alone"),
    "tool": (
        {"kind": "design", "program": "atax"},
        "xilinx-vcu1525",
        {"software": {"framework": "vivado"}},
        "tools are sdx 2018.3, vitis 2020.2",
    ),
    "suite": (benchmark("SPEC"), "l4", {}, "no suite 'SPEC'; there are"),
    "setting": (
        benchmark("mlperf_inference", model="resnet50", scenario="Offline", speed=3),
        "l4",
        {},
        "has no setting 'speed'; its settings are model, scenario",
    ),
    "missing": (
        benchmark("mlperf_inference", model="resnet50"),
        "l4",
        {},
        "needs scenario (MultiStream, Offline, Server, SingleStream)",
    ),
    "choice": (
        benchmark("mlperf_inference", model="resnet", scenario="Offline"),
        "l4",
        {},
        "workload.settings.model is 'resnet'; it may be 3d-unet-99",
    ),
    "number": (
        benchmark("hls4ml dense layer", **{**LAYER, "d_in": "wide"}),
        "xilinx-vu13p",
        {},
        "workload.settings.d_in is 'wide', not a number (a number, 32 to 256 were measured)",
    ),
    "not positive": (
        benchmark("hls4ml dense layer", **{**LAYER, "d_in": 0}),
        "xilinx-vu13p",
        {},
        "workload.settings.d_in is 0, and was positive in all measured rows (a number, 32 to 256",
    ),
    "kind of device": (
        benchmark("SPECrate2017_int_base", test="505.mcf_r"),
        "l4",
        {},
        "tests of SPECrate2017_int_base ran on a cpu; l4 is a gpu",
    ),
    "layer's chip": (benchmark("hls4ml dense layer", **LAYER), "l4", {}, "xilinx-vu13p alone"),
    "devices": (
        {"kind": "llm_serving", "total_parameters": 8e9, "tensor_parallel": 4},
        "h100-sxm-80gb",
        {},
        "workload.tensor_parallel cannot be more than operation.device_count, 1",
    ),
    "count": (
        {"kind": "network", "graph": "resnet18"},
        "l4",
        {"operation": {"device_count": 2}},
        "operation.device_count is 2",
    ),
    "network": ({"kind": "network", "graph": "resnet"}, "l4", {}, "Did you mean resnet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_answered_names_the_field_and_the_remedy(adapting, case):
    workload, device, more, said = REFUSED[case]
    code, problem = ask(adapting, workload, device, **more)
    assert code in (404, 422)
    assert said in problem["detail"], json.dumps(problem)


@pytest.mark.parametrize(
    ("case", "pointer"),
    [
        ("suite", "#/workload/suite"),
        ("setting", "#/workload/settings/speed"),
        ("missing", "#/workload/settings"),
        ("choice", "#/workload/settings/model"),
        ("number", "#/workload/settings/d_in"),
        ("devices", "#/workload/tensor_parallel"),
        ("count", "#/operation/device_count"),
        ("tool", "#/software"),
        ("program", "#/workload/program"),
    ],
)
def test_a_refusal_points_to_the_field_that_it_is_about(adapting, case, pointer):
    workload, device, more, _ = REFUSED[case]
    problem = ask(adapting, workload, device, **more)[1]
    assert [each["pointer"] for each in problem["errors"]] == [pointer]


@pytest.mark.parametrize("given", [5, None, [], "network", {"kind": 3}, {"kind": "architecture"}])
def test_a_workload_without_a_kind_is_a_problem_that_lists_the_kinds(client, given):
    answer = client.post("/v1/predict", json={"workload": given, "device": "l4"})
    assert answer.status_code == 422
    assert "design, benchmark, llm_serving, diffusion" in answer.json()["detail"]


def test_a_predictor_without_such_parts_says_so(client):
    answer = client.post("/v1/predict", json={"workload": NB201, "device": "l4"})
    assert answer.status_code == 422
    assert "No predictor in use answers a workload of kind architecture" in answer.json()["detail"]
    answer = client.post("/v1/predict", json={"workload": RESNET, "device": "l4"})
    assert "no suite 'mlperf_inference'" in answer.json()["detail"]


def test_a_network_by_name_is_answered_and_its_digest_can_be_asked_again(adapting):
    named = {"kind": "network", "graph": "resnet18", "batch_size": 8}
    answer = ask(adapting, named, "l4")[1]
    again = ask(adapting, named | {"graph": answer["graph"]}, "l4")[1]
    assert again["metrics"] == answer["metrics"]
    swept = adapting.post(
        "/v1/power/sweep", json={"workload": named | {"graph": answer["graph"]}, "device": "l4"}
    )
    assert swept.status_code == 200
