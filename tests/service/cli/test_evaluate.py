"""`forerun evaluate` on a folder of one's own: what it prints, writes, and how it ends."""

import json

import pandas as pd
import pytest

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
    code, out, err = forerun("evaluate", *words, "--json")
    assert code == 0, err
    result = json.loads(out)
    assert sum(task["n"] for task in result["tasks"]) >= 1
    assert result["left_out"] == {"the layer and its input_shape name no operator that is known": 1}
    assert result["breakdown"][0]["groups"][0]["group"] == {"device": "a40", "precision": "fp32"}
    assert set(pd.read_csv(rows)["device"]) == {"a40"}
    code, out, _ = forerun("evaluate", *words)
    assert code == 0
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
