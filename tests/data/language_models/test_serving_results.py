"""Results of load generators in the formats of the tools, with invented figures."""

import json
from pathlib import Path

import pytest

from forerun.data.errors import BadTable
from forerun.data.language_models.serving_results import llama_bench_table, serving_results

RESULTS = json.loads(Path(__file__).with_name("serving_results.json").read_text())
BENCH, GUIDELLM, AIPERF = (RESULTS[tool] for tool in ("bench", "guidellm", "aiperf"))


def test_lengths_of_bench_serve_are_means_over_completed_requests() -> None:
    (run,) = serving_results(BENCH, "a.json")
    assert (run.input_tokens, run.output_tokens) == (1024.0, 256.0)
    assert (run.concurrency, run.requests_per_s) == (16.0, None)
    assert (run.ttft_ms, run.tpot_ms) == (90.0, 11.0)
    assert run.model == "meta-llama/Llama-3.1-8B-Instruct"


def test_arrivals_at_a_rate_are_an_open_loop() -> None:
    (run,) = serving_results({**BENCH, "max_concurrency": None, "request_rate": 4.0}, "a.json")
    assert (run.concurrency, run.requests_per_s) == (None, 4.0)


def test_requests_sent_all_at_once_are_refused() -> None:
    with pytest.raises(BadTable, match="neither max_concurrency nor a finite request_rate"):
        serving_results({**BENCH, "max_concurrency": None}, "a.json")


def test_each_benchmark_of_guidellm_is_a_run_with_its_measured_concurrency() -> None:
    (run,) = serving_results(GUIDELLM, "a.json")
    assert (run.concurrency, run.requests_per_s) == (7.9, None)
    assert (run.ttft_ms, run.tpot_ms) == (55.0, 9.0)


def test_a_poisson_benchmark_of_guidellm_has_the_requested_rate() -> None:
    one = {
        **GUIDELLM["benchmarks"][0],
        "config": {"strategy": {"type_": "poisson", "rate": 5.0}},
    }
    (run,) = serving_results({"benchmarks": [one]}, "a.json")
    assert (run.concurrency, run.requests_per_s) == (None, 5.0)


def test_seconds_of_aiperf_become_milliseconds() -> None:
    (plain,) = serving_results(AIPERF, "a.json")
    slow = {**AIPERF, "time_to_first_token": {"unit": "s", "avg": 0.04}}
    (run,) = serving_results(slow, "a.json")
    assert run == plain
    assert run.ttft_ms == pytest.approx(40.0)


@pytest.mark.parametrize("value", [None, 0, -1.0, "12", True, float("nan"), float("inf")])
def test_a_figure_that_is_not_a_positive_number_is_named(value: object) -> None:
    with pytest.raises(BadTable, match="mean_tpot_ms is"):
        serving_results({**BENCH, "mean_tpot_ms": value}, "a.json")


@pytest.mark.parametrize("content", [[], {}, {"measurements": []}, 3, None])
def test_other_content_matches_no_format(content: object) -> None:
    assert serving_results(content, "a.json") == ()


def test_a_result_without_times_says_which_are_missing() -> None:
    run = {
        name: value for name, value in BENCH.items() if "tpot" not in name and "ttft" not in name
    }
    with pytest.raises(BadTable, match=r"a\.json: mean_ttft_ms, mean_tpot_ms are missing in this"):
        serving_results(run, "a.json")


def test_all_runs_of_a_file_are_read_and_none_of_a_file_with_other_rows():
    runs = serving_results([BENCH, {**BENCH, "max_concurrency": 64}], "a.jsonl")
    assert [run.concurrency for run in runs] == [BENCH["max_concurrency"], 64]
    assert serving_results([BENCH, {"workload": {}}], "a.jsonl") == ()
    with pytest.raises(BadTable, match=r"a\.jsonl, run 2: mean_tpot_ms"):
        serving_results([BENCH, {**BENCH, "mean_tpot_ms": None}], "a.jsonl")


