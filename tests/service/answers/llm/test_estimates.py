"""Estimates of deployed language models: figures agree, and what is left open is said."""

import pytest
from fastapi.testclient import TestClient

from forerun.models.artifact.sealed_folder import bundled
from forerun.service.http.app import create_app
from forerun.service.schemas.serving import EXAMPLE_LLM
from tests.service.answers.llm.predictors import (
    ASKED,
    LLAMA,
    Times,
    loaded_with,
    without_times,
)

ESTIMATE, PREDICT = "/v1/llm/estimate", "/v1/predict"


@pytest.fixture
def times():
    return Times()


@pytest.fixture
def service(settings, times):
    loaded = loaded_with(times, bundled())
    with TestClient(create_app(settings, loaded), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def ask(service):
    def asked(status=200, **changes):
        content = {name: value for name, value in (ASKED | changes).items() if value is not None}
        answer = service.post(ESTIMATE, json=content)
        assert answer.status_code == status, answer.text
        return answer.json()

    return asked


def values(answer):
    return {name: metric["value"] for name, metric in answer["metrics"].items()}


def test_energy_and_price_follow_from_power_rate_and_devices(ask):
    answer = ask(device_count=2, tp=2, usd_per_device_hour=3.0)
    own = values(answer)
    assert answer["device_count"] == 2
    assert answer["model"]["total_parameters"] == pytest.approx(8.03e9, rel=0.01)
    assert own["tokens_per_s"] == pytest.approx(own["requests_per_s"] * 256)
    assert own["tokens_per_s_per_device"] == pytest.approx(own["tokens_per_s"] / 2)
    assert own["energy_per_token_j"] == pytest.approx(2 * own["power_w"] / own["tokens_per_s"])
    dollars = 2 * 3.0 / 3600 / own["tokens_per_s"] * 1e6
    assert own["usd_per_million_tokens"] == pytest.approx(dollars)


def test_the_interval_of_a_price_is_that_of_the_rate_turned_round(ask):
    answer = ask(usd_per_device_hour=3.0)["metrics"]
    rate, price = answer["tokens_per_s"], answer["usd_per_million_tokens"]
    assert price["low"] * rate["high"] == pytest.approx(price["value"] * rate["value"])
    assert price["high"] * rate["low"] == pytest.approx(price["value"] * rate["value"])
    energy, power = answer["energy_per_token_j"], answer["power_w"]
    assert energy["high"] / energy["value"] > power["high"] / power["value"]


def test_a_follower_has_the_lowest_grade_of_its_sources(ask):
    metrics = ask(device="a100-sxm-80gb", usd_per_device_hour=1)["metrics"]
    grades = {name: metric["grade"] for name, metric in metrics.items()}
    assert grades["energy_per_token_j"] == max(grades["power_w"], grades["tokens_per_s"])
    assert grades["usd_per_million_tokens"] == grades["tokens_per_s"]


def test_an_interval_that_is_very_wide_is_answered_with_the_lowest_grade(settings):
    with TestClient(create_app(settings, loaded_with(Times(spread=4.0), bundled()))) as client:
        metrics = client.post(ESTIMATE, json=ASKED).json()["metrics"]
    ttft, tpot = metrics["ttft_ms"], metrics["tpot_ms"]
    ends = (ttft["value"] / ttft["low"], ttft["high"] / ttft["value"])
    assert ends == pytest.approx((4.0, 4.0), rel=0.05)
    assert ttft["grade"] == "C"
    assert "more than 10" in ttft["grade_reason"]
    assert "more than 10" not in tpot["grade_reason"]


def test_memory_is_that_of_the_weights_and_the_cache(ask):
    (memory,) = ask()["deployment"]["memory"]
    assert memory["weights_mib"] == pytest.approx(2 * 8.03e9 / 2**20, rel=0.01)
    assert memory["cache_bytes_per_token"] == 131_072
    assert memory["cache_mib"] == pytest.approx(32 * (1024 + 256) * 131_072 / 2**20)
    assert memory["fits"]


def test_the_smallest_tensor_parallelism_that_fits_is_chosen_and_said(ask):
    large = LLAMA | {"num_hidden_layers": 320}
    answer = ask(model={"config": large}, tp=None)
    degree = answer["deployment"]["pool"]["parallelism"]["tensor"]
    assert degree > 1
    assert f"tensor parallel {degree}, the smallest that fits" in answer["deployment"]["chosen"][0]
    smaller = ask(model={"config": large}, tp=degree // 2)
    assert not smaller["deployment"]["memory"][0]["fits"]
    assert not smaller["in_domain"]
    assert any(limit["severity"] == "refusal" for limit in smaller["limit_details"])


def test_further_devices_are_further_workers(ask):
    answer = ask(device_count=4, tp=2)
    assert answer["deployment"]["pool"]["workers"] == 2
    problem = ask(422, device_count=3, tp=2)
    assert problem["errors"][0]["pointer"] == "#/device_count"
    assert "3 devices cannot be divided into workers of 2: give 2 or 4" in problem["detail"]


def test_a_pool_for_prompts_has_devices_of_its_own(ask):
    answer = ask(prefill={"workers": 3, "parallelism": {"tp": 2}})
    assert answer["device_count"] == 1 + 6
    assert [memory["phase"] for memory in answer["deployment"]["memory"]] == ["prefill", "decode"]


def test_the_closed_form_answers_where_no_predictor_is_fitted(settings):
    with TestClient(create_app(settings, without_times(bundled()))) as client:
        answer = client.post(ESTIMATE, json=ASKED).json()
        assert answer["metrics"]["tpot_ms"]["value"] > 0
        assert answer["metrics"]["tpot_ms"]["grade"] == "C"
        assert not answer["in_domain"]
        refused = client.post(ESTIMATE, json=ASKED | {"device": "gaudi2"})
        assert refused.status_code == 422
        assert "GPU" in refused.json()["detail"]


def test_more_arrivals_than_can_be_answered_are_limited_by_the_deployment(settings):
    with TestClient(create_app(settings, bundled())) as client:
        load = {"concurrency": None, "requests_per_s": 500}
        asked = {name: own for name, own in (ASKED | load).items() if own is not None}
        answer = client.post(ESTIMATE, json=asked).json()
        assert answer["deployment"]["limited_by"] != "arrival rate"
        assert answer["metrics"]["requests_per_s"]["value"] < 500
        assert any(limit["severity"] != "note" for limit in answer["limit_details"])


SHEET = {
    "name": "mine", "vendor": "me", "kind": "gpu", "memory_gib": 48, "compute_units": 142,
    "memory_bandwidth_gbs": 864, "peak_tflops": {"fp32": 90, "fp16": 360}, "tdp_w": 350,
}  # fmt: skip


def test_a_sheet_by_value_is_answered(ask):
    answer = ask(device=SHEET)
    assert answer["device"]["name"] == "mine"
    assert answer["deployment"]["memory"][0]["usable_mib"] == 48 * 1024
    assert answer["deployment"]["price"] is None


def test_degrees_are_checked_on_a_device_that_names_no_memory(ask):
    problem = ask(422, device=SHEET | {"memory_gib": None}, tp=None, pp=100)
    assert "more than the model has layers" in problem["detail"]


def test_support_says_where_each_metric_was_measured(service):
    answer = service.get("/v1/llm/support").json()
    measured = {one["metric"]: one for one in answer["measured"]}
    assert "h100-sxm-80gb" in measured["power_w"]["devices"]
    assert measured["usd_per_million_tokens"]["datasets"] == []
    assert any("Llama-3.1-8B" in name for name in answer["models"])
    assert "llama" in answer["families"]
    assert "h100-sxm-80gb" in answer["devices"]
    assert "epyc-7742" in answer["devices"]
    assert answer["also"]["parallelism.tensor"] == ["tp", "tp_size", "tensor_parallel_size"]


def test_no_price_is_made_up(ask):
    missing = ask(device="rtx-4090", tp=2)["missing"]
    assert "usd_per_device_hour" in missing["usd_per_million_tokens"]


def test_a_request_without_lengths_is_answered_as_before(service):
    answer = service.post(ESTIMATE, json=EXAMPLE_LLM).json()
    assert set(answer["metrics"]) == {"power_w", "tokens_per_s", "energy_per_token_j"}
    assert answer["deployment"] is None


def test_a_batch_is_predicted_in_one_call_and_each_item_has_its_own_problem(service, times):
    items = [ASKED, ASKED | {"device": "h101"}, ASKED | {"tp": 0}, EXAMPLE_LLM, ASKED]
    answer = service.post(f"{ESTIMATE}:batch", json={"items": items}).json()["items"]
    assert len(times.calls) == 1
    assert values(answer[0]) == values(answer[4])
    assert values(answer[0]) == pytest.approx(values(service.post(ESTIMATE, json=ASKED).json()))
    assert (answer[1]["status"], answer[1]["errors"][0]["pointer"]) == (404, "#/items/1/device")
    assert (answer[2]["status"], answer[2]["instance"]) == (422, "/items/2")
    assert answer[3] == service.post(ESTIMATE, json=EXAMPLE_LLM).json()


def test_predict_answers_deployments_with_the_same_figures(service, ask):
    workload = {"kind": "llm_deployment", "model": ASKED["model"], "tp": 1}
    workload |= {name: ASKED[name] for name in ("input_tokens", "output_tokens", "concurrency")}
    answer = service.post(
        PREDICT, json={"workload": workload, "device": ASKED["device"], "metrics": ["tpot_ms"]}
    ).json()
    assert answer["metrics"]["tpot_ms"]["value"] == values(ask())["tpot_ms"]
    whole = service.post(PREDICT, json={"workload": workload, "device": ASKED["device"]}).json()
    known = {name: own["value"] for name, own in whole["metrics"].items() if own is not None}
    assert known == values(ask())
    assert set(whole["missing"]) == set(whole["metrics"]) - set(known)


def test_each_part_says_its_share_and_what_it_rests_on(ask):
    parts = {part["name"]: part for part in ask()["deployment"]["parts"]}
    for phase in ("prefill_share", "decode_share"):
        assert sum(part[phase] or 0 for part in parts.values()) == pytest.approx(1)
    assert parts["prefill_attention"]["decode_share"] == 0
    assert parts["power"]["basis"] == "measured"
    assert parts["memory"]["basis"] == "analytic"
    assert parts["dense"]["basis"] == "measured"
    other = {part["name"]: part for part in ask(device="l40s")["deployment"]["parts"]}
    assert other["power"]["basis"] == "transferred"


def test_a_part_is_measured_where_its_kernels_were_measured_on_the_device(ask):
    """No run on an A100 or RTX 4090 is in the training set; products in bf16 of the A100 are."""

    def parts(device):
        answer = ask(device=device)
        return {part["name"]: part for part in answer["deployment"]["parts"]}

    measured, other = parts("a100-sxm-80gb"), parts("rtx-4090")
    assert measured["dense"]["basis"] == "measured"
    assert "gemm/bf16" in measured["dense"]["reason"]
    assert other["dense"]["basis"] == "transferred"


@pytest.mark.parametrize(
    ("changes", "bound"),
    [
        ({"concurrency": 1}, "memory bandwidth"),
        ({"input_tokens": 8192, "output_tokens": 2}, "arithmetic"),
        ({"concurrency": 4000}, "cache capacity"),
        ({"concurrency": None, "requests_per_s": 0.1}, "arrival rate"),
    ],
)
def test_what_bounds_the_rate_is_said(ask, changes, bound):
    assert ask(**changes)["deployment"]["limited_by"] == bound


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"device": "h101"}, "#/device"),
        ({"model": {"name": "lama-3.1-8b"}}, "#/model/name"),
        ({"model": {"name": "llama-3.1-8b", "quantization": "zip"}}, "#/model/quantization"),
        ({"model": {"config": {"model_type": "what"}}}, "#/model/config/model_type"),
    ],
)
def test_a_problem_names_its_field(ask, changes, pointer):
    status = 404 if pointer in ("#/device", "#/model/name") else 422
    assert ask(status, **changes)["errors"][0]["pointer"] == pointer


@pytest.mark.parametrize(
    "engine, weights, given, said",
    [
        ("trtllm", "fp8", None, True),
        ("vllm", "fp8", None, False),
        ("vllm", "nvfp4", None, True),
        ("trtllm", "fp8", "bf16", False),
        ("trtllm", None, None, False),
    ],
)
def test_caches_are_those_of_checkpoints_with_such_weights(ask, engine, weights, given, said):
    """TensorRT-LLM serves FP8 from checkpoints of ModelOpt, whose keys and values are in FP8."""
    model = {"name": "llama-3.1-8b", "quantization": weights, "cache_format": given}
    model = {name: own for name, own in model.items() if own is not None}
    answer = ask(model=model, device="b200-sxm-180gb", backend=engine)
    line = f"keys and values in fp8, as checkpoints in {weights} have them"
    assert (line in answer["deployment"]["chosen"]) == said
    (memory,) = answer["deployment"]["memory"]
    assert memory["cache_bytes_per_token"] == 131_072 / (2 if said else 1)
    assert answer["model"]["cache_bytes_per_token"] == memory["cache_bytes_per_token"]
