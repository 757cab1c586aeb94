"""Protocols of gpumemnet: training and held-out rows, and the accuracy of the memory plan alone."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.memory.gpumemnet import GpuMemNet
from forerun.features.memory.plan import memory_plan
from forerun.features.tables.gpumemnet import mlp_graph
from forerun.models.memory.fitted_peaks import AffineMap
from forerun.models.memory.peak_memory import AT_LEAST, PEAK
from forerun.training.protocols.memory.gpumemnet import mlp_peaks, vision_peaks
from tests.contracts.tiny_upstream import tiny_bundle, tiny_upstream
from tests.devices import CATALOG

MODELS = ("cait_m36", "resnet50", "tf_mixnet", "vit_tiny")


@pytest.fixture
def bundle(tmp_path):
    """Made-up rows, and graphs of four of their models."""
    columns = ("img_size", "idx", "op", "in_shapes", "out_shape", "preds", "flops")
    operator = dict(zip(columns, (8, 0, "relu", "[[1,3,8,8]]", "[1,3,8,8]", "", 0), strict=True))
    operator |= {"in_elems": 192, "out_elems": 192, "param_elems": 0, "attr": ""}
    graphs = pd.DataFrame([{"model": model, **operator} for model in MODELS])
    Bundle.write(tmp_path / "timm_bench", "timm_bench", {"graphs": graphs})
    return tiny_bundle("gpumemnet", tmp_path)


def test_layers_become_operators():
    layers = "[('linear', 8, 40), ('batch_normalization', 8, 16), ('dropout', 8, 0)]"
    graph = mlp_graph(layers, 4)
    assert [op.kind for op in graph.operators] == ["linear", "batch_norm", "elementwise"]
    assert graph.operators[0].input_shapes == ((1, 4),)
    assert graph.parameter_elements == 40 + 32


def test_rows_with_a_graph_become_queries_and_runs_out_of_memory_become_bounds(bundle):
    found, kept = vision_peaks(bundle, CATALOG)
    table = bundle.table("timm_training_peak")
    assert len(kept) == len(found) == 20
    assert set(found.groups["model"]) == set(MODELS)
    why = table["suspect"].to_numpy()[kept]
    np.testing.assert_array_equal(~np.isnan(found.values[PEAK]), why == "")
    np.testing.assert_array_equal(~np.isnan(found.values[AT_LEAST]), why == "near_40gb_cap")


def test_the_graph_is_selected_by_activation_growth_regardless_of_weights(tmp_path):
    """The published estimate includes weights, which dominate for small batches."""
    columns = ("img_size", "idx", "op", "in_shapes", "out_shape", "preds", "flops")
    columns += ("in_elems", "out_elems", "param_elems", "attr")
    operators = []
    for side in (256, 512):
        image, result = f"[1,3,{side},{side}]", f"[1,64,{side},{side}]"
        attributes = '{"k": [1, 1], "s": [1, 1], "p": [0, 0], "g": 1}'
        row = (side, 0, "convolution", f"[{image},[64,3,1,1]]", result, "", 0)
        row += (3 * side**2 + 192, 64 * side**2, 192, attributes)
        operators.append({"model": "resnet50", **dict(zip(columns, row, strict=True))})
    raw = tiny_upstream("gpumemnet", tmp_path / "upstream")
    tables = GpuMemNet().tidy(raw)
    rows = tables["timm_training_peak"]
    own = (rows["model"] == "resnet50").to_numpy()

    def chosen(weights_mib: float, sample_mib: float) -> tuple[int, ...]:
        estimates = weights_mib + sample_mib * rows.loc[own, "batch_size"]
        rows.loc[own, "faketensor_after_forward_mib"] = estimates.astype(float)
        folder = tmp_path / f"{weights_mib}_{sample_mib}"
        Bundle.write(folder / "timm_bench", "timm_bench", {"graphs": pd.DataFrame(operators)})
        made = Bundle.write(folder / "gpumemnet", "gpumemnet", tables, as_csv=GpuMemNet.csv_tables)
        found, _ = vision_peaks(made, CATALOG)
        return found.queries[0].run.graph.operators[0].output_shapes[0]

    small, large = (64 * side**2 * 4 / 2**20 for side in (256, 512))
    assert chosen(1000.0, 2 * small) == (1, 64, 256, 256)
    assert chosen(10.0, 2 * large) == (1, 64, 512, 512)


@pytest.mark.reference
def test_the_memory_plan_and_one_constant_predict_perceptrons_within_a_percent(reference):
    """Published: 97.6 and 98.4 % in the right bin of 1,000 MiB, by networks trained on all rows."""
    table = Bundle.open(reference / "gpumemnet").table("mlp_step2").iloc[::6]
    measured = mlp_peaks(table.reset_index(drop=True), CATALOG)
    plans = [memory_plan(q.workload) for q in measured.queries]
    peak = measured.values[PEAK]
    train_mask = np.arange(len(peak)) < 50
    nothing = np.full(train_mask.sum(), np.nan)
    found = AffineMap.fit(plans[: train_mask.sum()], peak[train_mask], nothing)
    answer = np.array([found.peak(plan) for plan in plans])[~train_mask]
    error = np.abs(answer / peak[~train_mask] - 1.0)
    assert error.mean() < 0.008
    assert (answer // 1000 == peak[~train_mask] // 1000).mean() > 0.984
    assert found.reserved == pytest.approx(1.0, abs=0.02)
