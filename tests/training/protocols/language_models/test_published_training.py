"""published_training: rows as measured steps, their baselines, and what is held out."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle
from forerun.data.datasets.language_models.published_training import (
    PublishedTraining,
    configurations,
    seconds,
)
from forerun.features.llm_training.step import model_flop
from forerun.models.baselines.constant import Constant
from forerun.training.protocols.language_models.published_training import (
    PublishedTrainingProtocols,
    left_out,
    step_measurements,
)
from tests.contracts.tiny_published_training import BRIDGE, DEEPSPEED, training_rows, training_table
from tests.devices import CATALOG


@pytest.fixture(scope="module")
def packaged():
    return Bundle.open(PublishedTraining().packaged().folder, "published_training")


@pytest.fixture(scope="module")
def measured(packaged):
    return step_measurements(packaged.table("table"), CATALOG)[0]


def test_every_row_is_a_query_or_counted_with_a_reason(packaged, measured):
    table = packaged.table("table")
    why = left_out(table, CATALOG)
    assert sum(why.values()) + len(measured) == len(table)
    assert not any("pipeline" in reason or "devices" in reason for reason in why)


def test_every_published_layout_is_one_that_a_run_can_have(packaged):
    """No degree that somebody trained with is refused."""
    found = {reason for reason in left_out(packaged.table("table"), CATALOG) if "=" in reason}
    assert found == set()


def test_degrees_that_do_not_fit_are_counted_by_their_fault():
    why = left_out(training_rows(), CATALOG)
    assert why["tensor x context x pipeline = 2 does not divide devices = 9."] == 1


def test_a_row_becomes_a_run_of_its_devices(measured):
    row = np.flatnonzero(measured.groups["row"] == "T0813")[0]
    query = measured.queries[row]
    run = query.llm_training
    assert query.operation.device_count == run.devices == 512
    assert (run.layout.tensor, run.layout.pipeline, run.data) == (8, 8, 8)
    assert (query.device.memory_gib, query.device.memory_bandwidth_gbs) == (96.0, 2400.0)


def test_models_have_the_published_number_of_weights(packaged, measured):
    """MPT's has a table of positions as well; other tables print rounded names."""
    table = packaged.table("table").set_index("row_id").loc[measured.groups["row"]]
    own = np.array([query.llm_training.model.parameters() for query in measured.queries])
    positions = (table["seq"] * table["hidden"]).where(table["family"] == "MPT", 0.0)
    ratio = (own + positions.to_numpy()) / table["params"].to_numpy()
    mpt = (table["family"] == "MPT").to_numpy()
    np.testing.assert_allclose(ratio[mpt], 1.0, atol=0.005)
    np.testing.assert_allclose(ratio[~mpt & np.isfinite(ratio)], 1.0, atol=0.11)


def test_printed_rates_count_the_arithmetic_of_the_described_models(packaged, measured):
    """TFLOP/s of NeMo are those of 6 FLOP a weight and token, BigScience's those of 8."""
    table = packaged.table("table").set_index("row_id").loc[measured.groups["row"]]
    rate = table["tflops_per_gpu"].to_numpy() * 1e12 * table["gpu_count"].to_numpy()
    counted = np.array([model_flop(query.llm_training) for query in measured.queries])
    ratio = pd.Series(rate * seconds(table) / counted)
    nemo = np.char.startswith(measured.groups["framework"], "megatron")
    hardware = table["tflops_kind"].fillna("").str.startswith("hardware").to_numpy()
    np.testing.assert_allclose(ratio[hardware].dropna(), 4 / 3, atol=0.06)
    np.testing.assert_allclose(ratio[nemo & ~hardware].dropna(), 1.0, atol=0.18)


def test_a_configuration_counts_once_with_the_median_of_its_repeats():
    rates = (8000.0, 7000.0, 9000.0)
    table = training_table(*({**BRIDGE, "tokens_per_s_per_gpu": rate} for rate in rates))
    rows, kept = step_measurements(table, CATALOG)
    assert kept.tolist() == [0]
    np.testing.assert_allclose(rows.values["latency_ms"], 1e3 * 64 * 2048 / (8000 * 8))


