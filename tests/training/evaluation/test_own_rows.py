"""A folder of the user's own rows is joined, checked and counted; no row is dropped silently."""

import numpy as np
import pandas as pd
import pytest

from forerun.data.bundle import Bundle, bundle_folder
from forerun.data.errors import BadTable, MissingData
from forerun.features.tables.timm_bench import COLUMNS
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.artifact.training_record import TrainingRecord
from forerun.models.baselines.constant import Constant
from forerun.models.baselines.roofline import Roofline
from forerun.models.router import Router
from forerun.training.evaluation.evaluate import check_tables, evaluate, nothing_evaluated
from forerun.training.protocols import DATASET_PROTOCOLS, protocols_of_dataset
from forerun.training.protocols.benchmark_suites.mlperf_inference import tokens_per_unit
from forerun.training.protocols.joined_tables import REFERENCE, joined_table

ONE_RELU = dict(
    zip(
        COLUMNS,
        ("tiny", 8, 0, "relu", "[[1,3,8,8]]", "[1,3,8,8]", "", 192, 192, 0, ""),
        strict=True,
    )
)
BENCH = pd.DataFrame(
    {
        "model": ["tiny", "tiny", "unknown", "tiny"],
        "device": "l4",
        "precision": "fp32",
        "compiled": False,
        "img_size": 8,
        "batch_size": [1, 2, 1, 4],
        "step_time_ms": [0.01, 0.02, 0.01, np.nan],
    }
)
CURRENT = LoadedPredictor(Constant({"latency_ms": 0.015}), "v1", "2026-01-01", "")


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("FORERUN_HOME", str(tmp_path / "home"))
    monkeypatch.delenv(REFERENCE, raising=False)


@pytest.fixture
def pulled():
    """A pulled bundle that knows one graph."""
    tables = {"bench": BENCH.iloc[:0], "graphs": pd.DataFrame([ONE_RELU])}
    return Bundle.write(bundle_folder("timm_bench"), "timm_bench", tables)


def own(folder, bench=BENCH, name="bench"):
    folder.mkdir(exist_ok=True)
    bench.to_csv(folder / f"{name}.csv", index=False)
    return folder


def run(folder, record=None, **options):
    return evaluate(
        "timm_bench", current=CURRENT, record=record or TrainingRecord(), data_dir=folder, **options
    )


@pytest.mark.usefixtures("pulled")
def test_graphs_come_from_the_pulled_bundle_and_left_out_rows_have_reasons(tmp_path):
    result = run(own(tmp_path / "mine"))
    assert sum(task["n"] for task in result["tasks"]) == 2
    assert result["left_out"] == {
        "no operator graph of that model at that img_size (such as unknown)": 1,
        "batch_size or step_time_ms is missing or not positive": 1,
    }
    assert nothing_evaluated(result) is None


@pytest.mark.usefixtures("pulled")
def test_training_rows_are_counted_and_an_empty_result_is_explained(tmp_path):
    seen = {"device": ["l4"], "model": ["tiny", "unknown"], "family": ["tiny", "unknown"]}
    result = run(own(tmp_path / "mine"), TrainingRecord(keys={"timm_bench": seen}))
    assert result["tasks"] == []
    assert result["left_out"]["this model on this device is in the training set"] == 2
    said = nothing_evaluated(result)
    assert said.startswith("Nothing could be evaluated.")
    assert "2 rows: this model" in said


@pytest.mark.usefixtures("pulled")
def test_unanswered_rows_are_counted_by_task(tmp_path):
    silent = LoadedPredictor(Router((Constant(),)), "v1", "2026-01-01", "")
    result = evaluate(
        "timm_bench", current=silent, record=TrainingRecord(), data_dir=own(tmp_path / "mine")
    )
    assert result["tasks"][0]["unanswered"] == 2
    assert (
        result["left_out"][
            "unseen_device_and_family/eager_fp32: answers gives no latency_ms for them"
        ]
        == 2
    )
    assert nothing_evaluated(result) is not None


