"""The GPU collector, on a GPU that is not there.

Recorded runs: what a graph reads lives as long as it does, on one stream for all.
"""

import gc
import os
import subprocess
import sys
import weakref
from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import Mock

import pytest

from forerun.data.collectors.latency import gpu
from forerun.data.collectors.latency.gpu import GpuCollector, _arguments, main
from forerun.data.collectors.latency.gpu_plan import Pace, Pacing
from forerun.data.collectors.latency.gpu_run import WARM_UP_RUNS, GpuRun, RecordingFailed, recorded
from forerun.data.collectors.runner.collector import Broken, collect
from forerun.data.collectors.runner.journal import Journal
from forerun.data.collectors.runner.stopwatch import Stopwatch
from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.system.nvml import Nvml, PowerWindow
from forerun.data.collectors.workloads.operators import linear, rows
from forerun.data.collectors.workloads.torch_networks import NETWORKS, Definition, encoder_block
from forerun.data.measurement import read_measurements
from tests.data.collectors.fake_gpu import FakeNvml, fake_cuda, fake_graphs

torch = pytest.importorskip("torch")

TRIALS = (
    Trial(linear(8, 16, 16), "fp16", group="linear"),
    Trial(rows("softmax", 8, 16), group="softmax"),
)


def quick(power_s=0.05):
    """Short windows; none of power where it has no seconds."""
    pace = Pace(Stopwatch(0.005, 0.0), few=PowerWindow(power_s) if power_s else None)
    return Pacing(pace, pace)


def on_a_processor(trials, library=None, power_s=0.05):
    """A collector whose GPU is the processor."""
    collector = GpuCollector(device="h200", trials=trials)
    nvml = "NVML was not asked" if library is None else Nvml(library, "handle")
    collector.__dict__["_gpu_run"] = GpuRun("cpu", quick(power_s), nvml, 400.0)
    return collector


LOST = Mock(side_effect=RuntimeError("CUDA error: an illegal memory access was encountered"))
IMPOSSIBLE = Mock(side_effect=ValueError("Expected more than 1 value per channel when training"))


@pytest.fixture
def cuda(monkeypatch):
    fake_cuda(monkeypatch)


@pytest.fixture
def alone(cuda, monkeypatch, tmp_path):
    """The collector as a command of its own, on that processor; where its table will be."""
    run = GpuRun("cpu", quick(), Nvml(FakeNvml(), "handle"), 400.0)
    monkeypatch.setattr(GpuCollector, "plan", lambda self: TRIALS)
    monkeypatch.setitem(GpuCollector.__dict__["_gpu_run"].__dict__, "func", lambda self: run)
    return tmp_path / "table.parquet"


def test_a_row_holds_latency_memory_at_three_levels_power_and_software(cuda):
    collector = on_a_processor(TRIALS, FakeNvml(power_w=300))
    row = collector.measure(TRIALS[0])
    assert row["status"] == "ok"
    assert row["latency_ms"] > 0
    assert (row["allocated_memory_mib"], row["reserved_memory_mib"]) == (100, 120)
    assert row["peak_memory_mib"] == 200
    assert row["power_w"] == pytest.approx(300, rel=0.35)
    assert row["power_limit_w"] == 700
    assert row["power_window_s"] >= 0.05
    assert row["kernel_ms"] > 0
    about = collector.about()
    assert (about["device"], about["gpu"], about["driver"]) == ("h200", "NVIDIA H200", "570.86")


def test_a_run_under_heat_is_throttled(cuda):
    row = on_a_processor(TRIALS, FakeNvml(reasons=0x20)).measure(TRIALS[0])
    assert row["status"] == "throttled"
    assert row["throttle"] == "thermal, by software"


def test_without_nvml_there_is_latency_and_the_reason_for_the_rest(cuda):
    row = on_a_processor(TRIALS).measure(TRIALS[0])
    assert row["latency_ms"] > 0
    assert "power_w" not in row
    assert row["energy_reason"] == "NVML was not asked"


def test_a_row_without_a_window_of_power_has_clocks_and_reasons_all_the_same(cuda):
    row = on_a_processor(TRIALS, FakeNvml(reasons=0x4), power_s=0).measure(TRIALS[0])
    assert "power_w" not in row
    assert (row["sm_clock_mhz"], row["memory_clock_mhz"], row["temperature_c"]) == (1980, 2619, 55)
    assert (row["clock_reasons"], row["throttle"], row["status"]) == (0x4, None, "ok")
    assert "no window" in row["energy_reason"]
    row = on_a_processor(TRIALS, FakeNvml(reasons=0x40), power_s=0).measure(TRIALS[0])
    assert row["status"] == "throttled"


