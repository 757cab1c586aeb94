"""Training of language models: one question through every door, what is chosen, and faults."""

import json
import re
from dataclasses import replace

import pytest
from typer import BadParameter

import forerun
from forerun.data.device import DeviceCatalog
from forerun.data.device_slices import no_link
from forerun.data.errors import InputError
from forerun.data.language_models.training import LlmTraining
from forerun.features.llm_training.graph import decoder_graph
from forerun.features.readers.language_model.reader import named_language_model, read_language_model
from forerun.models.llm_training.plans import PlannedLayout, TrainingPlan
from forerun.service.answers.llm import training
from forerun.service.cli import app
from forerun.service.schemas.fields import example
from forerun.service.schemas.llm.training import EXAMPLE_ESTIMATE, EXAMPLE_PLAN
from forerun.service.schemas.llm.training_answers import PlannedOut
from tests.service.answers.llm.predictors import LLAMA

CATALOG = DeviceCatalog.load()
LAYOUT = example("training_layout")
WORDS = (
    *("llama-3.1-70b", "--device", "h100-sxm-80gb", "--devices", "64", "--tokens", "1e12"),
    *("--region", "france", "--json"),
)


@pytest.fixture
def command(home, capsys):
    def called(*words):
        app([*map(str, words)], standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    return called


def asked(client, path, content, status=200):
    answer = client.post(f"/v1/training/{path}", json=content)
    assert answer.status_code == status, answer.text
    return answer.json()


def test_schedules_lengths_and_levels_are_the_same_through_every_door(adapting, command):
    layout = {"tensor": 4, "pipeline": 4, "virtual_stages": 2, "schedule": "zb-v"}
    lengths = [{"tokens": 512, "share": 3.0}, {"tokens": 4096, "share": 1.0}]
    content = {**LAYOUT, "layout": layout, "level": 80, "lengths": lengths, "packed": True}
    by_http = asked(adapting, "estimate", content)
    assert (by_http["level"], by_http["run"]["lengths"]) == (80, lengths)
    own = {name: value for name, value in content.items() if name != "model"}
    assert forerun.llm_training(LAYOUT["model"], **own).to_dict() == by_http
    words = ("--tp", 4, "--pp", 4, "--vpp", 2, "--schedule", "zb-v", "--level", 80, "--packed")
    sizes = ("--lengths", "512,3", "--lengths", "4096,1")
    assert command("train-step", *WORDS, *words, *sizes) == by_http
    texts = {**content, "lengths": ["512,3", "4096,1"]}
    assert asked(adapting, "estimate", texts) == by_http
    plan = {**EXAMPLE_PLAN, "lengths": lengths}
    assert asked(adapting, "plan", plan)["run"]["sequence_tokens"] == 4096


def test_padded_sequences_are_as_long_as_the_longest_sample(client):
    content = {**LAYOUT, "lengths": ["512", "1024"]}
    answer = asked(client, "estimate", content)
    assert answer["run"]["sequence_tokens"] == 1024
    one = asked(client, "estimate", {**LAYOUT, "lengths": ["1024,1"], "global_batch": 512})
    plain = asked(client, "estimate", {**LAYOUT, "sequence_tokens": 1024, "global_batch": 512})
    assert one["metrics"] == plain["metrics"]


def test_one_plan_is_the_same_through_every_door(adapting, command):
    content = {**EXAMPLE_PLAN, "region": "france", "objective": "price"}
    by_http = asked(adapting, "plan", content)
    own = {name: value for name, value in content.items() if name != "model"}
    assert forerun.training_plan(content["model"], **own).to_dict() == by_http
    assert command("train-plan", *WORDS, "--objective", "price") == by_http


@pytest.mark.parametrize("changes", [{}, {"lora_rank": 16}, {"device": "l40s"}], ids=str)
def test_without_a_number_of_devices_it_is_the_fewest_that_are_enough(adapting, changes):
    """And is said before the answer, with how to give another."""
    content = {"model": "llama-3.1-8b", "device": "h100", **changes}
    found = asked(adapting, "plan", content)
    count = found["run"]["devices"]
    given = asked(adapting, "plan", content | {"devices": count})
    assert found["best"] == given["best"] and found["fitting"] == given["fitting"] > 0
    assert count == 1 or not asked(adapting, "plan", content | {"devices": count // 2})["fitting"]
    said = f"{count} device{'s' * (count > 1)}, the fewest on which a layout is sure to fit"
    assert f"{said}: give devices for others" in found["chosen"]
    own = {name: value for name, value in content.items() if name != "model"}
    assert said in str(forerun.training_plan(content["model"], **own)).splitlines()[0]


@pytest.mark.parametrize(
    ("changes", "word", "said"),
    [
        ({"device": "rtx-4090", "devices": 1}, "no", "takes .* at least"),
        ({"layout": {"tensor": 2, "micro_batch": 10}}, "probably not", "it probably does not fit"),
        ({"layout": {"tensor": 2, "micro_batch": 5}}, "perhaps", "it may not fit"),
    ],
)
def test_an_answer_says_once_how_likely_a_run_fits_and_what_lets_it(adapting, changes, word, said):
    """Each change that is named fits when it is made, and none else."""
    own = {"device": "h200-sxm-141gb", "devices": 8, "global_batch": 320, **changes}
    shown = forerun.llm_training("llama-3.1-8b", **own)
    answer = shown.to_dict()
    assert f"fits: {word} (" in str(shown) and f"to fit: {answer['to_fit']}" in str(shown)
    assert len([one for one in answer["limits"] if re.search(said, one)]) == 1
    layout = answer["layout"]
    changed = {"shorten sequences": {"sequence_tokens": 128}}
    if layout["recompute"] == "none":
        changed["recompute"] = {"layout": {**layout, "recompute": "full"}}
        changed["take micro-batches of 1"] = {"layout": {**layout, "micro_batch": 1}}
    for way, more in changed.items():
        made = forerun.llm_training("llama-3.1-8b", **{**own, "layout": layout, **more})
        assert made.fits == (way in answer["to_fit"].split(" or ")), way


def test_layouts_that_do_not_fit_are_not_said_to_be_unsure(adapting):
    plan = forerun.training_plan("llama-3.1-70b", device="h100", devices=1)
    assert "no layout fits: take more devices" in str(plan) and "sure to fit" not in str(plan)
    content = {"model": "llama-3.1-70b", "device": "h100", "devices": 1}
    chosen = asked(adapting, "estimate", content)["chosen"][-1]
    assert chosen.endswith("none of which fits by the best estimate")


@pytest.mark.parametrize("path", ["estimate", "plan"])
def test_one_model_is_not_trained_over_mig_slices(adapting, path):
    content = {"model": "llama-3.2-1b", "device": "h100-sxm-80gb-mig-3g-40gb", "devices": 2}
    problem = asked(adapting, path, content, status=422)
    assert problem["detail"].startswith(str(no_link(CATALOG.get(content["device"]))))
    assert problem["errors"][0]["pointer"] == "#/devices"


def test_a_budget_may_take_more_devices_than_a_step_has_sequences(adapting):
    content = {"model": "llama-3.1-70b", "device": "h100", "tokens": 1e12, "max_days": 6}
    found = asked(adapting, "plan", content)
    assert found["run"]["devices"] > found["run"]["global_batch"]
    assert found["best"][0]["metrics"]["run_days"]["value"] <= 6


def test_what_fits_on_no_number_of_devices_is_one_line(adapting):
    content = {"model": "deepseek-v3", "device": "gtx-1650", "sequence_tokens": 100_000}
    answer = adapting.post("/v1/training/plan", json=content)
    assert answer.status_code == 422
    said = "No layout is sure to fit on up to 16,384 of gtx-1650: choose a device with more memory"
    assert said in answer.json()["detail"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--tp", 3), "^--tp: tensor x context x pipeline = 3 does not"),
        (
            ("--global-batch-size", 10, "--micro-batch-size", 7),
            "^--global-batch-size = 10 is not a multiple .*--micro-batch-size = 7",
        ),
        (("--vpp", 5), "^--vpp needs pipeline above 1"),
        (("--region", "atlantis"), "^--region: .* give --grid-g-co2-per-kwh"),
    ],
)
def test_what_is_wrong_names_the_option_that_was_typed(command, options, said):
    with pytest.raises(InputError, match=said):
        command("train-step", *WORDS, *options)


def test_numbers_may_end_with_a_letter_for_their_size(command):
    days = [
        command("train-step", *WORDS, "--tokens", tokens)["metrics"]["run_days"]["value"]
        for tokens in ("1.5e12", "1.5T", "1500B")
    ]
    assert days[0] == days[1] == days[2] > 0
    with pytest.raises(BadParameter, match=r"'1\.5X' is no number such as"):
        command("train-step", *WORDS, "--tokens", "1.5X")


def test_a_model_by_its_configuration_is_one_by_its_name(client):
    by_name = asked(client, "estimate", {**EXAMPLE_ESTIMATE, "lora_rank": 0} | WITHOUT_FROZEN)
    given = {**EXAMPLE_ESTIMATE, "lora_rank": 0, "model": {"config": LLAMA}} | WITHOUT_FROZEN
    assert asked(client, "estimate", given)["metrics"] == by_name["metrics"]


WITHOUT_FROZEN = {"frozen_weights": None, "device": "b200-sxm-180gb"}


def test_what_is_left_open_is_chosen_and_said(client):
    given = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "devices": 8}
    answer = asked(client, "estimate", given)
    run = answer["run"]
    assert (run["sequence_tokens"], run["global_batch"], run["precision"]) == (4096, 1024, "bf16")
    assert (run["optimizer"], run["framework"]) == ("adamw", "megatron")
    text = " ".join(answer["chosen"])
    for word in ("sequence_tokens 4,096", "global_batch 1,024, 4,194,304 tokens", "layout "):
        assert word in text
    assert "give tokens" in answer["missing"]["run_days"]
    again = asked(client, "estimate", {**given, "layout": answer["layout"]})
    assert again["metrics"] == answer["metrics"]
    assert not any("layout" in sentence for sentence in again["chosen"])


def test_adapters_have_other_defaults(client):
    given = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "devices": 12, "lora_rank": 16}
    run = asked(client, "estimate", given)["run"]
    assert (run["global_batch"], run["framework"]) == (12, "fsdp")
    run = asked(client, "estimate", {**given, "framework": "megatron"})["run"]
    assert run["framework"] == "megatron"