@pytest.mark.usefixtures("pulled")
def test_the_median_of_the_training_set_and_the_roofline_are_baselines(tmp_path):
    record = TrainingRecord(medians={"timm_bench": {"latency_ms": 0.02}})
    (task,) = run(own(tmp_path / "mine"), record)["tasks"]
    assert task["baselines"]["training_median"] == pytest.approx(50.0)
    assert set(task["baselines"]) == {"roofline", "training_median"}


@pytest.mark.usefixtures("pulled")
def test_scores_are_broken_down_and_every_answer_is_written(tmp_path):
    result = run(own(tmp_path / "mine"), by=["batch"], rows_file=tmp_path / "rows.csv")
    assert [g["group"] for g in result["breakdown"][0]["groups"]] == [
        {"batch": "1"},
        {"batch": "2-3"},
    ]
    assert pd.read_csv(tmp_path / "rows.csv")["measured"].tolist() == [0.01, 0.02]


def test_without_any_graphs_the_folders_that_were_searched_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv(REFERENCE, str(tmp_path / "reference"))
    with pytest.raises(MissingData, match=r"bundles/timm_bench, .*reference/timm_bench.*data pull"):
        run(own(tmp_path / "mine"))


def test_a_table_is_joined_from_the_reference_if_nothing_was_pulled(tmp_path, monkeypatch):
    own(tmp_path / "timm_bench", pd.DataFrame([ONE_RELU]), "graphs")
    monkeypatch.setenv(REFERENCE, str(tmp_path))
    mine = Bundle.open(own(tmp_path / "mine"), "timm_bench")
    assert len(joined_table(mine, "graphs", "timm_bench")) == 1


def test_a_table_of_another_name_is_refused_with_the_right_one(tmp_path):
    mine = Bundle.open(own(tmp_path / "mine", name="benchmarks"), "timm_bench")
    with pytest.raises(MissingData, match=r"wants bench\.parquet .* Rename benchmarks to bench\?"):
        check_tables(protocols_of_dataset("timm_bench"), mine)


def test_a_column_of_another_name_is_refused_with_the_right_one(tmp_path):
    wrong = BENCH.rename(columns={"step_time_ms": "step_time"})
    with pytest.raises(BadTable, match=r"lacks the column step_time_ms.* Rename step_time to"):
        run(own(tmp_path / "mine", wrong))


@pytest.mark.parametrize(
    "cls", [cls for cls in DATASET_PROTOCOLS if cls.reads], ids=lambda c: c.dataset
)
def test_tables_that_are_read_exist_in_the_reference_bundle(cls, reference):
    if not (reference / cls.dataset).is_dir():
        pytest.skip(f"no reference bundle of {cls.dataset}")
    bundle = Bundle.open(reference / cls.dataset, cls.dataset)
    for table, columns in cls.reads.items():
        if bundle.has(table):
            assert set(columns) <= set(map(str, bundle.table(table).columns)), table
    assert set(cls.reads) & set(bundle.tables())


def test_a_latency_task_computes_neither_memory_nor_power():
    chosen = Router((Roofline(), Constant({"power_w": 3.0}), Constant({"peak_memory_mib": 9.0})))
    assert [part.metrics for part in chosen.only(["latency_ms"]).parts] == [("latency_ms",)]
    assert len(chosen.only(["energy_j"]).parts) == 2
    assert chosen.only(["latency_ms"]).metrics == ("latency_ms",)


def test_results_in_tokens_become_samples_or_nan_if_the_length_is_unknown():
    models = ["deepseek-r1", "llama3.1-8b", "novel-llm", "resnet50", "llama2-70b-99"]
    units = ["Tokens/s", "Samples/s", "Tokens/s", "Samples/s", "tokens/s"]
    table = pd.DataFrame(
        {
            "model": models,
            "round": ["v5.1", "v5.1", "v5.1", "v5.1", "v3.1"],
            "scenario": "Offline",
            "result_units": units,
        }
    )
    found = tokens_per_unit(table)
    assert found[[0, 1, 3, 4]].tolist() == [3886.2274, 128.0, 1.0, 294.45]
    assert np.isnan(found[2])
