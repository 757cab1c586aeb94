"""Training jobs as benchmarks, and as steps of networks where a graph is given."""

import pandas as pd
import pytest

from forerun.data.graph import Operator, OperatorGraph
from forerun.features.tables.lambda_bench import (
    GRAPHS,
    lambda_benchmarks,
    lambda_device,
    lambda_networks,
)
from tests.devices import CATALOG

GRAPH = OperatorGraph((Operator("linear", "x", ((1, 8),), ((1, 4),), 32),), batch_size=1)


def row(**changed):
    plain = {"table": "v1", "system": "RTX 3090", "num_gpu": 1, "precision": "fp16"}
    plain |= {"model": "resnet50", "throughput": 900.0, "batch_size": 448.0}
    return pd.DataFrame({name: [value] for name, value in {**plain, **changed}.items()})


@pytest.mark.parametrize(
    ("system", "name"),
    [
        ("LambdaCloud 4xV100 16GB", "v100-sxm2-16gb"),
        ("H200_140GB_SXM", "h200-sxm-141gb"),
        ("RAIDZ1 8x H100 80GB SXM5", "h100-sxm-80gb"),
        ("2x RTX 6000 Ada", "rtx-6000-ada"),
    ],
)
def test_a_systems_gpu_has_its_spec_sheet(system, name):
    device = lambda_device(system, CATALOG)
    assert device is not None
    assert device.name == name


def test_a_gpu_without_a_sheet_is_not_asked():
    assert lambda_device("GH200_80GB", CATALOG) is None
    assert lambda_benchmarks(row(system="GH200_80GB"), CATALOG) == [None]


def test_the_number_of_gpus_is_the_operations_and_no_name_is_a_setting():
    (query,) = lambda_benchmarks(row(system="2x RTX 3090", num_gpu=2), CATALOG)
    assert query is not None
    assert query.operation.device_count == 2
    settings = dict(query.workload.settings)
    assert settings["model"] == "resnet50"
    assert settings["scenario"] == "training_amp"


def test_a_step_of_one_gpu_is_a_network_in_training():
    (query,) = lambda_networks(row(), {GRAPHS["resnet50"]: GRAPH}, CATALOG)
    assert query is not None
    assert (query.run.phase, query.run.batch_size, query.run.precision) == ("training", 448, "amp")


def test_single_precision_is_tf32_where_the_gpu_has_it():
    graphs = {GRAPHS["resnet50"]: GRAPH}
    (ampere,) = lambda_networks(row(precision="fp32"), graphs, CATALOG)
    (volta,) = lambda_networks(row(precision="fp32", system="V100 16GB"), graphs, CATALOG)
    assert (ampere.run.precision, volta.run.precision) == ("tf32", "fp32")


@pytest.mark.parametrize(
    "changed", [{"num_gpu": 2}, {"batch_size": float("nan")}, {"model": "ncf"}]
)
def test_what_is_no_step_of_one_gpu_is_not_asked(changed):
    assert lambda_networks(row(**changed), {GRAPHS["resnet50"]: GRAPH}, CATALOG) == [None]
