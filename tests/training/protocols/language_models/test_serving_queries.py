"""Serving runs as queries: sizes by several conventions, formats, repeats and groups."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.datasets.language_models.aiconfigurator_serving import QUERY
from forerun.data.device import DeviceCatalog
from forerun.training.protocols.language_models.aiconfigurator_serving import (
    asked_by_rate,
    serving_runs,
)

CATALOG = DeviceCatalog.load()


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
def test_a_batch_of_each_device_tells_how_many_workers_share_the_requests(
    batch_size, concurrency, workers
):
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
def test_sizes_of_every_convention_give_the_devices_once(sizes, devices, ranks):
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


def test_the_batch_of_each_rank_stands_in_for_missing_concurrency():
    sizes = {"tp_size": 1.0, "attention_dp_size": 4.0, "moe_ep_size": 4.0}
    assert only(concurrency=np.nan, batch_size=8.0, **sizes).load.concurrency == 32.0


def test_a_run_is_asked_about_by_the_rate_at_which_it_answered():
    runs = serving_runs(
        table({"osl": 101, "ttft_ms": 100.0, "tpot_ms": 9.0}, {"ttft_ms": np.nan}), CATALOG
    )[0]
    (query,) = asked_by_rate(runs).queries
    load = query.deployment.load
    # 8 requests in flight, each 100 ms + 100 times 9 ms long.
    assert load.concurrency is None
    assert load.requests_per_s == pytest.approx(8.0)
    assert query.deployment.engine == runs.queries[0].deployment.engine
