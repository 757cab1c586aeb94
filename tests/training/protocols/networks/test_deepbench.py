"""Protocols of deepbench: a GPU or an architecture held out, and a folder of one new GPU."""

import numpy as np
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.networks.deepbench import TABLES, DeepBench
from forerun.data.device import DeviceCatalog
from forerun.models.catalog import PREDICTORS
from forerun.training.protocols.networks.deepbench import (
    CONVOLUTIONS,
    DeepBenchProtocols,
    Fp32Convolutions,
    kernel_measurements,
)
from tests.contracts.tiny_upstream import tiny_upstream

CATALOG = DeviceCatalog.load()


@pytest.fixture
def bundle(tmp_path):
    tables = DeepBench().tidy(tiny_upstream("deepbench", tmp_path / "upstream"))
    return Bundle.write(tmp_path / "b", "deepbench", tables, as_csv=TABLES)


def test_times_are_those_of_the_pass_asked(bundle):
    rows = kernel_measurements(bundle, CATALOG)
    backward = rows.groups["kernel_class"] == "conv_backward_input"
    assert {q.run.operator.kind for q in rows.take(backward).queries} == {"conv_transpose"}
    expected = bundle.table("conv")["bwd_input_ms"].dropna()
    np.testing.assert_allclose(np.sort(rows.values["latency_ms"][backward]), np.sort(expected))


def test_names_and_devices_are_keys_and_no_attributes(bundle):
    rows = kernel_measurements(bundle, CATALOG)
    assert set(rows.groups) == {"device", "generation", "kernel_class"}
    attributes = {name for query in rows.queries for name in query.run.operator.attributes}
    sizes = {"kernel", "stride", "padding", "groups"}
    assert attributes == {"transpose_a", "transpose_b", *sizes}


def test_recurrent_layers_never_train_a_predictor(bundle):
    rows = DeepBenchProtocols().training_rows(bundle, CATALOG)
    assert set(rows.groups["kernel_class"]) == {"gemm", *CONVOLUTIONS}


def test_convolutions_train_operators_together_with_neusight():
    assert PREDICTORS["operator_boost"].trained_on == (("neusight", Fp32Convolutions().source),)


def test_only_convolutions_in_fp32_train_the_predictors_in_use(bundle):
    rows = Fp32Convolutions().training_rows(bundle, CATALOG)
    assert set(rows.groups["kernel_class"]) == set(CONVOLUTIONS)
    assert {query.run.precision for query in rows.queries} == {"fp32"}
    every = DeepBenchProtocols().training_rows(bundle, CATALOG)
    assert {query.run.precision for query in every.queries} == {"fp32", "fp16"}
