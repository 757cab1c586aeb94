"""`forerun predict`: training, memory and power limits as people read them."""

import json
import re

import pytest

from forerun.features.graphs.pipeline import DECODER, DENOISER, ENCODER, joined
from tests.service.conftest import GRAPH
from tests.service.free_models import free_onnx, trees_onnx


def test_training_memory_is_printed_with_its_parts_and_whether_it_fits(forerun, graph):
    words = ("--phase", "training", "--optimizer", "sgd", "--device", "l4")
    out = forerun.ok("predict", graph, *words, "--explain")
    assert "what takes memory, MiB: weights 16" in out
    assert "fits: yes, up to " in out
    out = forerun.ok("predict", graph, *words, "--device", "t4")
    assert "fits" in out
    assert out.count(" yes ") == 2


def test_every_metric_has_a_grade_and_a_reason_and_explain_adds_the_rest(forerun, graph):
    brief = forerun.ok("predict", graph, "--device", "l4")
    answer = forerun.json("predict", graph, "--device", "l4")
    for name in ("latency_ms", "power_w", "peak_memory_mib"):
        estimate = answer["metrics"][name]
        (line,) = (line for line in brief.splitlines() if line.startswith(name))
        assert f" {estimate['grade']}  {estimate['grade_reason']}" in line
    assert "where the time goes" not in brief
    full = forerun("predict", graph, "--device", "l4", "--explain")[1]
    assert "where the time goes" in full
    assert all(limit in full for limit in answer["limits"])


@pytest.fixture
def free(tmp_path):
    """A model file with a free batch, height and width."""
    path = tmp_path / "free.onnx"
    path.write_bytes(free_onnx())
    return path


def test_what_free_dimensions_were_taken_as_is_printed(forerun, free):
    out = forerun.ok("predict", free, "--device", "l4")
    said = (
        "free dimensions: images height and width taken as 224 pixels (--image-size changes this)"
    )
    assert said in " ".join(out.split())
    out = forerun("predict", free, "--device", "l4,t4", "--image-size", 64)[1]
    assert "free dimensions: images H and W taken as 64" in out


def test_a_tree_ensemble_gets_no_time(forerun, tmp_path):
    path = tmp_path / "trees.onnx"
    path.write_bytes(trees_onnx())
    answer = forerun.json("predict", path, "--device", "rtx-4090")
    assert answer["metrics"]["latency_ms"] is answer["metrics"]["energy_j"] is None
    assert "TreeEnsembleRegressor" in answer["missing"]["power_w"]
    assert answer["metrics"]["peak_memory_mib"]["value"] > 0
    assert (answer["roofline"], answer["breakdown_ms"]) == ({}, {})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--optimizer", "sgd"], "optimizer: options of training, but the phase is inference"),
        (["--phase", "training", "--optimizer", "x"], "--optimizer 'x' is not one of none, sgd"),
        (["--phase", "training", "--zero-stage", 1], "; --data-parallel says how many"),
    ],
)
def test_options_that_contradict_each_other_are_one_line(forerun, graph, words, said):
    err = forerun.refused("predict", graph, "--device", "l4", *words)
    assert said in err
    assert len(err.strip().splitlines()) == 1


def shares_of(lines):
    """Shares of the parts and of the classes of operators that are printed, %."""
    start = lines.index("largest parts of the latency: ms, share, runs, operator")
    middle = lines.index("sums by class of operator, over all parts: ms, share, runs, class")
    end = next(place for place in range(middle, len(lines)) if "the latency" in lines[place])
    rows = [re.match(r" *([\d.e-]+) +([\d.]+)% x", line) for line in lines]
    parts, sums = rows[start:middle], rows[middle:end]
    return [float(row[2]) for row in parts if row], [float(row[2]) for row in sums if row]


def test_limits_of_parts_that_wait_in_the_hosts_memory_are_printed_in_brief(forerun, tmp_path):
    parts = {ENCODER: [GRAPH], DENOISER: [GRAPH], DECODER: [GRAPH]}
    path = tmp_path / "pipeline.json"
    path.write_text(json.dumps(joined(parts, 4, 2).to_json()))
    for words, is_said in (((), False), (("--offload",), True)):
        brief = forerun.ok("predict", path, "--device", "l4", *words)
        assert ("load weights from host memory is not included" in brief) == is_said
        assert ("MiB: text encoder" in brief) == is_said
        assert ("only the largest at a time" in brief) == is_said


def test_a_power_limit_without_effect_is_said_in_brief(forerun, graph):
    said = "100 W is above the TDP of 72 W: no limit is applied"
    assert said in forerun.ok("predict", graph, "--device", "l4", "--power-limit", 100)
    assert said not in forerun.ok("predict", graph, "--device", "l4", "--power-limit", 70)


