"""The GPU collector, on a GPU that is not there."""

import subprocess
import sys

import pytest

pytest.importorskip("torch")

from forerun.data.collectors.collector import Broken, collect
from forerun.data.collectors.gpu import GpuCollector, main, network_trials
from forerun.data.collectors.gpu_run import GpuRun
from forerun.data.collectors.journal import Journal
from forerun.data.collectors.nvml import Nvml
from forerun.data.collectors.single_operators import linear, rows
from forerun.data.collectors.torch_language import encoder_block
from forerun.data.collectors.torch_networks import NETWORKS, Definition
from forerun.data.collectors.trial import Source, Trial
from forerun.data.measurement import read_measurements
from tests.data.collectors.fake_gpu import FakeNvml, fake_cuda

TRIALS = (
    Trial(linear(8, 16, 16), "fp16", group="linear"),
    Trial(rows("softmax", 8, 16), group="softmax"),
)


def on_a_processor(trials, library=None, **how):
    """A collector whose GPU is the processor."""
    collector = GpuCollector(device="h200", trials=trials)
    nvml = "NVML was not asked" if library is None else Nvml(library, "handle")
    times = {"window_s": 0.01, "warm_up_s": 0.0, "power_s": 0.05, "cool_s": 0.0}
    collector.__dict__["_gpu_run"] = GpuRun("cpu", nvml=nvml, idle_mib=400.0, **(times | how))
    return collector


@pytest.fixture
def cuda(monkeypatch):
    fake_cuda(monkeypatch)


def test_a_row_holds_latency_memory_at_three_levels_power_and_software(cuda):
    collector = on_a_processor(TRIALS, FakeNvml(power_w=300))
    row = collector.measure(TRIALS[0])
    assert row["status"] == "ok"
    assert row["latency_ms"] > 0
    assert (row["allocated_memory_mib"], row["reserved_memory_mib"]) == (100, 120)
    assert row["peak_memory_mib"] == 200
    assert row["power_w"] == pytest.approx(300, rel=0.35)
    assert row["power_limit_w"] == 700
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


def test_out_of_memory_is_a_status_without_figures(cuda, monkeypatch):
    import torch

    def full(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 TiB")

    monkeypatch.setattr(torch, "softmax", full)
    row = on_a_processor(TRIALS, FakeNvml()).measure(TRIALS[1])
    assert row["status"] == "oom"
    assert "latency_ms" not in row
    assert "1.00 TiB" in row["reason"]


def test_a_lost_gpu_ends_the_run_and_the_next_one_goes_on(cuda, monkeypatch, tmp_path):
    import torch

    def lost(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    journal = Journal.beside(tmp_path / "table.parquet")
    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    with pytest.raises(Broken, match="illegal memory access"):
        collect(on_a_processor(TRIALS), journal, 60, in_order=True)
    assert [row["status"] for row in journal.rows()] == ["failed"]
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    done = collect(on_a_processor(TRIALS), journal, 60, in_order=True)
    assert (done.measured, done.left) == (2, 0)
    assert [row["status"] for row in journal.rows()] == ["ok", "ok"]


def test_networks_run_eager_in_training_and_in_autocast(cuda, monkeypatch):
    tiny = Definition(lambda: encoder_block(16, 2), (4, 16))
    monkeypatch.setitem(NETWORKS, "tiny", tiny)
    for precision, phase in (("amp_bf16", "inference"), ("fp32", "training")):
        trial = Trial(Source("tiny"), precision, 1, phase)
        row = on_a_processor((), window_s=0.001).measure(trial)
        assert row["status"] == "ok", row


def test_the_plan_spans_the_precisions_that_the_gpu_has(cuda, monkeypatch):
    hopper = GpuCollector(step=8).plan()
    assert {t.precision for t in hopper} == {"fp32", "tf32", "fp16", "bf16", "fp8", "amp"}
    fake_cuda(monkeypatch, (7, 5))
    assert {t.precision for t in GpuCollector(step=8).plan()} == {"fp32", "fp16", "amp"}
    assert len({t.key for t in hopper}) == len(hopper)


def test_networks_are_run_in_every_way():
    trials = network_trials(("fp32", "fp16"))
    ways = {(t.phase, t.runtime, t.cuda_graph) for t in trials}
    assert ways == {
        ("inference", "eager", False),
        ("inference", "compiled", False),
        ("inference", "eager", True),
        ("training", "eager", False),
    }
    assert {t.subject.name for t in trials} == set(NETWORKS)


def test_alone_it_writes_a_table_that_the_schema_takes(cuda, monkeypatch, tmp_path):
    monkeypatch.setattr(GpuCollector, "plan", lambda self: TRIALS)
    monkeypatch.setitem(GpuCollector.__dict__["_gpu_run"].__dict__, "func", lambda self: run())
    out = tmp_path / "h200.parquet"
    assert main(["-o", str(out), "--budget-minutes", "1"]) == 0
    table = read_measurements(out)
    assert len(table) == 2
    assert (table["status"] == "ok").all()
    assert set(table["device"]) == {"NVIDIA H200"}


def test_alone_a_lost_gpu_is_gone_on_with_by_a_new_process(cuda, monkeypatch, tmp_path):
    import os

    import torch

    def lost(*_):
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    began = []
    monkeypatch.setattr(os, "execv", lambda program, words: began.append(words))
    monkeypatch.setattr(torch.cuda, "empty_cache", lost)
    monkeypatch.setattr(GpuCollector, "plan", lambda self: TRIALS)
    monkeypatch.setitem(GpuCollector.__dict__["_gpu_run"].__dict__, "func", lambda self: run())
    assert main(["-o", str(tmp_path / "t.parquet"), "--budget-minutes", "5"]) == 1
    ((_, _, module, *words),) = began
    assert module == "forerun.data.collectors.gpu"
    assert 4 < float(words[words.index("--budget-minutes") + 1]) <= 5
    assert read_measurements(tmp_path / "t.parquet")["status"].tolist() == ["failed"]


def run():
    return GpuRun("cpu", 0.01, 0.0, 0.05, 0.0, Nvml(FakeNvml(), "handle"), 400.0)


def test_without_a_gpu_it_says_why_and_leaves_with_2(capsys, tmp_path):
    assert main(["-o", str(tmp_path / "x.parquet")]) == 2
    assert "no CUDA GPU" in capsys.readouterr().err


def test_alone_it_imports_neither_pydantic_nor_pandera_nor_onnx():
    code = (
        "import sys; import forerun.data.collectors.gpu\n"
        "print(sorted({'pydantic', 'pandera', 'onnx', 'pandas', 'yaml', 'torch', 'numpy'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
