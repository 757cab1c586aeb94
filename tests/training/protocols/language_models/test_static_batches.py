"""Protocols of static batches and of serving deployments."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.aiconfigurator_serving import QUERY
from forerun.data.datasets.language_models.llm_inference_bench import RESULTS
from forerun.data.device import DeviceCatalog
from forerun.data.errors import InputError
from forerun.data.language_models.deployment import Parallelism
from forerun.models.llm_serving.latency import LlmLatency
from forerun.training.evaluation.predictions import predict_task
from forerun.training.protocols.language_models.aiconfigurator_answers import arguments, asked
from forerun.training.protocols.language_models.aiconfigurator_serving import (
    asked_by_rate,
    serving_runs,
)
from forerun.training.protocols.language_models.static_batches import (
    RATE,
    LlmInferenceBenchProtocols,
    benchmark_rows,
    known_networks,
    splitwise_rows,
)
from tests.training.protocols.language_models.batch_tables import (
    CATALOG,
    RUN,
    benchmark_table,
    row,
)

# Rows of both tables as queries: frameworks, devices, networks, repeats.


def query(**changes):
    return benchmark_rows(pd.DataFrame([row(**changes)]), CATALOG)[0].queries[0]


def run(**changes):
    return splitwise_rows(pd.DataFrame([RUN | changes]), CATALOG)[0].queries[0]


def test_a_row_is_a_batch_of_equal_requests_on_tensor_parallel_devices():
    found = query(num_devices=4, framework="TensorRT-LLM", in_out_len=256, batch_size=32)
    load = found.deployment.load
    assert (load.input_tokens, load.output_tokens, load.concurrency) == (256, 256, 32)
    assert found.deployment.pool.parallelism == Parallelism(4)
    assert found.operation.device_count == 4
    assert (found.deployment.engine.name, found.software.framework) == ("trtllm", "TensorRT-LLM")
    assert found.deployment.engine.max_batched_tokens is None


def test_llama_cpp_runs_one_sequence_in_chunks_with_layers_split_over_devices():
    found = query(num_devices=4, framework="llama.cpp", batch_size=32)
    assert found.deployment.load.concurrency == 1
    assert found.deployment.engine.max_batched_tokens == 32
    assert found.deployment.pool.parallelism == Parallelism(pipeline=4)


@pytest.mark.parametrize(
    ("hardware", "device", "devices"),
    [
        ("Nvidia A100 GPU", "a100-sxm-40gb", 2),
        ("AMD MI250 GPU", "mi250", 4),
        ("Intel PVC GPU", "intel-max-1550", 2),
        ("Intel Max 1550", "intel-max-1550", 2),
        ("SambaNova SN40L", "sn40l", 2),
    ],
)
def test_an_accelerator_is_a_device_or_several(hardware, device, devices):
    found = query(hardware=hardware, num_devices=2)
    assert (found.device.name, found.operation.device_count) == (device, devices)


def test_rates_count_written_tokens_and_results_are_not_part_of_the_query():
    frame = pd.DataFrame([row(), row(latency_s=9.0, throughput_tok_s=9.0)])
    measured, kept = benchmark_rows(frame, CATALOG)
    np.testing.assert_array_equal(measured.values["tokens_per_s"], [1024.0, 4.5])
    np.testing.assert_array_equal(measured.values["latency_ms"], [2000.0, 9000.0])
    assert measured.queries[0] == measured.queries[1]
    np.testing.assert_array_equal(kept, [0, 1])


def test_models_without_a_configuration_are_left_out():
    frame = pd.DataFrame([row(model="nobody/unheard-of"), row()])
    np.testing.assert_array_equal(known_networks(frame), [False, True])
    measured, kept = benchmark_rows(frame, CATALOG)
    assert (len(measured), kept.tolist()) == (1, [1])


def test_a_run_of_splitwise_is_a_batch_on_a_server():
    found = run()
    load = found.deployment.load
    assert (load.input_tokens, load.output_tokens, load.concurrency) == (512, 128, 4)
    assert found.deployment.pool.parallelism == Parallelism(8)
    assert found.device.name == "a100-sxm-80gb"
    assert len(found.deployment.model.layers) == 80
    assert len(run(model="bloom-176b").deployment.model.layers) == 70


def test_power_capped_gpus_have_a_separate_name_and_the_same_sheet():
    plain, capped = run(hardware="h100-80gb").device, run(hardware="h100-80gb-pcap").device
    assert plain.name != capped.name
    assert capped.model_copy(update={"name": plain.name}) == plain


def test_repeats_of_a_run_are_their_median():
    times = [5000.0, 4600.0, 4900.0]
    frame = pd.DataFrame(
        [*(RUN | {"e2e_time_ms": time} for time in times), RUN | {"batch_size": 8}]
    )
    measured, kept = splitwise_rows(frame, CATALOG)
    np.testing.assert_array_equal(measured.values["latency_ms"], [4900.0, 5000.0])
    np.testing.assert_array_equal(kept, [0, 3])


def test_batches_whose_answers_ended_early_are_left_out():
    frame = pd.DataFrame([RUN | {"token_size": 4096}, RUN])
    measured, kept = splitwise_rows(frame, CATALOG)
    np.testing.assert_array_equal(kept, [1])
    np.testing.assert_allclose(measured.values["tokens_per_s"], 4 * 128 / 5.0)


# Protocols of llm_inference_bench: what is held out, support sets, baselines and intervals.


PROTOCOLS = LlmInferenceBenchProtocols()


def bundle(folder, frame):
    return Bundle.write(folder / "b", PROTOCOLS.dataset, {RESULTS: frame})


@pytest.fixture(scope="module")
def folds(tmp_path_factory):
    frame = benchmark_table()
    other = frame[frame["hardware"] == "Intel PVC GPU"].assign(hardware="Intel Max 1550")
    both = pd.concat([frame, other.iloc[:4]], ignore_index=True)
    return list(PROTOCOLS.folds(bundle(tmp_path_factory.mktemp("bench"), both), CATALOG))


def of(folds, device):
    return next(fold for fold in folds if fold.tasks[0].device == device)


def test_ten_rows_are_chosen_by_the_predictor_or_at_random(folds):
    zero, suggested, random = of(folds, "mi250").tasks
    assert (zero.support.shots, suggested.support.shots, random.support.shots) == (0, 10, 10)
    assert (suggested.support.suggested, random.support.suggested) == (True, False)
    assert zero.name == f"unseen_device/{RATE}"


def test_support_rows_are_not_scored_and_reduce_the_error(folds):
    fold = of(folds, "a100-sxm-40gb")
    errors = {}
    for task in fold.tasks:
        found = predict_task(task, LlmLatency(), None, 0, 0)
        columns = found.columns
        assert len(columns["measured"]) == len(task.held_out) - task.support.shots
        errors[task.name] = np.median(np.abs(columns["predicted"] / columns["measured"] - 1))
    zero, suggested, random = errors.values()
    assert zero > 0.2
    assert max(suggested, random) < 0.08


# Serving runs as queries: sizes by several conventions, formats, repeats and groups.


def table(*rows):
    plain = dict.fromkeys((*QUERY, "id", "source"), np.nan) | {
        "id": "run",
        "source": "file",
        "backend": "vllm",
        "backend_version": "0.15.1",
        "model_path": "meta-llama/Llama-3.1-8B-Instruct",
        "system": "h100_sxm",
        "mode": "agg",
        "isl": 1024,
        "osl": 128,
        "tp_size": 2.0,
        "pp_size": 1.0,
        "concurrency": 8.0,
        "ttft_ms": 50.0,
        "tpot_ms": 9.0,
    }
    frame = pd.DataFrame([plain | row for row in rows])
    texts = ["precision", "gemm_quant_mode", "moe_quant_mode", "backend_version"]
    return frame.astype(dict.fromkeys(texts, "object"))


def only(**row):
    return serving_runs(table(row), CATALOG)[0].queries[0].deployment


def test_a_run_is_a_deployment_with_its_lengths_load_and_engine():
    one = only()
    assert (one.load.input_tokens, one.load.output_tokens, one.load.concurrency) == (1024, 128, 8)
    assert (one.engine.name, one.engine.version) == ("vllm", "0.15.1")
    assert one.devices == one.pool.parallelism.tensor == 2


@pytest.mark.parametrize(
    ("batch_size", "concurrency", "workers"),
    [(13.0, 416.0, 16), (16.0, 32.0, 1), (32.0, 32.0, 1), (64.0, 32.0, 1), (np.nan, 8.0, 1)],
)
def test_the_batch_per_device_gives_the_number_of_workers(batch_size, concurrency, workers):
    one = only(batch_size=batch_size, concurrency=concurrency)
    assert (one.pool.workers, one.devices) == (workers, 2 * workers)


@pytest.mark.parametrize(
    ("sizes", "devices", "ranks"),
    [
        ({"tp_size": 16.0, "moe_tp_size": 4.0, "moe_ep_size": 4.0}, 4, 1),
        ({"tp_size": 1.0, "attention_dp_size": 4.0, "moe_ep_size": 4.0}, 4, 4),
        ({"tp_size": 4.0, "attention_dp_size": 4.0, "moe_ep_size": 16.0}, 4, 4),
        ({"tp_size": 64.0, "moe_tp_size": 8.0, "moe_ep_size": 8.0}, 8, 1),
        ({"tp_size": 16.0, "id": "x_tp16_ep1"}, 16, 16),
    ],
)
def test_sizes_in_every_convention_count_each_device_once(sizes, devices, ranks):
    one = only(**sizes)
    assert (one.devices, one.pool.parallelism.attention_data) == (devices, ranks)


def test_disaggregated_runs_have_a_pool_for_prompts():
    sizes = {"mode": "disagg", "prefill_tp_size": 4.0, "decode_tp_size": 8.0}
    one = only(**sizes, prefill_num_workers=2.0)
    assert one.prefill.workers == 2
    assert one.devices == 8 + 2 * 4


def test_formats_of_weights_are_those_of_the_run():
    one = only(precision="fp8", gemm_quant_mode="fp8_block", backend="trtllm")
    assert one.model.formats.of_layer(0).dense == "fp8"
    assert one.model.formats.cache == "fp8"
    assert only().model.formats.of_layer(0).dense == "bf16"


def test_a_repeated_run_is_left_out_and_positions_are_those_of_the_table():
    runs, kept = serving_runs(table({}, {"tpot_ms": 9.001}, {"concurrency": 16.0}), CATALOG)
    assert kept.tolist() == [0, 2]
    assert len(set(runs.groups["deployment"])) == 1
    assert runs.groups["device"].tolist() == ["h100-sxm-80gb"] * 2


CAMPAIGN = {"source": "source_file=2026-03-25.csv", "system": "b200_sxm", "precision": "fp8"}
BY_RECIPE = CAMPAIGN | {"model_path": "deepseek-ai/DeepSeek-R1", "tp_size": 8.0}


@pytest.mark.parametrize(
    ("row", "settings"),
    [
        (
            BY_RECIPE | {"backend": "trtllm", "backend_version": "1.2.0rc6.post3", "isl": 1024},
            {"draft_tokens": 3, "draft_acceptance": 0.7, "max_batched_tokens": 1024 + 4 * 8 + 64},
        ),
        (
            BY_RECIPE | {"backend": "sglang", "backend_version": "0.5.9", "concurrency": 16.0},
            {"draft_tokens": 2, "hold_iterations": 15.0, "memory_share": 0.82},
        ),
        (BY_RECIPE | {"backend": "sglang"}, {"draft_tokens": 0, "hold_iterations": 5.0}),
        (
            BY_RECIPE | {"backend": "sglang", "source": "another campaign"},
            {"hold_iterations": 0.0, "max_batched_tokens": None, "memory_share": 0.9},
        ),
    ],
)
def test_runs_have_the_settings_of_their_campaigns_recipes(row, settings):
    engine = only(**row).engine
    assert {name: getattr(engine, name) for name in settings} == settings


def test_keys_and_values_have_the_format_of_the_recipe():
    """FP8 on SGLang's B200; on its H200, that of the model."""
    for system, form in (("b200_sxm", "fp8"), ("h200_sxm", "bf16")):
        one = only(**BY_RECIPE | {"backend": "sglang", "system": system})
        assert one.model.formats.cache == form


