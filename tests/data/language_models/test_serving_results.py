"""Results of load generators in the formats of the tools, with invented figures."""

import json
from pathlib import Path

import pytest

from forerun.data.errors import BadTable
from forerun.data.language_models.serving_results import serving_results

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
