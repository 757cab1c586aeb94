"""All questions in Python are answered as over HTTP and on the command line."""

import json

import pytest

import forerun
from forerun.data.errors import UnanswerableQuery, UnknownDevice, UnknownMetric
from forerun.data.named.networks import network_named
from forerun.service.schemas.serving import EXAMPLE_DIFFUSION, EXAMPLE_LLM
from tests.service.answers.llm.predictors import LLAMA
from tests.service.conftest import GRAPH

KERNEL = {
    "kind": "kernel",
    "operator": {
        "kind": "linear",
        "input_shapes": [[512, 1024]],
        "output_shapes": [[512, 4096]],
        "parameter_elements": 4194304,
    },
    "precision": "fp16",
}


def test_an_answer_has_units_intervals_and_the_content_of_http(squeezenet, client):
    answer = forerun.predict(squeezenet, device="l4", batch_size=64, precision="amp")
    posted = client.post(
        "/v1/predict/model?device=l4&precision=amp&batch_size=64", content=squeezenet.read_bytes()
    )
    assert posted.status_code == 200
    assert answer.to_dict() == posted.json()
    assert json.dumps(answer.to_dict())
    latency = answer.latency_ms
    assert latency.low < latency.value < latency.high
    assert (latency.unit, latency.coverage) == ("ms", 0.9)
    assert float(latency) == latency.value
    assert latency.grade in ("A", "B", "C")
    assert latency.grade_reason
    assert answer["latency_ms"] is latency
    assert answer.roofline_ms < latency.value
    assert sum(answer.breakdown_ms.values()) == pytest.approx(latency.value)
    assert (answer.batch_size, answer.precision, answer.phase) == (64, "amp", "inference")
    assert answer.energy_j.value == pytest.approx(answer.power_w.value * latency.value / 1e3)
    assert answer.energy_per_sample_j.value == pytest.approx(answer.energy_j.value / 64)
    assert answer.peak_memory_mib.value > answer.reserved_memory_mib.value
    assert answer.reserved_memory_mib.value >= answer.allocated_memory_mib.value
    assert answer.utilisation is None
    assert "utilisation" in answer.missing


def test_only_the_wanted_metrics_are_answered(squeezenet):
    answer = forerun.predict(squeezenet, device="l4", metrics=["power_w"])
    assert list(answer.metrics) == ["power_w"]
    assert answer.latency_ms is None
    with pytest.raises(UnknownMetric, match="powr"):
        forerun.predict(squeezenet, device="l4", metrics=["powr"])


def test_several_devices_answer_in_their_order(squeezenet):
    answers = forerun.predict(squeezenet, device=["t4", "l4"])
    assert isinstance(answers, forerun.Answers)
    assert [answer.device for answer in answers] == ["t4", "l4"]
    assert answers["l4"] is answers[1]
    assert answers["l4"].latency_ms == forerun.predict(squeezenet, device="l4").latency_ms
    assert [a.device for a in forerun.predict(squeezenet, device="t4,l4")] == ["t4", "l4"]
    assert isinstance(forerun.predict(squeezenet, device=["l4"]), forerun.Answers)
    with pytest.raises(KeyError):
        answers["a100"]
    with pytest.raises(forerun.InputError, match="list is empty"):
        forerun.predict(squeezenet, device=[])


def test_a_device_may_be_a_sheet_or_its_file(squeezenet, tmp_path):
    sheet = forerun.devices()["l4"].model_copy(update={"name": "mine", "aliases": ()})
    file = tmp_path / "mine.json"
    file.write_text(sheet.model_dump_json(exclude_none=True))
    by_name = forerun.predict(squeezenet, device="l4")
    for device in (sheet, file, str(file)):
        answer = forerun.predict(squeezenet, device=device)
        assert answer.device == "mine"
        assert answer.latency_ms.value == pytest.approx(by_name.latency_ms.value)
    with pytest.raises(UnknownDevice, match="Did you mean l4"):
        forerun.predict(squeezenet, device="l44")
    with pytest.raises(forerun.InputError, match=r"No sheet .*gone\.yaml"):
        forerun.predict(squeezenet, device="gone.yaml")


def test_a_workload_says_itself_how_it_is_run():
    answer = forerun.predict(KERNEL, device="a100-pcie-80gb")
    assert answer.precision == "fp16"
    assert answer.batch_size is None
    assert answer.fits is None
    with pytest.raises(forerun.InputError, match="batch_size: write it into the workload"):
        forerun.predict(KERNEL, device="l4", batch_size=2)
    with pytest.raises(forerun.InputError, match=r"model: .*precision"):
        forerun.predict(KERNEL | {"precision": "fp17"}, device="l4")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"batchsize": 3}, "No option 'batchsize'. Did you mean batch_size"),
        ({"batch_size": 0}, "batch_size 0: Input should be greater"),
        ({"precision": "fp17"}, "precision 'fp17': Input should be 'fp32'"),
        ({"optimizer": "adam"}, "options of training, but the phase is inference"),
        ({"phase": "training", "zero_stage": 2}, "data_parallel says how many"),
    ],
)
def test_a_wrong_option_is_one_clear_line(squeezenet, options, said):
    with pytest.raises(forerun.InputError, match=said) as caught:
        forerun.predict(squeezenet, device="l4", **options)
    assert "\n" not in str(caught.value)