def test_a_model_of_short_context_is_trained_at_its_length(client):
    given = {"model": {"config": LLAMA | {"max_position_embeddings": 2048}}, "device": "h200"}
    answer = asked(client, "estimate", given)
    assert answer["run"]["sequence_tokens"] == 2048
    assert answer["run"]["global_batch"] == 2048


@pytest.mark.parametrize(
    ("changes", "pointer", "words"),
    [
        ({"layout": {"tensor": 3}}, "#/layout/tensor", "does not divide devices = 64"),
        ({"layout": {"tensor": 64, "pipeline": 2}}, "#/layout/tensor", "= 128 does not divide"),
        ({"global_batch": 10}, "#/global_batch", "not a multiple of 4 data-parallel ranks"),
        ({"layout": {"tensor": 4, "virtual_stages": 2}}, "#/layout/virtual_stages", "pipeline"),
        ({"layout": {"expert": 2}}, "#/layout/expert", "no routed experts"),
        ({"layout": {"tensr": 2}}, "#/layout/tensr", "did you mean tensor"),
        ({"region": "atlantis"}, "#/region", "united-states"),
        ({"device": "epyc-9654"}, "#/device", "only on GPUs"),
        ({"frozen_weights": "nf4"}, "#/frozen_weights", "lora_rank"),
        ({"packed": True}, "#/packed", "give lengths too"),
        ({"lengths": ["many"]}, "#/lengths/0", "valid integer"),
        ({"layout": {"schedule": "zb-h1"}}, "#/layout/schedule", "needs pipeline above 1"),
        ({"level": 40}, "#/level", "50"),
        ({"tokens": 0}, "#/tokens", "greater than 0"),
    ],
)
def test_a_fault_is_one_line_with_its_field(client, changes, pointer, words):
    answer = client.post("/v1/training/estimate", json={**LAYOUT, **changes})
    assert answer.status_code == 422, answer.text
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert words in fault["detail"] and "\n" not in fault["detail"]