def test_the_batch_of_each_rank_stands_in_for_missing_concurrency():
    sizes = {"tp_size": 1.0, "attention_dp_size": 4.0, "moe_ep_size": 4.0}
    assert only(concurrency=np.nan, batch_size=8.0, **sizes).load.concurrency == 32.0


def test_a_run_becomes_a_query_with_its_served_request_rate():
    runs = serving_runs(
        table({"osl": 101, "ttft_ms": 100.0, "tpot_ms": 9.0}, {"ttft_ms": np.nan}),
        CATALOG,
    )[0]
    (query,) = asked_by_rate(runs).queries
    load = query.deployment.load
    # 8 requests in flight, each 100 ms + 100 times 9 ms long.
    assert load.concurrency is None
    assert load.requests_per_s == pytest.approx(8.0)
    assert query.deployment.engine == runs.queries[0].deployment.engine


# What AIConfigurator is asked about serving runs, and what of its answers is stored.


STORED = Path(__file__).resolve().parents[4] / "docs/results/aiconfigurator.csv"
HAS_PEER = find_spec("aiconfigurator") is not None
DEEPSEEK = {"model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "backend": "sglang"}
SPREAD = {"tp_size": 1.0, "attention_dp_size": 8.0, "moe_ep_size": 8.0, "moe_tp_size": 1.0}


def given(**row):
    runs = serving_runs(table(row), DeviceCatalog.load())[0]
    return arguments(runs.queries[0], str(runs.groups["model"][0]))


def test_the_query_of_a_dense_model_has_no_expert_sizes():
    assert given() == {
        "model_path": "meta-llama/Meta-Llama-3.1-8B",
        "system_name": "h100_sxm",
        "backend_name": "vllm",
        "isl": 1024,
        "osl": 128,
        "tp_size": 2,
        "pp_size": 1,
        "attention_dp_size": 1,
        "batch_size": 8,
        "gemm_quant_mode": "bfloat16",
    }


def test_a_batch_is_that_of_one_data_parallel_rank():
    found = given(**DEEPSEEK, **SPREAD, precision="fp8", concurrency=100.0)
    assert (found["tp_size"], found["attention_dp_size"], found["batch_size"]) == (1, 8, 13)
    assert (found["moe_ep_size"], found["moe_tp_size"]) == (8, 1)


def test_a_batch_is_that_of_one_worker():
    assert given(batch_size=13.0, concurrency=416.0)["batch_size"] == 26


def test_experts_that_are_not_spread_are_divided_over_all_devices():
    found = given(**DEEPSEEK, tp_size=8.0, moe_tp_size=8.0, moe_ep_size=1.0)
    assert (found["moe_ep_size"], found["moe_tp_size"]) == (1, 8)


@pytest.mark.parametrize(
    ("model", "precision", "dense", "experts"),
    [
        ("deepseek-ai/DeepSeek-V3", "fp8", "fp8_block", "fp8_block"),
        ("deepseek-ai/DeepSeek-V3", "fp4", "nvfp4", "nvfp4"),
        ("openai/gpt-oss-120b", "fp4", None, None),
        ("meta-llama/Llama-3.1-70B", "fp8", "fp8", None),
    ],
)
def test_formats_are_those_of_the_checkpoint(model, precision, dense, experts):
    found = given(model_path=model, precision=precision, tp_size=8.0)
    assert found.get("gemm_quant_mode") == dense
    assert found.get("moe_quant_mode") == experts


@pytest.mark.parametrize(
    ("system", "engine", "form"),
    [
        ("b200_sxm", "trtllm", "w4a8_mxfp4_mxfp8"),
        ("b200_sxm", "vllm", None),
        ("h100_sxm", "trtllm", None),
    ],
)
def test_activations_of_mxfp4_experts_are_fp8_under_tensorrt_on_blackwell(system, engine, form):
    found = given(model_path="openai/gpt-oss-120b", system=system, backend=engine, tp_size=8.0)
    assert found.get("moe_quant_mode") == form


def test_disaggregated_runs_are_refused():
    pools = {f"{pool}_tp_size": 4.0 for pool in ("prefill", "decode")}
    pools |= {f"{pool}_num_workers": 1.0 for pool in ("prefill", "decode")}
    with pytest.raises(InputError, match="aggregated deployments"):
        given(mode="disagg", **pools)


@pytest.mark.skipif(HAS_PEER, reason="the extra `peers` is installed")
def test_without_the_extra_the_error_names_it():
    with pytest.raises(InputError, match=r"forerun\[peers\]"):
        asked(given())


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PEER, reason="the extra `peers` is not installed")
def test_an_answer_has_both_times_and_the_tables_it_uses():
    found = asked(given())
    assert 0 < found.tpot_ms < found.ttft_ms
    assert found.tables
    assert not found.refusal


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PEER, reason="the extra `peers` is not installed")
def test_a_refusal_is_one_line():
    found = asked({**given(), "model_path": "nobody/nothing"})
    assert np.isnan(found.tpot_ms)
    assert found.refusal
    assert "\n" not in found.refusal


def test_every_stored_row_is_an_answer_or_a_refusal():
    stored = pd.read_csv(STORED)
    answered = stored["tpot_ms"].notna()
    assert stored["id"].is_unique
    assert (stored.loc[answered, ["tpot_ms", "ttft_ms"]] > 0).all(axis=None)
    assert (stored["ttft_ms"].notna() == answered).all()
    assert (stored["tables"].notna() == answered).all()
    assert (stored["refusal"].isna() == answered).all()