def test_peaks_are_those_of_running_and_recording_not_of_building(cuda, monkeypatch):
    from forerun.data.collectors.workloads import torch_run

    memory = {"peak": 0.0}

    def built(trial, device):
        memory["peak"] = 5000.0

        def run():
            memory["peak"] = max(memory["peak"], 100.0)

        return run

    def recording(graph, stream):
        memory["peak"] += 50.0
        return nullcontext()

    fake_graphs(monkeypatch, recording)
    monkeypatch.setattr(torch_run, "torch_run", built)
    forget = lambda device=None: memory.update(peak=0.0)  # noqa: E731
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", forget)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: memory["peak"] * 2**20)
    eager, recorded = Trial(Source("any")), Trial(Source("any"), cuda_graph=True)
    assert on_a_processor(()).measure(eager)["allocated_memory_mib"] == 100
    assert on_a_processor(()).measure(recorded)["allocated_memory_mib"] == 150


def test_workspaces_of_libraries_are_given_back_after_each_trial(cuda, monkeypatch):
    given = []
    name = "_cuda_clearCublasWorkspaces"
    monkeypatch.setattr(torch._C, name, lambda: given.append(1), raising=False)
    collector = on_a_processor(TRIALS)
    for trial in TRIALS:
        collector.measure(trial)
    assert len(given) == 2