def test_fits_is_true_where_the_safe_answer_is_yes(squeezenet):
    fit = forerun.fits(squeezenet, device="l4", phase="training")
    assert fit
    assert fit.needed_mib + fit.headroom_mib == pytest.approx(fit.usable_mib)
    assert fit.word() == "yes"
    large = forerun.fits(squeezenet, device="l4", phase="training", batch_size=4096)
    assert not large
    assert large.word() in ("no", "perhaps")
    with pytest.raises(UnanswerableQuery, match="is not known"):
        forerun.fits(KERNEL, device="l4")


def test_fits_takes_a_module_its_optimizer_and_a_batch():
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4096, 4096), torch.nn.Linear(4096, 4096))
    batch = torch.zeros(8, 4096)
    fits = {
        name: forerun.fits(module, optimizer, batch, device="l4").needed_mib
        for name, optimizer in {
            "sgd": torch.optim.SGD(module.parameters(), lr=0.1),
            "momentum": torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9),
            "adamw": torch.optim.AdamW(module.parameters()),
        }.items()
    }
    weights_mib = sum(one.numel() for one in module.parameters()) * 4 / 2**20
    assert fits["momentum"] - fits["sgd"] > 0.9 * weights_mib
    assert fits["adamw"] - fits["momentum"] > 0.9 * weights_mib
    named = forerun.fits(
        module, device="l4", example_inputs=batch, phase="training", optimizer="adamw"
    )
    assert fits["adamw"] == named.needed_mib
    with pytest.raises(forerun.InputError, match="optimizer: Rprop is not known"):
        forerun.fits(module, torch.optim.Rprop(module.parameters()), batch, device="l4")


def test_rank_orders_devices_and_says_why_others_are_left_out(squeezenet, client):
    options = {"batch_size": 64, "precision": "amp"}
    names = ["l4", "t4", "a100-pcie-80gb"]
    ranking = forerun.rank(
        squeezenet, device=names, objective="energy_j", max_latency_ms=12, **options
    )
    assert ranking.best.rank == 1
    values = [row.objective.value for row in ranking]
    assert values == sorted(values)
    assert set(ranking.excluded) == set(names) - {row.device for row in ranking}
    assert "upper end of latency_ms is" in ranking.excluded["t4"][0]
    digest = client.post("/v1/graphs?batch_size=64", content=squeezenet.read_bytes()).json()
    asked = {
        "workload": {"kind": "network", "graph": digest["digest"], **options},
        "devices": names,
        "objective": "energy_j",
        "limits": {"latency_ms": 12},
    }
    assert ranking.to_dict() == client.post("/v1/rank", json=asked).json()


def test_rank_takes_all_devices_where_none_is_named():
    everything = forerun.rank(GRAPH)
    assert len(everything) + len(everything.excluded) == len(forerun.devices())


def test_rank_by_cost_takes_prices_of_ranked_devices(squeezenet):
    prices = {"l4": 0.5, "t4": 0.3}
    ranking = forerun.rank(
        squeezenet, device=["l4", "t4"], objective="cost", prices_per_hour=prices
    )
    first = ranking.best
    hourly = prices[first.device] * first.metrics["latency_ms"].value / 3.6e6
    assert first.objective.value == pytest.approx(hourly)
    with pytest.raises(forerun.InputError, match="Prices are for the objective cost"):
        forerun.rank(squeezenet, device="l4", prices_per_hour=prices)
    with pytest.raises(forerun.InputError, match="t4 is not among the devices"):
        forerun.rank(squeezenet, device="l4", objective="cost", prices_per_hour=prices)
    with pytest.raises(forerun.InputError, match="objective 'speed' is not one of"):
        forerun.rank(squeezenet, objective="speed")
    with pytest.raises(forerun.InputError, match="risk 'none' is not one of"):
        forerun.rank(squeezenet, risk="none")


def test_a_ranking_without_a_device_has_no_best(squeezenet):
    ranking = forerun.rank(squeezenet, device="l4", max_latency_ms=1e-6)
    assert ranking.best is None
    assert "no device meets the limits" in str(ranking)
    assert "left out: l4" in str(ranking)


