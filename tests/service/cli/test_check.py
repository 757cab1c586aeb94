"""`forerun check`: each mistake of a manifest or a job script is a line with its place."""

import json

import pytest

from tests.service.conftest import GRAPH

MANIFEST = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: train
spec:
  template:
    metadata:
      annotations:
        forerun.dev/graph: resnet50
        forerun.dev/batch-size: "64"
    spec:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-L4}
      containers:
        - name: main
          resources: {limits: {nvidia.com/gpu: 1}}
"""
JOB = """\
#!/bin/bash
#SBATCH --job-name=train
#SBATCH --gres=gpu:l4:1
#SBATCH --comment=forerun:graph=resnet50,batch_size=64,batches=100
srun python train.py
"""


@pytest.fixture
def checked(forerun, tmp_path):
    """Exit code and lines, each without the name of the file."""

    def check(text: str, *words: str):
        file = tmp_path / "file"
        file.write_text(text)
        code, out, err = forerun("check", file, *words)
        return code, [line.removeprefix(f"{file}:") for line in out.splitlines()] or err

    return check


@pytest.mark.parametrize(
    "text", [MANIFEST, JOB, MANIFEST + "---\n" + MANIFEST, "#!/bin/sh\ntrue\n"]
)
def test_a_right_file_has_no_line(checked, text):
    assert checked(text) == (0, "")


@pytest.mark.parametrize(
    ("text", "before", "after", "line"),
    [
        (MANIFEST, "batch-size", "batchsize", "10: error: forerun.dev/batchsize: 'batchsize' is"),
        (MANIFEST, '"64"', "64", "10: error: forerun.dev/batch-size: 64 is no text"),
        (MANIFEST, "resnet50", "resnet51x", "9: error: forerun.dev/graph: No graph"),
        (MANIFEST, '"64"', '"65536"', "7: error: l4: does not fit"),
        (MANIFEST, "gpu: 1", "gpu: 2", "15: warning: nvidia.com/gpu: 2 are requested"),
        (MANIFEST, "      annotations", "      labels: {forerun.dev/risk: high}\n      annotations",
         "8: error: forerun.dev/risk: labels of pods are not read"),
        (MANIFEST, "nvidia.com/gpu.product: NVIDIA-L4", "forerun.dev/device: l40000",
         "12: error: forerun.dev/device: No device named 'l40000'. Did you mean l40"),
        (MANIFEST, "  name: train", "  annotations: {forerun.dev/graph: resnet50}",
         "4: error: forerun.dev/graph: write it in the metadata of the pod's template"),
        (JOB, "batch_size=64", "batchsize=64", "4: error: batchsize: 'batchsize' is no field"),
        (JOB, "batch_size=64", "batch_size", "4: error: --comment: 'batch_size' is not KEY=VALUE"),
        (JOB, "batches=100", "batches=x", "4: error: --comment: batches=x is no number"),
        (JOB, "batches=100", "llm=a", "4: error: --comment: llm is read of pods alone"),
        (JOB, "forerun:", "foreruns:", "4: error: --comment: 'foreruns' is not read"),
        (JOB, "batch_size=64", "batch_size=65536", "1: error: l4: does not fit"),
        (JOB, "gpu:l4:1", "gpu:l4:2", "3: warning: --gres: 2 are requested"),
        (JOB, "gpu:l4:1", "gpu:2", "3: warning: --gres: 2 are requested"),
        (JOB, "gpu:l4:1", "gpu:l4=2,tmp:5", "3: warning: --gres: 2 are requested"),
        (JOB, "--gres=gpu:l4:1", "-G l4:2", "3: warning: --gpus: 2 are requested"),
        (JOB, "--gres=gpu:l4:1", "-N 2 --gpus-per-node 1", "3: warning: --gpus-per-node: 2 are"),
        (JOB, "gpu:l4:1", "gpu:1:l4", "3: error: --gres: 'gpu:1:l4' is no number of GPUs"),
        (JOB, "gpu:l4:1", "gpus:1", "3: error: --gres: 'gpus:1' requests no GPU"),
        (JOB, "gpu:l4:1", "2", "3: error: --gres: '2' requests no GPU"),
        (JOB, "gpu:l4:1", "gpu:z9", "3: warning: --gres: No device named 'z9'"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(checked, text, before, after, line):
    assert before in text
    code, lines = checked(text.replace(before, after, 1))
    assert [own for own in lines if own.startswith(line)], lines
    assert len(lines) == 1
    assert code == (1 if " error: " in line else 0)


def test_all_pods_of_a_file_are_checked(checked):
    wrong = MANIFEST.replace("batch-size", "batchsize")
    code, lines = checked(f"{MANIFEST}---\n{wrong}---\n{json.dumps({'items': []})}\n")
    assert (code, len(lines)) == (1, 1)
    assert lines[0].startswith(f"{10 + MANIFEST.count(chr(10)) + 1}: error: ")


def test_a_device_may_be_named_where_the_file_names_none(checked):
    text = MANIFEST.replace("nvidia.com/gpu.product: NVIDIA-L4", "").replace('"64"', '"65536"')
    assert checked(text)[0] == 0
    code, lines = checked(text, "--device", "t4,l4")
    assert (code, len(lines)) == (1, 2)
    assert checked(text, "--device", "nothing")[0] == 2


def test_findings_are_one_object_for_programs(checked):
    code, lines = checked(MANIFEST.replace("batch-size", "batchsize"), "--json")
    (own,) = json.loads("\n".join(lines))["findings"]
    assert (code, own["line"], own["severity"]) == (1, 10, "error")


@pytest.mark.parametrize(
    "text",
    [
        *("", "a: [", "kind: Service\nspec: {ports: []}\n", "just words"),
        *("spec: {containers: 3}", "{[a]: b}"),
        "{metadata: {annotations: [a]}, spec: {containers: []}}",
    ],
)
def test_a_file_of_another_kind_is_one_line_and_exit_code_2(checked, text):
    code, err = checked(text)
    assert (code, len(err.splitlines())) == (2, 1)
    assert "Traceback" not in err


def test_a_file_that_is_not_there_is_one_line(forerun, tmp_path):
    file = tmp_path / "missing.yaml"
    code, _, err = forerun("check", file)
    assert (code, err) == (2, f"forerun: Cannot read {file}: no such file.\n")


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


def test_all_mistakes_of_a_pod_are_found_together(checked):
    """Limits, names and values, each with its line."""
    indent = "\n" + " " * 8
    more = ("precision: amq", 'max-latency-ms: "fast"')
    added = "".join(f"{indent}forerun.dev/{own}" for own in more)
    wrong = MANIFEST.replace("batch-size", "batch-siz").replace("resnet50", f"resnet50{added}")
    code, lines = checked(wrong)
    assert code == 1
    found = [own.split(": ")[2] for own in lines]
    assert found == [f"forerun.dev/{own}" for own in ("precision", "max-latency-ms", "batch-siz")]
