"""mlperf_training: systems as measured steps, and floors that do not see what they answer."""

from dataclasses import replace

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.training.protocols.language_models.mlperf_training import (
    MlperfTrainingProtocols,
    gpu_seconds_ms,
)
from tests.contracts.tiny_mlperf_training import run_rows
from tests.devices import CATALOG


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mlperf") / "bundle"
    return Bundle.write(folder, "mlperf_training", {"runs": run_rows()})


@pytest.fixture(scope="module")
def rows(bundle):
    return MlperfTrainingProtocols().measured(bundle, CATALOG)[0]


def test_a_system_becomes_a_run_of_its_gpus(rows):
    assert len(rows) == 6
    query = rows.queries[0]
    run = query.llm_training
    assert (query.device.name, run.devices, run.precision) == ("h200-sxm-141gb", 8, "fp8")
    assert (run.sequence_tokens, run.layout.micro_batch, run.micro_batches) == (8192, 2, 1)
    assert rows.values["latency_ms"][0] == 1100.0
    attention = {one.llm_training.precision: one.llm_training.attention for one in rows.queries}
    assert attention == {"fp8": "flash", "nvfp4": "flash-fp8"}


def test_every_system_is_scored_by_benchmark_and_by_gpu_whatever_was_seen(bundle, rows):
    seen = {key: sorted({*own}) for key, own in rows.groups.items()}
    tasks = [*MlperfTrainingProtocols().evaluation_tasks(bundle, CATALOG, seen)]
    assert sum(len(task.held_out) for task in tasks) == 2 * len(rows)
    assert {"untrained/llama31_8b", "untrained/mi325x"} <= {task.name for task in tasks}
    for fold in MlperfTrainingProtocols().folds(bundle, CATALOG):
        held = {*fold.tasks[0].held_out.groups["device"]}
        assert len(held) == 1 and not held & {*fold.train.groups["device"]}
    why = MlperfTrainingProtocols().left_out(bundle, CATALOG, {})
    assert sum(why.values()) == 3


@pytest.mark.parametrize("key", ["submitter", "device"])
def test_a_floor_does_not_read_the_times_that_it_answers(rows, key):
    floor = gpu_seconds_ms(rows, rows, key)
    for value in np.unique(rows.groups[key]):
        own = rows.groups[key] == value
        times = np.where(own, 7.0 * rows.values["latency_ms"], rows.values["latency_ms"])
        changed = gpu_seconds_ms(rows, replace(rows, values={"latency_ms": times}), key)
        np.testing.assert_array_equal(changed[own], floor[own])
    # Two GPUs of one benchmark: the other's GPU-seconds a sample at its peak.
    blackwell, hopper = 2250.0, 989.5
    place = np.flatnonzero(rows.groups["device"] == "b200-sxm-180gb")
    if key == "device":
        np.testing.assert_allclose(floor[place], 1100.0 * hopper / blackwell, rtol=1e-3)