def test_sweep_advises_a_limit(squeezenet, client):
    options = {"batch_size": 64, "precision": "amp"}
    sweep = forerun.sweep(squeezenet, device="a100-pcie-80gb", slow_down=0.1, **options)
    assert [run.limit_w for run in sweep] == sorted(run.limit_w for run in sweep)
    assert sweep.within_slow_down.slow_down <= 0.1
    least = min(sweep, key=lambda run: run.energy_j.value)
    assert sweep.least_energy.limit_w == least.limit_w
    digest = client.post("/v1/graphs?batch_size=64", content=squeezenet.read_bytes()).json()
    asked = {
        "workload": {"kind": "network", "graph": digest["digest"], **options},
        "device": "a100-pcie-80gb",
    }
    assert sweep.to_dict() == client.post("/v1/power/sweep", json=asked).json()
    chosen = forerun.sweep(squeezenet, device="a100-pcie-80gb", limits_w=[150, 250], **options)
    assert [run.limit_w for run in chosen] == [150, 250]
    with pytest.raises(forerun.InputError, match="slow_down -1 is not a share"):
        forerun.sweep(squeezenet, device="l4", slow_down=-1)


def test_compare_takes_workloads_and_says_which():
    network = {"kind": "network", "graph": network_named("squeezenet1-1").to_json()}
    grid = forerun.compare(network, device=["l4", "t4"])
    assert [answer.device for answer in grid] == ["l4", "t4"]
    with pytest.raises(forerun.InputError, match="precision: write it into the workload"):
        forerun.compare(network, device="l4", precisions=["amp"])
    test = {"kind": "benchmark", "suite": "mlperf_inference", "settings": {}}
    with pytest.raises(forerun.InputError, match="kind benchmark is asked by"):
        forerun.compare(test, device=["l4", "t4"])


def test_compare_fills_the_grid(squeezenet):
    grid = forerun.compare(
        squeezenet, device=["l4", "t4"], batch_sizes=[1, 32], precisions=["fp32", "amp"]
    )
    settings = [(a.device, a.batch_size, a.precision) for a in grid]
    assert len(set(settings)) == len(grid) == 8
    one = next(a for a in grid if (a.device, a.batch_size, a.precision) == ("t4", 32, "amp"))
    alone = forerun.predict(squeezenet, device="t4", batch_size=32, precision="amp")
    assert one.latency_ms.value == pytest.approx(alone.latency_ms.value)
    assert grid.best().latency_ms.value == min(
        a.latency_ms.value for a in grid if a.batch_size == grid.best().batch_size
    )
    assert grid.best(per_sample=False).latency_ms.value == min(a.latency_ms.value for a in grid)
    assert len(forerun.compare(squeezenet, device="l4", batch_size=4)) == 1
    with pytest.raises(forerun.InputError, match="from 1 to 10,000 combinations"):
        forerun.compare(squeezenet, device="l4", batch_sizes=[])


def test_a_combination_without_an_answer_has_its_reason(squeezenet):
    absurd = forerun.devices()["l4"].model_copy(
        update={"name": "absurd", "aliases": (), "memory_bandwidth_gbs": 1e-300}
    )
    grid = forerun.compare(squeezenet, device=["l4", absurd])
    assert [answer.device for answer in grid] == ["l4"]
    (device, size, precision, reason) = grid.unanswered[0]
    assert (device, size, precision) == ("absurd", 1, "fp32")
    assert "answer overflows" in reason
    assert reason in str(grid)
    assert grid.to_dict()["unanswered"][0]["reason"] == reason


PROFILE = {"name": "mine", "alone": {"cpu.user_share": 1.0, "probe.latency_ns": 30.0}}


def test_models_that_serve_answer_as_over_http(client):
    answer = forerun.llm(**EXAMPLE_LLM["model"], device=EXAMPLE_LLM["device"])
    assert answer.to_dict() == client.post("/v1/llm/estimate", json=EXAMPLE_LLM).json()
    assert answer.power_w.low < answer.power_w.value < answer.power_w.high
    assert answer.energy_per_token_j.value == pytest.approx(
        answer.power_w.value / answer.tokens_per_s.value
    )
    pictures = forerun.diffusion(**EXAMPLE_DIFFUSION["model"], device=EXAMPLE_DIFFUSION["device"])
    assert (
        pictures.to_dict() == client.post("/v1/diffusion/estimate", json=EXAMPLE_DIFFUSION).json()
    )
    assert pictures.latency_ms.unit == "ms"
    assert pictures.samples_per_s.unit == "samples/s"
    assert pictures.energy_per_sample_j.unit == "J"
    assert pictures.tokens_per_s is None
    assert "peak_memory_mib" in answer.missing