def test_a_budget_needs_tokens_and_chooses_devices(client):
    plan = {name: value for name, value in EXAMPLE_PLAN.items() if name != "devices"}
    few = asked(client, "plan", {**plan, "max_days": 400})
    many = asked(client, "plan", {**plan, "max_days": 20})
    assert few["run"]["devices"] < many["run"]["devices"]
    assert many["best"][0]["metrics"]["run_days"]["value"] <= 20
    assert any("by the budget" in sentence for sentence in many["chosen"])
    del plan["tokens"]
    fault = asked(client, "plan", {**plan, "max_days": 40}, 422)
    assert "A budget needs tokens" in fault["detail"]
    fault = asked(client, "plan", {**EXAMPLE_PLAN, "max_days": 40}, 422)
    assert "give no devices with it" in fault["detail"]
    fault = asked(client, "plan", {**plan, "tokens": 1e12, "max_usd": 5}, 422)
    assert "No layout that fits keeps the budget" in fault["detail"]


def test_a_plan_ranks_counts_and_writes_its_first_layout(client):
    plan = asked(client, "plan", EXAMPLE_PLAN)
    times = [one["metrics"]["step_s"]["value"] for one in plan["best"]]
    assert times == sorted(times) and all(one["fits"] for one in plan["best"])
    assert len(plan["best"]) <= plan["fitting"] < plan["searched"]
    assert not any(one["fits"] for one in plan["misses"])
    front = [one["metrics"] for one in plan["front"]]
    for name, rises in (("run_days", True), ("run_usd", False)):
        values = [one[name]["value"] for one in front]
        assert values == sorted(values, reverse=not rises)
    degree = plan["best"][0]["layout"]["tensor"]
    assert f"--tensor-model-parallel-size {degree} " in plan["arguments"]["megatron"]


