"""Peaks of training that were measured on two GPUs that trained nothing of the memory predictor."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.device import DeviceCatalog
from forerun.features.published.zoo import read_graphs
from forerun.features.tables.torch_gpu import gpu_measurements
from forerun.models.artifact.sealed_folder import bundled

PEAK = "peak_memory_mib"


@pytest.fixture(scope="module")
def training_rows():
    bundle = Bundle.open(TorchGpu().packaged().folder, "torch_gpu")
    runs = bundle.table("runs")
    chosen = runs[(runs["phase"] == "training") & ~runs["cuda_graph"] & runs[PEAK].notna()]
    chosen = chosen.reset_index(drop=True)
    return gpu_measurements(chosen, read_graphs(bundle.table("graphs")), DeviceCatalog.load())


def test_intervals_hold_on_gpus_whose_memory_outside_the_allocator_nobody_measured(training_rows):
    answer = bundled().predictor.predict(training_rows.queries)
    measured = training_rows.values[PEAK]
    inside = (answer.low[PEAK] <= measured) & (measured <= answer.high[PEAK])
    for device in np.unique(training_rows.groups["device"]):
        assert inside[training_rows.groups["device"] == device].mean() >= 0.9
    assert (measured <= answer.high[PEAK]).mean() >= 0.95
