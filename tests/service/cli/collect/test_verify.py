"""`forerun verify`: what it prints, keeps and refuses; no test depends on how fast it runs."""

import json

import pytest

from forerun.data.collectors.system.host import QuietWait


@pytest.fixture
def model(tmp_path):
    from onnx import TensorProto, helper, save

    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 64])],
    )
    file = tmp_path / "tiny.onnx"
    opsets = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, ir_version=8, opset_imports=opsets), file)
    return file


@pytest.mark.slow
def test_a_model_is_verified_kept_and_adapted_to(forerun, model, tmp_path, monkeypatch):
    monkeypatch.setattr(QuietWait, "wait", lambda self: None)
    rows = tmp_path / "rows.json"
    options = ("--seconds", 0.02, "--threads", 1)
    code, out, err = forerun("verify", model, "--batch-size", "2,64", "--keep", rows, *options)
    assert code == 0, err
    assert "tiny.onnx on my-cpu" in out
    assert f"forerun adapt {rows} --device my-cpu" in out
    assert [row["workload"]["batch_size"] for row in json.loads(rows.read_text())] == [2, 64]
    code, out, err = forerun("verify", model, "--json", *options)
    assert code == 0, err
    answer = json.loads(out)
    assert {row["batch_size"] for row in answer["results"]} == {1}
    assert answer["results"][0]["measured"] > 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("gone.onnx",), "there is no such file"),
        (("MODEL", "--batch-size", "two"), "--batch-size 'two'"),
        (("MODEL", "--batch-size", "0"), "give numbers from 1"),
        (("MODEL", "--device", "l4"), "l4 is a gpu"),
    ],
)
def test_what_cannot_be_verified_is_refused_in_one_line(forerun, model, words, said):
    code, out, err = forerun("verify", *(model if word == "MODEL" else word for word in words))
    assert code == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1
