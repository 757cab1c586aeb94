"""Language models on processors: laws, limits, refusals, and that the doors agree."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.errors import UnanswerableQuery
from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.features.readers.language_model.quantization import with_formats
from forerun.features.readers.language_model.reader import named_language_model
from forerun.models.contract import PredictorContract
from forerun.models.llm_serving.domain import MAKER, WIDER_OF_MAKERS
from forerun.models.llm_serving.nearby_runs import NearbyRuns, Places
from forerun.models.llm_serving.processor_latency import (
    FEW_MODELS,
    OTHER_FORMAT,
    ProcessorLlmLatency,
)

CATALOG = DeviceCatalog.load()
ZEN = CATALOG.get("epyc-9654")


def query(engine="llama.cpp", model="llama-3.1-8b", weights="q4_k_m", device=ZEN, **load):
    own = {"input_tokens": 512.0, "output_tokens": 128.0, "concurrency": 1.0} | load
    described = with_formats(named_language_model(model), weights=weights)
    return Query(LlmDeployment(described, RequestLoad(**own), Engine(engine)), device)


def machine(cores, bandwidth, name="machine"):
    return ZEN.model_copy(
        update={
            **{"name": f"{name}-{cores}-{bandwidth}", "compute_units": cores},
            **{"memory_bandwidth_gbs": float(bandwidth), "aliases": ()},
        }
    )


def queries():
    return [
        replace(
            query(engine, model, weights, machine(cores, bandwidth)),
            software=Software(threads=cores),
        )
        for engine, weights in (("llama.cpp", "q4_k_m"), ("vllm", "bf16"))
        for model in ("qwen2.5-0.5b", "llama-3.1-8b")
        for cores in (1, 2, 4, 8, 16, 32, 64)
        for bandwidth in (20, 60, 150, 300)
    ]


@cache
def rows():
    """Runs that take twice the closed form, and longer with many threads, with noise of 5 %."""
    asked = queries()
    found = ProcessorLlmLatency().predict(asked).values
    noise = np.random.default_rng(0).normal(1.0, 0.05, len(asked))
    threads = np.array([own.software.threads for own in asked])
    slow = 2.0 * noise * (1.0 + threads / 32.0)
    groups = {
        "family": np.array([f"p{place % 4}" for place in range(len(asked))]),
        "model": np.array([str(len(own.deployment.model.layers)) for own in asked]),
        "device": np.array([own.device.name for own in asked]),
    }
    return Measurements(asked, {n: found[n] * slow for n in ("tpot_ms", "ttft_ms")}, groups)


@cache
def fitted():
    return ProcessorLlmLatency().fit(rows())


class TestProcessorLlmLatency(PredictorContract):
    make = staticmethod(fitted)
    training_rows = staticmethod(rows)
    queries = staticmethod(queries)


@pytest.fixture(scope="module", params=[False, True], ids=["closed form", "fitted"])
def predictor(request):
    return fitted() if request.param else ProcessorLlmLatency()


def times(predictor, asked, metric):
    return predictor.predict(asked).values[metric]


@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
@pytest.mark.parametrize("metric", ["tpot_ms", "ttft_ms"])
def test_more_cores_and_more_bandwidth_are_never_slower(predictor, engine, metric):
    cores = [
        query(engine, device=machine(own, 200)) for own in (1, 2, 3, 4, 6, 8, 24, 64, 90, 96, 192)
    ]
    bandwidth = [query(engine, device=machine(32, own)) for own in (10, 30, 90, 250, 800)]
    for asked in (cores, bandwidth):
        assert np.all(np.diff(times(predictor, asked, metric)) <= 1e-9)


@pytest.mark.parametrize("metric", ["tpot_ms", "ttft_ms"])
def test_fewer_bits_and_a_smaller_model_are_never_slower(predictor, metric):
    bits = [query(weights=own) for own in ("q2_k", "q4_k_m", "q5_k_m", "q6_k", "q8_0", "f16")]
    sizes = [query(model=own) for own in ("llama-3.2-1b", "llama-3.2-3b", "llama-3.1-8b")]
    for asked in (bits, sizes):
        assert np.all(np.diff(times(predictor, asked, metric)) >= 0.0)


def test_longer_prompts_and_contexts_are_never_faster(predictor):
    asked = [query(input_tokens=own) for own in (16.0, 128.0, 1024.0, 8192.0, 65536.0)]
    assert np.all(np.diff(times(predictor, asked, "ttft_ms")) > 0.0)
    assert np.all(np.diff(times(predictor, asked, "tpot_ms")) > 0.0)


def test_more_requests_in_flight_never_have_a_smaller_time_per_token(predictor):
    asked = [query("vllm", weights="bf16", concurrency=own) for own in (1.0, 2.0, 8.0, 64.0, 256.0)]
    assert np.all(np.diff(times(predictor, asked, "tpot_ms")) >= 0.0)


def test_vllm_sorts_the_vocabulary_of_models_whose_settings_ask_for_top_p(predictor):
    asked = query("vllm", weights="bf16")
    model = replace(asked.deployment.model, vocabulary=128_257)
    other = replace(asked, workload=replace(asked.deployment, model=model))
    sorted_ms, plain_ms = times(predictor, [asked, other], "tpot_ms")
    assert sorted_ms > plain_ms


def test_what_a_request_says_of_sampling_holds_whatever_the_model(predictor):
    usual = query("vllm", weights="bf16")
    greedy, drawn = (
        replace(usual, workload=replace(own, engine=replace(own.engine, sampling=sampling)))
        for own in [usual.deployment]
        for sampling in ("greedy", "top_p")
    )
    fast, *slow = times(predictor, [greedy, usual, drawn], "tpot_ms")
    assert fast < slow[0] == slow[1]


def test_a_fit_finds_costs_again():
    asked = queries()
    kept = [own for own in asked if own.deployment.engine.name == "vllm"]
    found = ProcessorLlmLatency().predict(kept).values
    groups = {"family": np.array([own.device.name for own in kept])}
    rows = Measurements(kept, {"tpot_ms": 3.0 * found["tpot_ms"]}, groups)
    fitted = ProcessorLlmLatency(calibrated=False).fit(rows).predict(kept).values["tpot_ms"]
    assert np.abs(np.log(fitted / rows.column("tpot_ms"))).max() < 0.15


def test_what_runs_of_a_microarchitecture_show_holds_for_it_alone():
    other = ZEN.model_copy(update={"name": "other", "architecture": "zen3", "aliases": ()})
    both = [
        replace(query(device=device), software=Software(threads=cores))
        for device in (ZEN, other)
        for cores in (4, 8, 16, 32, 64)
        for _ in range(10)
    ]
    plain = ProcessorLlmLatency().predict(both).values["tpot_ms"]
    groups = {"family": np.array([str(own.device.architecture) for own in both])}
    rows = Measurements(both, {"tpot_ms": plain * np.repeat([1.0, 1.6], 50)}, groups)
    fitted = ProcessorLlmLatency(calibrated=False).fit(rows)
    found, alone = (times(own, both, "tpot_ms") for own in (fitted, replace(fitted, nearby={})))
    measured = rows.column("tpot_ms")
    assert np.abs(np.log(found / measured)).max() < 0.1 < np.abs(np.log(alone / measured)).max()
    unknown = [replace(both[0], device=ZEN.model_copy(update={"architecture": "ice-lake"}))]
    assert times(fitted, unknown, "tpot_ms") == times(
        replace(fitted, nearby={}), unknown, "tpot_ms"
    )


@pytest.mark.parametrize("measured", [["tpot_ms", "ttft_ms"], ["tokens_per_s"]])
def test_measurements_of_a_gpu_move_its_answers_with_that_engine_alone(predictor, measured):
    asked = [query(device=CATALOG.get(name)) for name in ("rtx-4090", "rtx-3090")]
    before = predictor.predict(asked).values
    slower = {name: before[name][:1] * (0.5 if "_s" in name else 2.0) for name in measured}
    unread = [query("sglang", device=ZEN)]
    rows = Measurements(asked[:1] + unread, {n: np.append(v, v) for n, v in slower.items()}, {})
    adapted = predictor.adapt(rows)
    after = adapted.predict(asked)
    for name in ("tpot_ms", "ttft_ms", "request_latency_ms"):
        assert after.values[name] / before[name] == pytest.approx([2.0, 1.0], rel=0.1)
        assert after.low[name][0] < 2.0 * before[name][0] < after.high[name][0]
    other = [query("vllm", weights="bf16")]
    assert times(adapted, other, "tpot_ms") == times(predictor, other, "tpot_ms")


def test_errors_of_runs_fade_away_from_them():
    logs = np.array([[3, 33, 0], [3, 34, 0], [5, 33, 0], [9, 40, 0], [3, 33, 2], [3, 33, 5]], float)
    at = Places(np.array(["zen4"] * 6), logs)
    near = NearbyRuns.of(at.take(np.array([0] * 9)), np.full(9, 0.4)).at(at)
    assert 0.3 < near[0] < 0.4
    assert near[0] > near[1] > 0.0
    assert near[0] > near[2] > near[3] >= 0.0
    assert near[0] > near[4] > near[5] >= 0.0
    elsewhere = Places(np.array(["zen4, several nodes"]), logs[:1])
    assert NearbyRuns.of(at, np.ones(6)).at(elsewhere).tolist() == [0.0]


def test_open_threads_are_those_that_are_fastest(predictor):
    asked = [replace(query(), software=Software(threads=own)) for own in (1, 8, 32, 96)]
    least = times(predictor, [query()], "tpot_ms")[0]
    assert least <= times(predictor, asked, "tpot_ms").min() + 1e-9


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (query("trtllm"), "vLLM and llama.cpp"),
        (query(concurrency=4.0), "one request at a time"),
        (query("vllm", concurrency=None, requests_per_s=1.0), "give concurrency"),
    ],
)
def test_what_no_run_covers_is_refused_in_one_line(predictor, asked, said):
    with pytest.raises(UnanswerableQuery, match=said):
        predictor.predict([asked])


def test_more_requests_than_the_engine_works_on_are_refused(predictor):
    plain = query("vllm").deployment
    load = replace(plain.load, concurrency=257.0)
    few = replace(plain, engine=replace(plain.engine, max_sequences=2))
    for own in (replace(plain, load=load), replace(few, load=replace(load, concurrency=3.0))):
        with pytest.raises(UnanswerableQuery, match="at once"):
            predictor.predict([replace(query("vllm"), workload=own)])


def test_settings_without_an_effect_on_processors_are_refused(predictor):
    plain = query("vllm")
    apart = replace(plain.deployment, prefill=Pool())
    many = replace(plain.deployment, pool=Pool(Parallelism(tensor=16)))
    held = replace(plain.deployment, engine=replace(plain.deployment.engine, hold_iterations=5.0))
    for own, said in ((apart, "prefill workers"), (many, "8 sockets"), (held, "delayed prefill")):
        with pytest.raises(UnanswerableQuery, match=said):
            predictor.predict([replace(plain, workload=own)])


def test_weights_in_another_format_than_was_measured_are_a_limit(predictor):
    limits = predictor.predict([query(), query(weights="q8_0")]).limits
    assert [OTHER_FORMAT in own for own in limits] == [False, True]
    assert all(FEW_MODELS in own for own in limits)


def test_gpus_of_makers_without_runs_have_wider_intervals_and_processors_have_not(predictor):
    names = ("a100-sxm-80gb", "arc-b580", "epyc-9654", "xeon-platinum-8380")
    found = predictor.predict([query(device=CATALOG.get(name)) for name in names])
    reach = np.log(found.high["tpot_ms"] / found.low["tpot_ms"])
    assert reach[1] == pytest.approx(WIDER_OF_MAKERS * reach[0])
    assert reach[3] == pytest.approx(reach[2])
    assert [MAKER in own for own in found.limits] == [False, True, False, False]


def on_a100(engine=None, pipeline=1, **load):
    one = query(device=CATALOG.get("a100-sxm-80gb"), **load)
    engine, pool = Engine("llama.cpp", **engine or {}), Pool(Parallelism(pipeline=pipeline))
    return replace(one, workload=replace(one.deployment, engine=engine, pool=pool))


def test_no_setting_makes_one_prompt_faster_than_one_stream_on_one_gpu(predictor):
    plain = on_a100()
    same = [on_a100({"max_sequences": slots}) for slots in (1, 4, 32)]
    slower = [
        *(on_a100(pipeline=stages) for stages in (2, 4, 8)),
        *(on_a100({"max_sequences": 8}, concurrency=float(number)) for number in (2, 4, 8)),
        *(on_a100({"max_batched_tokens": tokens}) for tokens in (512, 64, 16)),
        on_a100(concurrency=None, requests_per_s=0.5),
    ]
    for metric in ("tpot_ms", "ttft_ms"):
        least, *found = times(predictor, [plain, *same, *slower], metric)
        assert found[:3] == pytest.approx([least] * 3)
        assert min(found) >= least * (1.0 - 1e-9)
        assert found[3:6] == sorted(found[3:6])
        assert found[5] == pytest.approx(least, rel=0.1)  # stages pass on activations alone


def test_what_runs_of_one_stream_show_holds_for_every_load_and_split(predictor):
    asked = [on_a100(), on_a100(pipeline=4), on_a100({"max_sequences": 4}, concurrency=4.0)]
    before = predictor.predict(asked).values
    rows = {name: 2.0 * before[name][:1] for name in ("tpot_ms", "ttft_ms")}
    after = predictor.adapt(Measurements(asked[:1], rows, {})).predict(asked).values
    for name in rows:
        ratios = after[name] / before[name]
        assert ratios == pytest.approx(ratios[:1].repeat(3))


def test_gpus_that_others_measured_are_left_to_the_predictor_of_gpus(predictor):
    answered = {
        name: predictor.answers(query(device=CATALOG.get(name)))
        for name in ("a100-sxm-80gb", "arc-b580", "intel-max-1550", "mi300x")
    }
    assert [*answered.values()] == [True, True, False, False]