@pytest.mark.parametrize(
    ("content", "command"),
    [
        ({"avg_latency": 1.2, "latencies": [1.2], "percentiles": {}}, "vllm bench latency"),
        ({"elapsed_time": 9.0, "num_requests": 90, "requests_per_second": 10.0}, "throughput"),
    ],
)
def test_results_without_times_of_tokens_are_refused_by_name(content, command):
    with pytest.raises(BadTable, match=command):
        serving_results(content, "a.json")


LLAMA_BENCH = {
    "backends": "CUDA",
    "model_filename": "models/Qwen2.5-7B-Instruct-Q4_K_M.gguf",
    "model_type": "qwen2 7B Q4_K - Medium",
    "n_ubatch": 256,
    "n_threads": 8,
    "type_k": "f16",
    "n_gpu_layers": -1,
    "n_prompt": 512,
    "n_gen": 0,
    "n_depth": 0,
    "avg_ts": 5120.0,
}


def test_a_prompt_of_llama_bench_is_the_time_to_the_first_token():
    (run,) = serving_results([LLAMA_BENCH | {"n_depth": 1536}], "a.json")
    assert (run.input_tokens, run.cached_share, run.concurrency) == (2048.0, 0.75, 1.0)
    assert (run.ttft_ms, run.tpot_ms, run.request_latency_ms) == (100.0, None, None)
    assert run.threads is None, "they change nothing on a GPU"


def test_tokens_of_llama_bench_are_after_a_context_and_on_a_processor_with_its_threads():
    tokens = {"n_prompt": 0, "n_gen": 128, "n_depth": 1024, "avg_ts": 50.0, "backends": "CPU"}
    (run,) = serving_results(LLAMA_BENCH | tokens, "a.json")
    assert (run.input_tokens, run.output_tokens, run.tpot_ms) == (1024.0, 128.0, 20.0)
    assert (run.ttft_ms, run.threads) == (None, 8)
    (run,) = serving_results(LLAMA_BENCH | {"n_gen": 128, "avg_ts": 64.0}, "a.json")
    assert (run.ttft_ms, run.tpot_ms, run.request_latency_ms) == (None, None, 10_000.0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"avg_ts": 0}, "avg_ts is 0, not a positive number"),
        ({"n_prompt": -1}, "n_prompt is -1, not a number of tokens"),
        ({"n_prompt": 0}, "n_prompt and n_gen are 0"),
        ({"n_gpu_layers": 0}, "n_gpu_layers is 0 with the backend CUDA"),
    ],
)
def test_a_test_of_llama_bench_that_says_nothing_is_refused(change, says):
    with pytest.raises(BadTable, match=says):
        serving_results(LLAMA_BENCH | change, "a.json")


TABLE = """ggml_cuda_init: found 1 CUDA devices
| model                  | backend | ngl | n_ubatch |          test |             t/s |
| ---------------------- | ------- | --: | -------: | ------------: | --------------: |
| qwen2 7B Q4_K - Medium | CUDA    |  -1 |      256 |         pp512 | 5120.00 ± 23.45 |
| qwen2 7B Q4_K - Medium | CUDA    |  -1 |      256 | tg128 @ d1024 |    50.00 ± 0.59 |
| qwen2 7B Q4_K - Medium | CUDA    |  -1 |      256 |   pp512+tg128 |    64.00 ± 0.59 |
| qwen2 7B Q4_K - Medium | CUDA    |  -1 |      256 |        tg 128 |    50.00 ± 0.59 |

build: 8cf427ff (5163)
"""


def test_the_table_of_llama_bench_has_the_same_tests_as_its_json():
    prompt, tokens, both, early = serving_results(llama_bench_table(TABLE), "a.md")
    assert (prompt.input_tokens, prompt.ttft_ms) == (512.0, 100.0)
    assert (tokens.input_tokens, tokens.tpot_ms) == (1024.0, 20.0)
    assert both.request_latency_ms == 10_000.0
    assert (early.output_tokens, early.tpot_ms) == (128.0, 20.0)
    (of_json,) = serving_results(LLAMA_BENCH, "a.json")
    assert {*prompt.command.split()} < {*of_json.command.split()}, "a table names no file"
    assert llama_bench_table("| a | b |\n| - | - |\n| 1 | 2 |") == []