def test_one_device_has_nothing_to_shard_so_that_no_layout_is_said_twice(client):
    given = {**EXAMPLE_ESTIMATE, "device": "h200-sxm-141gb", "kept": 20}
    best = unsharded(asked(client, "plan", given))
    assert len(best) == len(set(best)) > 1


def unsharded(plan):
    """The layouts of an answer, without the stage of ZeRO."""
    kept = [{**one["layout"], "zero_stage": 0} for one in plan["best"]]
    return [json.dumps(one, sort_keys=True) for one in kept]


def test_what_was_not_drawn_is_null(client):
    plan = asked(client, "plan", EXAMPLE_PLAN)
    assert plan["best"] and {one["wins"] for one in plan["best"]} == {None}
    assert plan["measure"] is None


def test_the_command_prints_arguments_alone(home, capsys):
    words = ("train-plan", *WORDS[:-1], "--as", "megatron")
    app([*words], standalone_mode=False)
    out = capsys.readouterr().out
    assert out.startswith("--tensor-model-parallel-size") and out.count("\n") == 1


def test_a_framework_that_cannot_express_it_is_one_line(home):
    plan = forerun.training_plan("llama-3.1-70b", device="h100-sxm-80gb", devices=64)
    with pytest.raises(forerun.InputError, match=r"llama-factory cannot express .* megatron"):
        plan.arguments("llama-factory")


def test_the_text_of_an_answer_says_layout_time_and_memory(home):
    text = str(forerun.llm_training("llama-3.1-8b", device="h100", lora_rank=16, tokens=1e7))
    for words in ("time of a step", "layout: ", "where the time goes: ", "memory of the device: "):
        assert words in text
    frame = forerun.training_plan("llama-3.1-8b", device="h100", devices=8).to_pandas()
    assert {"tensor", "zero_stage", "step_s", "peak_memory_mib_high"} <= set(frame)


def test_predict_and_train_step_give_one_answer(adapting):
    """LoRA on one device as a language model, and as the network that it is."""
    run = {"sequence_tokens": 512, "global_batch": 4, "layout": {"micro_batch": 2}}
    given = {"model": {"config": SMALL}, "device": "h100-sxm-80gb", "lora_rank": 8, **run}
    step = asked(adapting, "estimate", given)["metrics"]
    graph = decoder_graph(read_language_model(SMALL), 512).to_json()
    digest = adapting.post("/v1/graphs", json=graph).json()["digest"]
    options = {"lora_rank": 8, "adapter_precision": "fp32", "accumulation": 2}
    workload = {"kind": "network", "graph": digest, "batch_size": 4, "precision": "bf16"}
    workload |= {"phase": "training", "training": {**options, "attention": "flash"}}
    answer = adapting.post("/v1/predict", json={"workload": workload, "device": "h100-sxm-80gb"})
    network = answer.json()["metrics"]
    assert 1e3 * step["step_s"]["value"] == pytest.approx(network["latency_ms"]["value"])
    for name in ("power_w", "peak_memory_mib", "allocated_memory_mib"):
        assert step[name]["value"] == pytest.approx(network[name]["value"]), name
    assert step["step_s"]["grade"] == network["latency_ms"]["grade"]


