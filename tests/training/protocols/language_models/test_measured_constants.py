"""Constants of language model predictions that were derived from measured runs."""

from dataclasses import astuple, replace

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.aiconfigurator_serving import RUNS, AiConfiguratorServing
from forerun.data.datasets.language_models.apex import Apex
from forerun.data.language_models.engine_formats import not_run
from forerun.data.measurements import Measurements
from forerun.features.llm_serving.engine_settings import sequences_in_memory
from forerun.features.llm_serving.features import SERVER_S
from forerun.features.llm_serving.least_times import least_times
from forerun.features.llm_serving.operators import Sheet, Work
from forerun.features.llm_serving.releases import CURRENT
from forerun.models.answers.deployments.bounds import MOST_READ, MOST_USED, MOST_WORKED
from forerun.models.catalog import unfitted
from forerun.training.protocols.language_models import apex
from forerun.training.protocols.language_models.aiconfigurator_serving import serving_runs
from forerun.training.protocols.language_models.apex import Run
from forerun.training.protocols.language_models.kernels import DEVICES
from tests.devices import CATALOG
from tests.features.llm_serving.deployments import steady_state, with_engine

pytestmark = pytest.mark.slow


def test_first_tokens_of_single_requests_spend_milliseconds_outside_the_engine(tmp_path):
    """The 30 runs of vLLM in apex whose requests are known, at 0.06 to 0.5 requests a second.

    The time outside the engine is the excess over the times of a current engine.
    """
    table = Apex().pull(folder=tmp_path / "apex").table(apex.RUNS)
    kept = table[apex._known(table).tolist()].query("engine == 'vllm'")
    queries = [Run.of(row, CATALOG).query for row in kept.to_dict("records")]
    states = [steady_state(with_engine(q.deployment, version=""), q.device) for q in queries]
    closed_form_s = np.array([state.service + state.waiting for state in states])
    outside_s = kept["ttft_s"].to_numpy() - closed_form_s
    assert len(outside_s) == 30
    assert outside_s.min() == pytest.approx(0.002, abs=0.0005)
    assert np.median(outside_s) == pytest.approx(SERVER_S, abs=0.0015)
    assert outside_s.max() == pytest.approx(0.017, abs=0.0005)


@pytest.fixture(scope="module")
def aggregated(tmp_path_factory) -> Measurements:
    folder = tmp_path_factory.mktemp("serving") / "aiconfigurator_serving"
    bundle: Bundle = AiConfiguratorServing().pull(folder=folder)
    runs, _ = serving_runs(bundle.table(RUNS), CATALOG)
    return runs.take(runs.groups["mode"] == "agg")


def test_no_measured_format_is_reported_as_unsupported(aggregated):
    """Covers ten pairs of an engine and a GPU, including FP8, NVFP4 and MXFP4."""
    ran = {(q.deployment.engine.name, q.device, q.deployment.model) for q in aggregated.queries}
    assert [why for own in ran if (why := not_run(*own)) is not None] == []
    formats = {name for _, _, model in ran for name in astuple(model.formats.of_layer(0))}
    assert {"fp8", "nvfp4"} <= formats and len({own[:2] for own in ran}) >= 10


def test_prompts_hardly_ever_exceed_the_allowed_share_of_peak_arithmetic(aggregated):
    """One aggregated run in a thousand exceeds it; with decoding, none exceeds the peak itself."""
    load = [query.deployment.load for query in aggregated.queries]
    tokens = np.array([one.output_tokens - 1.0 for one in load])
    latency_s = aggregated.column("ttft_ms") / 1e3 + tokens * aggregated.column("tpot_ms") / 1e3
    rate = np.array([one.concurrency for one in load]) / latency_s
    pools = [query.deployment.pool for query in aggregated.queries]
    at_once = np.array([
        pool.workers * pool.parallelism.attention_data * pool.parallelism.pipeline for pool in pools
    ])  # fmt: skip
    least = least_times(aggregated.queries, np.ones(len(rate)))
    used = rate * least.prompt / at_once
    assert len(used) > 2_000
    assert (used > MOST_USED).mean() == pytest.approx(0.001, abs=0.0005)
    used += rate * tokens * least.token / at_once
    assert (used > MOST_WORKED).mean() == pytest.approx(0.001, abs=0.0005)
    assert used.max() < 1.0


