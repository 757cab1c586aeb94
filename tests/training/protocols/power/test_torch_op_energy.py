"""Power is evaluated on held-out GPUs, with comparable runs of other datasets for training."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.torch_gpu import TorchGpu
from forerun.data.workload import Diffusion, Kernel, Network
from forerun.training.protocols import protocols_of_dataset
from forerun.training.protocols.joined_tables import companion
from forerun.training.protocols.power.torch_op_energy import (
    JOBS,
    TorchOpEnergyProtocols,
    power_graphs,
    trained_operators,
    zeus_networks,
)
from forerun.training.protocols.recipes import recipes
from tests.devices import CATALOG

PROTOCOLS = TorchOpEnergyProtocols()


def trace() -> pd.DataFrame:
    rows = [
        (dataset, network, 64, "adam", limit, 0.6 * limit + batch, 100.0, gpu)
        for gpu, most in (("A40", 300), ("V100", 250))
        for batch, (dataset, network) in enumerate([*JOBS, ("movielens-1m", "ncf")])
        for limit in (125, most)
    ]
    names = ["dataset", "network", "batch_size", "optimizer", "power_limit"]
    return pd.DataFrame(rows, columns=[*names, "average_power", "time_per_epoch", "gpu"])


def ops() -> pd.DataFrame:
    rows = [
        {
            "device": device,
            "layer": f"Linear(in_features={width}, out_features={width}, bias=True)",
            "input_shape": f"(32, {width})",
            "op": "Linear",
            "power_w": 0.4 * tdp + width / 100.0,
            "latency_ms": width / 1e4,
            "train_power_w": 0.5 * tdp if width < 700 and device == "A30_fp32" else np.nan,
        }
        for device, tdp in (("A30_fp32", 165.0), ("RTX2080Ti_fp32", 250.0))
        for width in range(256, 2048, 64)
    ]
    return pd.DataFrame(rows)


def full_models() -> pd.DataFrame:
    columns = ["device", "phase", "model", "input_shape", "power_w"]
    rows = [
        ("A30_tf32", "training", "resnet18", "(32, 3, 224, 224)", 160.0),
        ("A30_fp32", "inference", "resnet18", "(32, 3, 224, 224)", 150.0),
        ("A30_fp32", "inference", "of_unknown_shape", "(32, 3, 224, 224)", 150.0),
    ]
    return pd.DataFrame(rows, columns=columns)


@pytest.fixture
def bundle(tmp_path) -> Bundle:
    tables = {"ops": ops(), "full_models": full_models()}
    Bundle.write(tmp_path / "zeus_powercap", "zeus_powercap", {"power_trace_3gpus": trace()})
    return Bundle.write(tmp_path / "torch_op_energy", "torch_op_energy", tables)


def test_a_held_out_operator_is_not_trained_on_with_its_backward_pass(bundle):
    folds = [e for e in PROTOCOLS.folds(bundle, CATALOG) if e.protocol == "unseen_operator"]
    assert folds
    for fold in folds:
        held_out = {shape for task in fold.tasks for shape in task.held_out.groups["op_shape"]}
        assert held_out.isdisjoint(fold.train.groups["op_shape"])


def test_without_the_other_datasets_its_own_rows_are_held_out(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("FORERUN_REFERENCE", raising=False)
    alone = Bundle.write(tmp_path / "alone" / "torch_op_energy", "torch_op_energy", {"ops": ops()})
    assert companion(alone, "zeus_powercap") is None
    devices = {t.device for e in PROTOCOLS.folds(alone, CATALOG) for t in e.tasks}
    assert devices == {"a30", "rtx-2080-ti"}


def test_backward_passes_of_operators_are_training_rows():
    rows = trained_operators(ops(), CATALOG)
    assert len(rows) == 7
    assert {q.run.phase for q in rows.queries} == {"training"}
    assert set(rows.values["power_w"]) == {82.5}


def test_jobs_are_used_at_the_default_limit_of_the_gpu():
    rows = zeus_networks(trace(), CATALOG)
    assert len(rows) == 2 * len(JOBS)
    assert {q.device.name: q.run.precision for q in rows.queries} == {
        "a40": "tf32",
        "v100-pcie-32gb": "fp32",
    }
    assert rows.values["power_w"].min() >= 0.6 * 250


def test_every_job_has_a_graph():
    assert set(JOBS.values()) <= set(power_graphs())


def test_the_power_predictor_trains_on_four_datasets(reference):
    (recipe,) = [recipe for recipe in recipes() if recipe.predictor == "operator_power"]
    others = ("zeus_powercap/networks", "mlenergy/diffusion", "torch_gpu/power")
    assert recipe.sources[1:] == others
    own = TorchGpu()
    queries = []
    for one in recipe.all_protocols:
        mine = one.dataset == own.name
        folder = own.packaged().folder if mine else reference / one.dataset
        rows = one.training_rows(Bundle.open(folder, one.dataset), CATALOG)
        assert np.isfinite(rows.values["power_w"]).all()
        queries += list(rows.queries)
    assert {type(q.workload) for q in queries} == {Kernel, Network, Diffusion}
    assert len({q.device.name for q in queries}) >= 8


MOST_ERROR = {"a30": 0.08, "a40": 0.1, "p100-pcie-16gb": 0.1, "v100-pcie-32gb": 0.105}
"""Training power of networks on GPUs left out: a tenth is asked of each, or hardly more. By
roofline times alone the A30 was 5 % off, P100 and V100 11 and 13 %."""


def test_held_out_gpus_are_predicted_better_than_by_a_constant(reference):
    bundle = Bundle.open(reference / "torch_op_energy", "torch_op_energy")
    dataset_protocols = protocols_of_dataset("torch_op_energy")
    for fold in dataset_protocols.folds(bundle, CATALOG):
        for task in fold.tasks:
            if task.name == "unseen_device/training":
                fitted = dataset_protocols.predictor()
                plain = type(fitted)(calibrated=False).fit(fold.train)
                value = plain.predict(task.held_out.queries).values["power_w"]
                truth = task.held_out.values["power_w"]
                error = np.mean(np.abs(value / truth - 1))
                assert error < MOST_ERROR[str(task.device)], task.device
                assert error < np.mean(np.abs(task.baselines["constant_share"] / truth - 1))