SMALL = LLAMA | {"num_hidden_layers": 4}


def test_runs_use_as_much_memory_as_predict_says_they_can(client):
    """One share of the sheet's memory, whatever is asked."""
    usable = asked(client, "estimate", LAYOUT)["memory"]["usable_mib"]
    assert usable == pytest.approx(0.92 * 80 * 1024)
    plan = asked(client, "plan", EXAMPLE_PLAN)
    for one in plan["best"]:
        assert one["metrics"]["peak_memory_mib"]["high"] <= usable
    for one in plan["misses"]:
        assert one["metrics"]["peak_memory_mib"]["high"] > usable


def test_several_devices_are_refused_in_one_line(home):
    words = ("llama-3.1-8b", "--device", "h100", "--device", "l4")
    for command in ("train-step", "train-plan"):
        with pytest.raises(forerun.InputError, match="one device is answered at a time, 2 are"):
            app([command, *words], standalone_mode=False)


def test_what_is_missing_is_named_as_it_is_given(home, adapting, capsys):
    """An option on the command line, a field over HTTP."""
    content = {"model": "llama-3.1-8b", "device": "radeon-rx-7900-xtx", "devices": 8}
    missing = asked(adapting, "estimate", content)["missing"]
    assert missing["run_days"] == "give tokens, the number of tokens to train on"
    words = ("train-step", content["model"], "--device", content["device"], "--devices", "8")
    app([*words], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "give --tokens, the number of tokens" in shown
    assert "chosen: --sequence-tokens 4,096" in shown
    app([*words, "--tokens", "1e9"], standalone_mode=False)
    shown = capsys.readouterr().out
    assert "give --usd-per-device-hour" in shown and "give --region or --grid-g-co2" in shown


def test_a_plan_within_a_budget_names_the_measurement_that_would_settle_it(adapting):
    """However few layouts are answered."""
    content = {name: own for name, own in EXAMPLE_PLAN.items() if name != "devices"}
    content |= {"max_days": 60, "kept": 1}
    plan = asked(adapting, "plan", content)
    assert plan["best"][0]["wins"] < 0.9
    assert plan["measure"].startswith("Close: the first is fastest in ")
    _, rival = map(PlannedOut.model_validate, plan["best"])  # it is listed, too
    assert f"Time a few steps of it and of {rival.words()}." in plan["measure"]


def test_a_first_layout_that_is_not_the_likely_best_says_which_to_take():
    run = LlmTraining(named_language_model("llama-3.1-8b"), 4096, 8)
    found = [PlannedLayout(run, 1.0, 0.9, 1.1, 1.0, 1.0, wins=own) for own in (0.3, 0.6)]
    own = TrainingPlan(tuple(found), (), (), 2, 2, 0, close=1)
    line = training._measure(own, "time")
    assert "That is the likely best, in 60 %; best estimates decide the order" in line
    even = replace(own, best=(found[1], found[0]))
    assert "likely best" not in training._measure(even, "time")


def test_a_printed_plan_has_its_carbon_and_what_the_script_sets(home):
    given = {"device": "h100", "lora_rank": 8, "global_batch": 2, "tokens": 1e7}
    plan = forerun.training_plan({"config": SMALL}, region="france", **given)
    text = str(plan)
    assert "CO2" in text and "peft.LoraConfig(r=8" in text
    assert "run_co2_kg" in plan.content.best[0].metrics


LORA_8B = {"device": "rtx-4090", "lora_rank": 16}


@pytest.mark.parametrize(
    ("frozen", "tokens", "word", "way"),
    [(None, 4096, "no", "to fit: keep frozen weights in nf4 or"), ("nf4", 512, "yes", "")],
)
def test_a_printed_step_says_whether_it_fits_by_how_much_and_what_helps(
    home, frozen, tokens, word, way
):
    """`no` where the best estimate does not fit either, as `predict` says it."""
    given = LORA_8B | {"frozen_weights": frozen, "sequence_tokens": tokens}
    answer = forerun.llm_training("llama-3.1-8b", **given)
    peak, usable = answer.peak_memory_mib, answer.content.memory.usable_mib
    assert (word == "no") == (peak.value > usable)
    sizes = f"{peak.low:,.0f} to {peak.high:,.0f} MiB needed, {usable:,.0f} MiB usable"
    assert f"fits: {word} ({sizes})" in str(answer)
    assert way in str(answer) and bool(way) == ("to fit: " in str(answer))


def test_one_more_device_never_lowers_the_energy_of_a_plan(home):
    """Power by kernels is known of one device alone: all layouts are compared by one rule."""
    plan = forerun.training_plan("llama-3.1-8b", **LORA_8B, frozen_weights="nf4", tokens=1e7)
    energies = {one.devices: one.metrics["run_kwh"].value for one in plan.front}
    assert 1 in energies and len(energies) > 1
    assert energies[1] <= min(energies.values())
    assert "power of all layouts: 76 % of TDP" in str(plan) and "1 device: " in str(plan)


def test_sequences_longer_than_the_model_takes_are_said(home):
    """In the answer, and not only among its limits."""
    for tokens, is_said in ((131_072, False), (1_000_000, True)):
        answer = forerun.llm_training(
            "llama-3.1-8b", device="h100", sequence_tokens=tokens, global_batch=1
        )
        assert ("sequences are longer than the 131,072 tokens" in str(answer)) == is_said


def test_a_format_that_the_device_lacks_and_lengths_beyond_the_model_are_lines_of_the_answer(home):
    """V100s have no bf16 units; some of the sequences are short."""
    run = {"precision": "bf16", "devices": 64, "lengths": ["4096,1", "200000,1"]}
    answer = forerun.llm_training("llama-3.1-8b", device="v100", sequence_tokens=200_000, **run)
    for line in (
        "the spec sheet has no bf16 peak; its fp32 peak is used: fp16 is faster",
        "sequences are longer than the 131,072 tokens of the model's configuration",
    ):
        assert line in str(answer).splitlines() and line in answer.limits


def test_a_device_without_bf16_trains_in_fp16_where_nothing_is_given(home):
    """As Transformers do on a T4; the script says so too."""
    run = {"lora_rank": 8, "frozen_weights": "nf4", "sequence_tokens": 2048}
    plan = forerun.training_plan("llama-3.1-8b", device="t4", devices=1, **run)
    assert "precision fp16, as t4 has no bf16 units" in plan.content.chosen
    assert "compute_dtype=torch.float16" in plan.content.script
    newer = forerun.training_plan("llama-3.1-8b", device="a100", devices=1, **run)
    assert "compute_dtype=torch.bfloat16" in newer.content.script


@pytest.mark.parametrize(("device", "given"), [("v100", "fp8"), ("a100", "fp8"), ("h100", "nvfp4")])
def test_frameworks_refuse_a_format_without_its_units(home, device, given):
    """Transformer Engine: "Device compute capability 8.9 or higher required for FP8 execution"."""
    said = f"precision = {given}: frameworks train in it only on devices with"
    with pytest.raises(InputError, match=said):
        forerun.llm_training("llama-3.1-8b", device=device, precision=given)
    if given == "fp8":
        network = forerun.predict("resnet18", device=device, precision=given, phase="training")
        assert said in network.missing["latency_ms"]


def test_what_kernels_answer_comes_with_its_command_as_a_network(home, tmp_path, capsys):
    """And the command has the same answer: differences are those of a traced graph."""
    pytest.importorskip("transformers")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(SMALL | {"architectures": ["LlamaForCausalLM"]}))
    words = ("--device", "rtx-4090", "--lora-rank", "8", "--sequence-tokens", "256")
    app(["train-step", str(file), *words, "--explain"], standalone_mode=False)
    said = capsys.readouterr().out.partition("the same as a network: forerun ")[2].split()
    asked_again = [str(file) if word == "config.json" else word for word in said]
    app([*asked_again, "--json"], standalone_mode=False)
    network = json.loads(capsys.readouterr().out)["metrics"]
    step = forerun.llm_training(str(file), device="rtx-4090", lora_rank=8, sequence_tokens=256)
    assert network["latency_ms"]["value"] == pytest.approx(1e3 * step.step_s.value, rel=0.03)
    memory = step.peak_memory_mib.value
    assert network["peak_memory_mib"]["value"] == pytest.approx(memory, rel=0.03)
    assert forerun.llm_training(str(file), device="rtx-4090").content.predict is None