def test_steps_hardly_ever_exceed_the_allowed_share_of_bandwidth(aggregated):
    """Of the aggregated runs, 0.3 % read faster, five of them faster than the device can.

    The number of requests that decode at a time follows from Little's law.
    """
    load = [query.deployment.load for query in aggregated.queries]
    decoding_s = np.array([one.output_tokens - 1.0 for one in load]) * (
        aggregated.column("tpot_ms") / 1e3
    )
    latency_s = aggregated.column("ttft_ms") / 1e3 + decoding_s
    pools = [query.deployment.pool for query in aggregated.queries]
    servers = np.array([pool.workers * pool.parallelism.attention_data for pool in pools])
    requests = np.array([one.concurrency for one in load]) / servers
    at_once = np.maximum(1.0, requests * decoding_s / latency_s)
    used = least_times(aggregated.queries, at_once).tpot / (aggregated.column("tpot_ms") / 1e3)
    assert (used > MOST_READ).mean() == pytest.approx(0.0031, abs=0.001)
    assert (used > 1.0).sum() == 5


@pytest.mark.parametrize("tokens", [(1, 32), (4096, 16_384)])
def test_half_precision_products_reach_the_measured_share_of_the_peak(reference, tokens):
    """Products with at least 16 million weights in `aiconfigurator`; the median of seven GPUs."""
    table = pd.read_parquet(reference / "aiconfigurator" / "gemm.parquet")
    large = (table["n"] * table["k"] >= 2**24) & table["m"].between(*tokens)
    ratios = []
    for system, rows in table[large & (table["gemm_dtype"] == "bfloat16")].groupby("system"):
        sheet = Sheet.of(CATALOG.get(DEVICES[str(system)]))
        m, weights = (own.to_numpy(np.float64) for own in (rows["m"], rows["n"] * rows["k"]))
        work = Work(2.0 * weights, 2.0 * weights * m, sheet.arithmetic("bf16"))
        bandwidth = sheet.bandwidth * CURRENT.bandwidth
        seconds = work.seconds(bandwidth, CURRENT.arithmetic, CURRENT.overlap) + CURRENT.kernel_s
        ratios.append(np.median(rows["latency_ms"] / 1e3 / seconds))
    assert len(ratios) == 7
    assert np.median(ratios) == pytest.approx(1.0, abs=0.08)


def unfitted_ratios(runs: Measurements) -> dict[str, np.ndarray]:
    """Times with nothing fitted over the measured ones."""
    found = unfitted("llm_latency").predict(runs.queries)
    return {name: found.values[name] / runs.column(name) for name in ("tpot_ms", "ttft_ms")}


def by_engine(runs: Measurements, name: str) -> Measurements:
    return runs.take(np.array([q.deployment.engine.name == name for q in runs.queries]))


@pytest.mark.parametrize(
    "engine, token", [("vllm", (0.9, 1.05)), ("sglang", (0.8, 1.05)), ("trtllm", (0.85, 1.05))]
)
def test_requests_wait_as_long_as_measured_if_memory_is_full(aggregated, engine, token):
    """Of runs with more in flight than have memory for their answers: the median ratio of the
    first token is within a factor of 2.5, of times of milliseconds to minutes.
    """

    def is_full(query):
        own = query.deployment
        held = own.load.input_tokens + own.load.output_tokens
        split = own.pool.parallelism
        places = sequences_in_memory(own, query.device, split, held)
        ranks = own.pool.workers * split.attention_data
        return places is not None and own.load.concurrency / ranks > places

    runs = by_engine(aggregated, engine)
    full = runs.take(np.array([is_full(query) for query in runs.queries]))
    ratios = unfitted_ratios(full)
    assert len(full) >= 5
    assert token[0] < np.median(ratios["tpot_ms"]) < token[1]
    assert 0.4 < np.median(ratios["ttft_ms"]) < 2.5


def test_request_lengths_match_those_drawn_by_campaigns(aggregated):
    """On SGLang, runs that drew lengths are at random, and those of one length stay in step.

    Each token is 12 and 6 % off with nothing fitted; taken as the other kind, 14 and 25 %.
    """
    runs = by_engine(aggregated, "sglang")
    drew = np.array([query.deployment.load.output_variation > 0.0 for query in runs.queries])

    def error(kind, variation):
        queries = [
            replace(
                query,
                workload=replace(
                    query.deployment,
                    load=replace(query.deployment.load, output_variation=variation),
                ),
            )
            for query in kind.queries
        ]
        ratios = unfitted_ratios(replace(kind, queries=queries))["tpot_ms"]
        return np.median(np.abs(ratios - 1.0))

    for kind, own, other in ((runs.take(drew), 0.064, 0.0), (runs.take(~drew), 0.0, 0.064)):
        assert len(kind) > 100
        assert error(kind, own) < 0.9 * error(kind, other)