def test_ml_engineerings_own_share_of_peak_is_that_of_its_time():
    """Its table prints 141 TFLOP/s and 14 % on H200, 419 and 42 % at 262,144 tokens."""
    gpu = {"gpu": "h200-sxm-141gb", "device": "h200-sxm-141gb"}
    rows = [{"tflops_per_gpu": 141.0}, {"tflops_per_gpu": 419.0, "seq": 262144.0}]
    table = training_table(*({**DEEPSPEED, **gpu, **row} for row in rows))
    found = step_measurements(table, CATALOG)[0]
    task = next(PublishedTrainingProtocols().tasks("p", found, None))
    share = task.baselines["peak"] / found.values["latency_ms"]
    np.testing.assert_allclose(share, [0.14, 0.42], atol=0.005)


def test_no_step_is_faster_than_arithmetic_at_the_peak(measured):
    task = next(PublishedTrainingProtocols().tasks("p", measured, None))
    share = task.baselines["peak"] / task.held_out.values["latency_ms"]
    assert share.max() < 0.7
    assert share.min() > 0.03


def test_the_share_of_peak_is_fitted_on_training_rows_of_the_same_gpu(measured):
    devices = measured.groups["device"]
    train, held_out = measured.take(devices != "mi300x"), measured.take(devices == "mi300x")
    protocols = PublishedTrainingProtocols()
    other = next(protocols.tasks("p", held_out, train)).baselines
    same = next(protocols.tasks("p", held_out, held_out)).baselines
    assert np.allclose(
        np.median(same["share_of_peak"] / held_out.values["latency_ms"]), 1.0, atol=0.5
    )
    ratios = other["peak"] / other["share_of_peak"]
    assert np.allclose(ratios, ratios[0])
    assert ratios[0] != pytest.approx((same["peak"] / same["share_of_peak"])[0])


class Everything(Constant):
    """Answers every metric that the dataset has."""

    metrics = ("latency_ms", "reserved_memory_mib", "peak_memory_mib")


def test_memory_is_scored_by_what_was_measured_where_it_is_predicted(measured, monkeypatch):
    protocols = PublishedTrainingProtocols()
    monkeypatch.setattr(protocols, "predictors", lambda: [Everything()])
    tasks = {t.name: t for t in protocols.tasks("p", measured, measured)}
    assert set(tasks) == {"p/step_time", "p/reserved_memory", "p/device_memory"}
    reserved = tasks["p/reserved_memory"].held_out
    assert set(reserved.groups["framework"]) == {"torchtitan", "deepspeed"}
    assert set(tasks["p/device_memory"].held_out.groups["family"]) == {"BLOOM"}
    monkeypatch.setattr(protocols, "predictors", lambda: [])
    assert list(protocols.tasks("p", measured, measured)) == []


def test_no_configuration_is_trained_on_and_held_out(packaged):
    protocols = PublishedTrainingProtocols()
    held = {}
    for fold in protocols.checked_folds(packaged, CATALOG):
        own = set(fold.tasks[0].held_out.groups["config"])
        assert not own & set(fold.train.groups["config"])
        held.setdefault(fold.protocol, []).append(own)
    assert {name: len(folds) for name, folds in held.items()} == {
        **{"unseen_config": 10, "unseen_family": 8, "unseen_device": 10, "unseen_chip": 5}
    }
    everything = set(configurations(packaged.table("table")))
    for folds in held.values():
        assert sum(map(len, folds)) == len(set().union(*folds))
        assert set().union(*folds) <= everything


def test_a_folder_of_rows_is_evaluated_on_what_is_new(packaged):
    seen = {"device": ["a100-sxm-80gb"], "family": ["MPT"]}
    tasks = list(PublishedTrainingProtocols().evaluation_tasks(packaged, CATALOG, seen))
    names = pd.Series([task.name for task in tasks])
    assert names.str.startswith(("unseen_device/", "unseen_family/")).all()
    for task in tasks:
        if task.name.startswith("unseen_device"):
            assert "a100-sxm-80gb" not in task.held_out.groups["device"]
