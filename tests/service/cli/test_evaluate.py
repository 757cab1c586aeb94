"""`forerun evaluate` on a folder of one's own: what it prints, writes, and how it ends."""

import json

import pandas as pd
import pytest

from forerun.service.cli.evaluate import _columns, _print

OPS = pd.DataFrame(
    {
        "device": ["a40", "a40"],
        "layer": ["ReLU(inplace=True)", "Mystery()"],
        "input_shape": ["(32, 64, 28, 28)"] * 2,
        "power_w": [100.0, 100.0],
        "latency_ms": [0.1, 0.1],
    }
)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "mine").mkdir()
    OPS.to_csv(tmp_path / "mine" / "ops.csv", index=False)
    return tmp_path / "mine"


def test_a_folder_is_scored_broken_down_and_written(forerun, folder, tmp_path):
    rows = tmp_path / "rows.csv"
    words = ("torch_op_energy", "--data", folder, "--by", "device,precision", "--rows", rows)
    result = json.loads(forerun.ok("evaluate", *words, "--json"))
    assert sum(task["n"] for task in result["tasks"]) >= 1
    assert result["left_out"] == {"the layer and its input_shape name no operator that is known": 1}
    assert result["breakdown"][0]["groups"][0]["group"] == {"device": "a40", "precision": "fp32"}
    assert set(pd.read_csv(rows)["device"]) == {"a40"}
    out = forerun.ok("evaluate", *words)
    assert "not evaluated, 1 rows: the layer" in out


def test_nothing_to_evaluate_is_code_two_and_says_why(forerun, folder):
    OPS.iloc[1:].to_csv(folder / "ops.csv", index=False)
    code, out, err = forerun("evaluate", "torch_op_energy", "--data", folder, "--json")
    assert code == 2
    assert json.loads(out)["tasks"] == []
    assert "Nothing could be evaluated. 1 rows: the layer" in err


def test_wrong_columns_are_code_two_and_name_the_right_ones(forerun, folder):
    OPS.rename(columns={"power_w": "power"}).to_csv(folder / "ops.csv", index=False)
    code, _, err = forerun("evaluate", "torch_op_energy", "--data", folder)
    assert code == 2
    assert "lacks the column power_w" in err
    assert "Rename power to power_w?" in err


def test_metrics_of_one_task_are_separate_rows_and_square_errors_have_their_deviation(capsys):
    scored = {"device": None, "n": 5, "median_ape": 1.0, "smape": 2.0, "r2": 0.9}
    scored |= {"task": "inductive", "predictor": "boost", "coverage_90": 91.0, "baselines": {}}
    scored |= {"mape": 10.04, "mape_standard_error": 0.21}
    square = {"score": "rmse", "rmse": 0.2124, "rmse_standard_error": 0.004}
    total = dict.fromkeys(("mape", "median_ape", "smape", "r2", "coverage_90"))
    total |= {"score": "rmse_sum", "rmse_sum": 0.598, "rmse_sum_standard_error": 0.01}
    tasks = [scored | square | {"metric": m} for m in ("latency_cycles", "util_lut")]
    tasks.append(scored | total | {"metric": "sum", "mape_standard_error": None})
    _print({"dataset": "designs", "tasks": tasks, "breakdown": [], "left_out": {}})
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["task", "metric", "device", "n", "mean", "median", "SMAPE", "R2",
                                "coverage", "90", "RMSE"]  # fmt: skip
    assert "latency_cycles" in lines[2]
    assert "10.0 ± 0.2" in lines[2]
    assert lines[4].split()[-3:] == ["0.598", "±", "0.010"]
    assert "standard error" in lines[-1]
    one = scored | {"metric": "latency_ms", "mape_standard_error": None}
    _print({"dataset": "designs", "tasks": [one], "breakdown": [], "left_out": {}})
    out = capsys.readouterr().out
    assert not {"metric", "RMSE", "±"} & set(out.split())


def test_a_baseline_of_the_name_of_a_score_has_a_column_of_its_own():
    task = {
        "task": "one", "device": None, "predictor": "x", "metric": "latency_ms", "n": 3,
        "mape": 1.0, "median_ape": 2.0, "smape": 3.0, "r2": 0.5, "coverage_90": 0.9,
        "baselines": {"median": 53.0, "roofline": 7.0},
    }  # fmt: skip
    shown = {heading: text(task) for heading, text in _columns([task]).items()}
    assert "2.0" in shown["median"]
    assert "53.0" in shown["median baseline"]
    assert "7.0" in shown["roofline"]