def test_explain_divides_the_answer_of_each_of_several_devices(forerun, graph):
    words = ("predict", graph, "--device", "l4", "--device", "t4")
    out = forerun.ok(*words, "--explain")
    answers = forerun.json(*words, "--explain")["answers"]
    for device, answer in zip(("l4", "t4"), answers, strict=True):
        own = out.partition(f"\non {device}\n")[2].partition("\non ")[0]
        assert answer["metrics"]["latency_ms"]["grade_reason"] in own
        assert "where the time goes" in own
        parts, sums = shares_of(own.splitlines())
        assert sum(parts) == pytest.approx(100.0, abs=0.2)
        assert sum(sums) == pytest.approx(100.0, abs=0.2)
    assert "largest parts" not in forerun(*words)[1]


def test_the_parts_that_explain_prints_add_up_to_the_latency(forerun, graph):
    out = forerun.ok("predict", graph, "--device", "l4", "--explain")
    lines = out.splitlines()
    shares, _ = shares_of(lines)
    assert len(shares) == 3
    assert sum(shares) == pytest.approx(100.0, abs=0.2)
    assert "fc 1x1024 -> 1x4096 (linear)" in out
    answer = forerun.json("predict", graph, "--device", "l4", "--explain")
    own = answer["attribution"]
    assert sum(part["value"] for part in own["parts"]) == pytest.approx(
        answer["metrics"]["latency_ms"]["value"], rel=1e-9
    )
    brief = forerun.json("predict", graph, "--device", "l4")
    assert brief["attribution"] is None


def test_factors_of_loops_are_printed_and_multiply_to_the_cycles(forerun):
    preset = "hls-two-matrix-products"
    out = forerun.ok("predict", preset, "--explain")
    own = forerun.json("predict", preset, "--explain")["attribution"]
    assert f"{own['base']:,.0f} cycles without directives" in out
    assert "loop L2: pipeline flatten" in out
    factors = re.findall(r" x ([\d.]+) ", out)
    assert len(factors) == len(own["parts"]) == 2


def test_a_picture_has_the_parts_of_the_answer(forerun, graph, tmp_path):
    pytest.importorskip("matplotlib")
    file = tmp_path / "parts.svg"
    forerun.ok("predict", graph, "--device", "l4", "--picture", file)
    drawn = file.read_text(encoding="utf-8")
    assert drawn.count("<!-- fc 1x1024 -&gt; 1x4096 -->") + drawn.count("fc 1x1024") >= 1


@pytest.mark.parametrize(
    ("devices", "name", "words"),
    [
        ("l4,t4", "x.svg", "one device"),
        ("l4", "x.txt", ".svg, .png, .pdf"),
        ("l4", "missing/x.svg", "cannot be written: No such file or directory"),
    ],
)
def test_a_picture_of_two_answers_of_another_format_or_without_a_folder_is_refused(
    forerun, graph, tmp_path, devices, name, words
):
    file = tmp_path / name
    err = forerun.refused("predict", graph, "--device", devices, "--picture", file)
    assert words in " ".join(err.split())
    assert not file.exists()


@pytest.mark.parametrize("names", [["l4,l4"], ["l4", "L4,nvidia l4"]])
def test_a_device_that_is_named_twice_is_answered_once(forerun, graph, names):
    words = [word for name in names for word in ("--device", name)]
    assert forerun.json("predict", graph, *words)["device"]["name"] == "l4"
    out = forerun("predict", graph, "--device", "t4", *words, "--device", "t4", "--json")[1]
    assert [each["device"]["name"] for each in json.loads(out)["answers"]] == ["t4", "l4"]


def test_a_question_of_a_file_is_answered_once_on_a_device(forerun):
    words = ("predict", "hls-two-matrix-products", "--device", "xilinx-vcu1525,xilinx-vcu1525")
    assert forerun.json(*words)["device"]["name"] == "xilinx-vcu1525"


def test_explain_says_of_which_batch_size_the_shapes_are(forerun, graph):
    words = ("predict", graph, "--device", "l4", "--explain", "--batch-size")
    said = "largest parts of the latency: ms, share, runs, operator"
    assert said in forerun(*words, 1)[1].splitlines()
    lines = forerun(*words, 32)[1].splitlines()
    assert f"{said} (shapes at batch size 1, times at 32)" in lines
    assert any("fc 1x1024 -> 1x4096" in line for line in lines)
    own = forerun.json(*words, 32)["attribution"]
    assert (own["graph_batch_size"], own["batch_size"]) == (1, 32)


@pytest.mark.parametrize("command", ["rank", "sweep"])
def test_a_question_is_refused_where_a_model_is_taken(forerun, command, tmp_path):
    file = tmp_path / "q.json"
    file.write_text('{"device": "l4", "workload": {"kind": "benchmark"}}')
    assert "`forerun predict FILE` answers it" in forerun.refused(command, file, "--device", "l4")