def test_a_deployment_answers_as_over_http(client):
    answer = forerun.llm(
        "llama-3.1-8b", device="h100_sxm", input_tokens=1024, output_tokens=256,
        concurrency=32, engine="vllm", parallelism={"tp": 1}, usd_per_device_hour=3,
    )  # fmt: skip
    request = {"model": "llama-3.1-8b", "device": "h100-sxm-80gb", "isl": 1024, "osl": 256}
    request |= {"concurrency": 32, "tp": 1, "usd_per_device_hour": 3}
    assert answer.to_dict() == client.post("/v1/llm/estimate", json=request).json()
    assert answer.tpot_ms.value > 0
    assert answer.ttft_ms.value > answer.metrics["ttft_service_ms"].value
    assert answer.deployment.price.source == "as given"
    dollars = 3 / 3600 / answer.tokens_per_s.value * 1e6
    assert answer.usd_per_million_tokens.value == pytest.approx(dollars)
    assert "weights take" in str(answer)
    by_size = forerun.llm(8e9, device="h100-sxm-80gb")
    assert (by_size.ttft_ms, by_size.deployment) == (None, None)
    with pytest.raises(forerun.InputError, match="output_tokens is missing"):
        forerun.llm("llama-3.1-8b", device="h100", input_tokens=1)


def test_names_of_other_tools_are_taken_for_a_language_model_and_unknown_ones_refused():
    given = {"model": "llama-3.1-8b", "device": "h100", "isl": 1024, "osl": 256, "tp": 1}
    answer = forerun.llm(**given, request_rate=2.0)
    lengths = {"input_tokens": 1024, "output_tokens": 256, "parallelism": {"tensor": 1}}
    same = forerun.llm("llama-3.1-8b", device="h100", requests_per_s=2.0, **lengths)
    assert answer.to_dict() == same.to_dict()
    assert answer.requests_per_s.value == 2.0
    assert answer.ttft_service_ms.value < answer.request_latency_ms.value
    with pytest.raises(forerun.InputError, match="did you mean concurrency"):
        forerun.llm(**given, concurency=2)


def test_programs_on_one_host_answer_as_over_http(client, tmp_path):
    other = PROFILE | {"name": "other"}
    file = tmp_path / "other.json"
    file.write_text(json.dumps(other))
    answer = forerun.colocate(PROFILE, residents=[file], cpus=2)
    asked = {"candidate": PROFILE, "host": {"residents": [other], "cpus": 2}}
    assert answer.to_dict() == client.post("/v1/colocation", json=asked).json()
    assert answer.candidate.program == "mine"
    assert [program.program for program in answer.residents] == ["other"]
    assert answer.candidate.p_cpu.value > 0
    assert answer.candidate.grade in ("A", "B", "C")
    assert answer.worst in ("mine", "other")
    assert f"{answer.candidate.p_wall.value:.2f}" in str(answer)


def test_a_profile_that_is_none_is_refused():
    with pytest.raises(forerun.InputError, match="name"):
        forerun.colocate({"alone": {}})
    with pytest.raises(forerun.InputError, match=r"Cannot read gone\.json"):
        forerun.colocate("gone.json")


def test_devices_are_found_by_kind_vendor_and_name():
    everything = forerun.devices()
    gpus = forerun.devices(kind="gpu", vendor="NVIDIA")
    assert 0 < len(gpus) < len(everything)
    assert {device.kind for device in gpus} == {"gpu"}
    assert everything["NVIDIA L4"].name == "l4"
    assert everything[0].name == everything.names()[0]
    assert everything.to_dict()["devices"][0]["name"] == everything[0].name
    with pytest.raises(UnknownDevice):
        forerun.devices(kind="cpu")["l4"]
    with pytest.raises(forerun.InputError, match="kind 'toaster' is not one of"):
        forerun.devices(kind="toaster")


def test_a_language_model_is_read_from_its_folder_with_its_quantisation(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    lengths = {"input_tokens": 1024, "output_tokens": 256, "concurrency": 4}
    plain = forerun.llm(tmp_path, device="h100", **lengths)
    assert forerun.llm(LLAMA, device="h100", **lengths).tpot_ms == plain.tpot_ms
    (tmp_path / "hf_quant_config.json").write_text('{"quantization": {"quant_algo": "FP8"}}')
    quantized = forerun.llm(tmp_path / "config.json", device="h100", **lengths)
    assert quantized.tpot_ms.value < plain.tpot_ms.value
    given = forerun.llm(tmp_path, quantization="int4", device="h100", **lengths)
    assert given.tpot_ms.value < quantized.tpot_ms.value


def test_what_is_no_device_is_one_clear_line(squeezenet):
    with pytest.raises(forerun.InputError, match="device: give a name, a spec sheet or a list"):
        forerun.predict(squeezenet, device=3)
