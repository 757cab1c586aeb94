"""Input that is wrong, of verbs: one line on standard error, and nothing else."""

import json

import pytest

from tests.service.conftest import GRAPH


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["predict", "GRAPH", "--device", "rtx 4091"], "Did you mean rtx-4090"),
        (["predict", "nowhere.onnx", "--device", "l4"], "nowhere.onnx"),
        (["predict", "GRAPH", "--device", "l4", "--precision", "fp17"], "--precision 'fp17'"),
        (["devices", "abacus"], "No device named 'abacus'"),
        (["devices", "show", "xilinx-vcu1525"], "known only for hardware designs"),
        (["devices", "--kind", "abacus"], "gpu, cpu, npu"),
        (["devices", "--kind", "vm"], "No device is of kind 'vm'; there are cpu, gpu"),
        (["data", "pull", "nothing"], "No dataset named 'nothing'"),
        (["evaluate", "nothing"], "No dataset named 'nothing'"),
        (["evaluate", "neusight"], "forerun data pull neusight"),
        (["promote"], "Give a version"),
        (["serve", "--port", "-1"], "--port -1: a port is from 1 to 65535"),
        (["serve", "--port", "0", "--grpc-port", "70000"], "--grpc-port 70000: a port is"),
    ],
)
def test_wrong_input_is_one_line_and_exit_2(forerun, tmp_path, words, said):
    graph = tmp_path / "graph.json"
    graph.write_text(json.dumps(GRAPH.to_json()))
    code, out, err = forerun(*(graph if word == "GRAPH" else word for word in words))
    assert code == 2
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1
