"""`forerun predict`: training, memory and power limits as people read them."""

import json

import pytest

from tests.service.conftest import GRAPH


@pytest.fixture
def graph(tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(GRAPH.to_json()))
    return path


def test_training_memory_is_printed_with_its_parts_and_whether_it_fits(forerun, graph):
    words = ("--phase", "training", "--optimizer", "sgd", "--device", "l4")
    code, out, err = forerun("predict", graph, *words, "--explain")
    assert code == 0, err
    assert "what takes memory, MiB: weights 16" in out
    assert "fits: yes, up to " in out
    code, out, err = forerun("predict", graph, *words, "--device", "t4")
    assert "fits" in out
    assert out.count(" yes ") == 2


def test_every_metric_has_a_grade_and_a_reason_and_explain_adds_the_rest(forerun, graph):
    code, brief, err = forerun("predict", graph, "--device", "l4")
    assert code == 0, err
    answer = json.loads(forerun("predict", graph, "--device", "l4", "--json")[1])
    for name in ("latency_ms", "power_w", "peak_memory_mib"):
        estimate = answer["metrics"][name]
        (line,) = (line for line in brief.splitlines() if line.startswith(name))
        assert f" {estimate['grade']}  {estimate['grade_reason']}" in line
    assert "where the time goes" not in brief
    full = forerun("predict", graph, "--device", "l4", "--explain")[1]
    assert "where the time goes" in full
    assert all(limit in full for limit in answer["limits"])


def test_options_of_training_change_the_json_answer(forerun, graph):
    def peak(*words):
        code, out, err = forerun(
            "predict", graph, "--device", "l4", "--phase", "training", *words, "--json"
        )
        assert code == 0, err
        return json.loads(out)["metrics"]["allocated_memory_mib"]["value"]

    whole = peak("--optimizer", "adamw")
    assert peak("--optimizer", "sgd") < whole
    assert peak("--data-parallel", 8, "--zero-stage", 1) < whole
    assert peak("--tensor-parallel", 4) < whole


def test_a_power_limit_slows_and_saves(forerun, graph):
    words = ("predict", graph, "--device", "a100-pcie-80gb", "--batch-size", 65536, "--json")
    free, capped = (
        json.loads(forerun(*words, *more)[1])["metrics"] for more in ((), ("--power-limit", 120))
    )
    assert capped["latency_ms"]["value"] > free["latency_ms"]["value"]
    assert capped["power_w"]["value"] <= 120 < free["power_w"]["value"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--optimizer", "sgd"], "optimizer: options of training, but the phase is inference"),
        (["--phase", "training", "--optimizer", "x"], "optimizer 'x': Input should be 'none'"),
        (["--phase", "training", "--zero-stage", 1], "data_parallel says how many"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(forerun, graph, words, said):
    code, out, err = forerun("predict", graph, "--device", "l4", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.strip().splitlines()) == 1
