"""Rows of both tables as queries: frameworks, devices, networks, repeats."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.language_models.deployment import Parallelism
from forerun.training.protocols.language_models.static_batches import (
    benchmark_rows,
    known_networks,
    splitwise_rows,
)
from tests.training.protocols.language_models.batch_tables import CATALOG, RUN, row


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


def test_llama_cpp_runs_one_sequence_in_chunks_with_its_layers_apart():
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


def test_capped_gpus_have_a_name_of_their_own_and_the_same_sheet():
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
