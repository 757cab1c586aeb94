"""Protocols of apex: the requests of a run, its query, and runs that cannot be evaluated."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.apex import RUNS
from forerun.data.language_models.deployment import Parallelism
from forerun.data.language_models.traces import named_trace
from forerun.training.protocols.language_models import apex
from forerun.training.protocols.language_models.apex import ApexProtocols, Run
from tests.devices import CATALOG

ROW = {
    "engine": "vllm",
    "model": "meta-llama/Meta-Llama-3.1-70B",
    "dtype": "fp16/bf16",
    "layout": "4DP2TP",
    "replica": 1.0,
    "trace": "lmsys_05",
    "arrival_rate_rps": 0.5,
    "prompt_tokens": 15_389.0,
    "output_tokens": 17_343.0,
    "ttft_s": 0.05,
    "tpot_s": 0.0316,
    "total_latency_s": 560.0,
}
ALONE = {**ROW, "layout": "8TP", "replica": np.nan, "prompt_tokens": 63_148.0}
SGLANG = {
    **ALONE,
    "engine": "sglang",
    "model": "mistralai/Mixtral-8x22B-Instruct-v0.1",
    "layout": "ep_8",
    "prompt_tokens": 75_084.0,
}


@pytest.fixture
def bundle(tmp_path):
    """Two runs that can be evaluated, and one without its requests."""
    unknown = {**ALONE, "trace": "summarization_05"}
    table = pd.DataFrame([ROW, SGLANG, unknown])
    return Bundle.write(tmp_path / "b", "apex", {RUNS: table})


def test_a_replica_serves_each_request_whose_turn_it_is():
    run = Run.of(ROW, CATALOG)
    whole = named_trace("lmsys_05_llama")
    np.testing.assert_array_equal(run.requests.arrival_s, whole.arrival_s[1::4])
    np.testing.assert_array_equal(run.requests.input_tokens, whole.input_tokens[1::4])
    assert run.requests.input_tokens.sum() == ROW["prompt_tokens"]
    assert run.measured_ms == pytest.approx(560e3 / 256)


def test_lengths_have_the_totals_of_the_run():
    for row in (ROW, ALONE, SGLANG):
        requests = Run.of(row, CATALOG).requests
        for name, column in (("input", "prompt_tokens"), ("output", "output_tokens")):
            total = getattr(requests, f"{name}_tokens").sum()
            assert total == pytest.approx(row[column], rel=5e-3)


def test_replicas_of_a_creation_trace_serve_all_its_texts():
    row = {**ROW, "layout": "2DP4TP", "trace": "creation_05", "prompt_tokens": 133_584.0}
    assert len(Run.of(row, CATALOG).requests) == 362
    assert len(Run.of({**ALONE, "trace": "creation_05"}, CATALOG).requests) == 512


@pytest.mark.parametrize(
    ("row", "parallelism"),
    [(ROW, Parallelism(2)), (ALONE, Parallelism(8)), (SGLANG, Parallelism(8, expert=8))],
)
def test_the_query_is_one_replica_with_the_load_of_its_requests(row, parallelism):
    run = Run.of(row, CATALOG)
    deployment = run.query.deployment
    assert deployment.pool.parallelism == parallelism
    assert run.query.operation.device_count == parallelism.devices
    assert run.query.device.name == "h100-sxm-80gb"
    assert deployment.load == run.requests.load()


def test_results_of_a_run_are_not_part_of_its_query():
    other = {**ROW, "ttft_s": 9.0, "tpot_s": 9.0, "total_latency_s": 9e9}
    assert Run.of(other, CATALOG).query == Run.of(ROW, CATALOG).query
    assert Run.of(other, CATALOG).replayed_ms() == Run.of(ROW, CATALOG).replayed_ms()


def test_nothing_is_fitted_and_runs_without_requests_are_counted(bundle):
    (fold,) = ApexProtocols().folds(bundle, CATALOG)
    assert len(fold.train) == 0
    assert {task.name: len(task.held_out) for task in fold.tasks} == {
        "replay/request_latency_ms": 2,
        "replay/request_latency_ms/sglang": 1,
        "replay/request_latency_ms/vllm": 1,
    }
    (left,) = ApexProtocols().left_out(bundle, CATALOG, {}).values()
    assert left == 1
    assert len(list(ApexProtocols().evaluation_tasks(bundle, CATALOG, {}))) == 3


def test_the_host_of_2024_makes_a_request_slower(monkeypatch):
    slow = Run.of(ROW, CATALOG).replayed_ms()
    monkeypatch.setattr(apex, "VERSIONS", {})
    assert Run.of(ROW, CATALOG).replayed_ms() < slow


def test_the_event_model_is_near_runs_of_vllm():
    """Uses rows that come with the package."""
    from importlib import resources

    table = pd.read_parquet(
        str(resources.files("forerun.data") / "llm_tables" / "apex" / f"{RUNS}.parquet")
    )
    kept = (table["engine"] == "vllm") & ~table["trace"].str.startswith("summarization")
    runs = [Run.of(row, CATALOG) for row in table[kept].to_dict("records")]
    errors = [abs(run.replayed_ms() / run.measured_ms - 1) for run in runs]
    assert len(runs) == 30
    assert np.mean(errors) < 0.107