@pytest.mark.parametrize(
    "error",
    [
        torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB"),
        RuntimeError("CUDA error: out of memory\nCompile with `TORCH_USE_CUDA_DSA`"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    ],
    ids=["as torch says it", "CUDA", "cuBLAS", "cuDNN"],
)
def test_out_of_memory_is_a_status_without_figures_in_whatever_words(cuda, monkeypatch, error):
    monkeypatch.setattr(torch, "softmax", Mock(side_effect=error))
    row = on_a_processor(TRIALS, FakeNvml()).measure(TRIALS[1])
    assert (row["status"], row["reason"]) == ("oom", str(error).partition("\n")[0])
    assert "latency_ms" not in row


def test_a_recording_that_fails_ends_the_process_and_the_next_one_goes_on(
    cuda, monkeypatch, tmp_path
):
    error = RuntimeError("CUDA error: operation not permitted when stream is capturing")
    fake_graphs(monkeypatch, Mock(side_effect=error))
    trials = (replace(TRIALS[0], cuda_graph=True), *TRIALS)
    journal = Journal.for_table(tmp_path / "table.parquet")
    for _ in range(2):
        with pytest.raises(Broken, match="capturing"):
            collect(on_a_processor(trials), journal, 60)
    done = collect(on_a_processor(trials), journal, 60)
    assert (done.resumed, done.measured, done.left) == (1, 2, 0)
    assert [row["status"] for row in journal.rows()] == ["failed", "ok", "ok"]


def test_a_run_that_fails_before_it_is_recorded_ends_no_process(cuda, monkeypatch):
    fake_graphs(monkeypatch)
    monkeypatch.setattr(torch, "softmax", IMPOSSIBLE)
    row = on_a_processor(TRIALS).measure(replace(TRIALS[1], cuda_graph=True))
    assert (row["status"], row["reason"].partition(":")[0]) == ("failed", "ValueError")


def test_a_recording_that_runs_out_of_memory_is_out_of_memory(cuda, monkeypatch):
    fake_graphs(monkeypatch, Mock(side_effect=torch.cuda.OutOfMemoryError("CUDA out of memory.")))
    with pytest.raises(Broken) as ended:
        on_a_processor(TRIALS).measure(replace(TRIALS[1], cuda_graph=True))
    assert ended.value.row["status"] == "oom"


def test_without_timm_its_networks_are_not_measured(cuda, monkeypatch):
    monkeypatch.setattr(gpu, "library", lambda name: None)
    assert GpuCollector(zoo="timm").available() == "timm is not installed"
    assert GpuCollector().available() is None


def test_a_lost_gpu_ends_the_run_and_the_next_one_goes_on(cuda, monkeypatch, tmp_path):
    journal = Journal.for_table(tmp_path / "table.parquet")
    monkeypatch.setattr(torch.cuda, "empty_cache", LOST)
    with pytest.raises(Broken, match="illegal memory access"):
        collect(on_a_processor(TRIALS), journal, 60)
    assert [row["status"] for row in journal.rows()] == ["failed"]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    done = collect(on_a_processor(TRIALS), journal, 60)
    assert (done.measured, done.left) == (2, 0)
    assert [row["status"] for row in journal.rows()] == ["ok", "ok"]


def test_networks_run_eager_in_training_and_in_autocast(cuda, monkeypatch):
    tiny = Definition(lambda: encoder_block(16, 2), (4, 16))
    monkeypatch.setitem(NETWORKS, "tiny", tiny)
    for precision, phase in (("amp_bf16", "inference"), ("fp32", "training")):
        trial = Trial(Source("tiny"), precision, 1, phase)
        row = on_a_processor(()).measure(trial)
        assert row["status"] == "ok", row
        assert "kernel_ms" not in row


def test_alone_it_writes_a_table_that_the_schema_takes(alone):
    assert main(["-o", str(alone), "--budget-minutes", "1"]) == 0
    table = read_measurements(alone)
    assert len(table) == 2
    assert (table["status"] == "ok").all()
    assert set(table["device"]) == {"NVIDIA H200"}


def test_alone_a_lost_gpu_is_gone_on_with_by_a_new_process(alone, monkeypatch):
    began = []
    monkeypatch.setattr(os, "execv", lambda program, words: began.append(words))
    monkeypatch.setattr(torch.cuda, "empty_cache", LOST)
    words = ["-o", str(alone), "--budget-minutes", "5", "--only", "compiled"]
    assert main([*words, "--device", "h200"]) == 1
    ((_, _, module, *words),) = began
    assert module == "forerun.data.collectors.latency.gpu"
    given = _arguments(words)
    assert 4 < given.budget_minutes <= 5
    assert words.count("--budget-minutes") == 2
    assert (given.only, given.device) == ("compiled", "h200")
    assert read_measurements(alone)["status"].tolist() == ["failed"]


def test_a_journal_of_another_machine_is_one_line_and_leaves_with_2(alone, capsys):
    Journal.for_table(alone).open({"device": "another", "gpu": "NVIDIA L4"})
    assert main(["-o", str(alone)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "begun with another device" in line
    assert not alone.exists()


def test_without_a_gpu_it_says_why_and_leaves_with_2(capsys, tmp_path):
    assert main(["-o", str(tmp_path / "x.parquet")]) == 2
    assert "no CUDA GPU" in capsys.readouterr().err


def test_alone_it_imports_neither_pydantic_nor_pandera_nor_onnx():
    code = (
        "import sys; import forerun.data.collectors.latency.gpu\n"
        "print(sorted({'pydantic', 'pandera', 'onnx', 'pandas', 'yaml', 'torch', 'numpy'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


class Weights:
    pass


def run_with_weights():
    weights = Weights()
    return (lambda: id(weights)), weakref.ref(weights)


def test_a_recorded_graph_keeps_what_it_reads_alive_and_no_longer_than_itself(monkeypatch):
    fake_graphs(monkeypatch)
    run, weights = run_with_weights()
    replay = recorded(run, "cuda:0")
    del run
    gc.collect()
    replay()
    assert weights() is not None
    del replay
    gc.collect()
    assert weights() is None


def test_all_recordings_share_one_stream(monkeypatch):
    made = fake_graphs(monkeypatch)
    for _ in range(3):
        recorded(lambda: None, "cuda:0")
    assert len(made) == 1


def test_a_run_warms_up_before_it_is_recorded_and_runs_no_more(monkeypatch):
    fake_graphs(monkeypatch)
    runs = []
    replay = recorded(lambda: runs.append(1), "cuda:0")
    warm = len(runs)
    assert warm >= 3
    replay()
    assert len(runs) == warm


def test_an_error_while_it_records_is_a_failed_recording(monkeypatch):
    fake_graphs(monkeypatch)
    runs = []

    def reads_in_the_fourth_run():
        runs.append(1)
        if len(runs) > WARM_UP_RUNS:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RecordingFailed, match="capturing"):
        recorded(reads_in_the_fourth_run, "cuda:0")
