"""Every collector keeps the contract."""

import pytest

from forerun.data.collectors.latency.cpu import CpuCollector, CpuRun
from forerun.data.collectors.latency.gpu import GpuCollector
from forerun.data.collectors.latency.gpu_plan import Pace, Pacing
from forerun.data.collectors.latency.gpu_run import GpuRun
from forerun.data.collectors.runner.stopwatch import Stopwatch
from forerun.data.collectors.runner.trial import Trial
from forerun.data.collectors.system.host import QuietWait
from forerun.data.collectors.system.nvml import Nvml, PowerWindow
from forerun.data.collectors.workloads.operators import linear, rows
from tests.contracts.collector_contract import CollectorContract
from tests.data.collectors.fake_gpu import FakeNvml, fake_cuda

OPERATORS = (linear(8, 16, 32), rows("softmax", 4, 8))
QUICK = CpuRun(1, window_s=0.01, warm_up_s=0.0)


def trials(framework, runtime):
    return tuple(Trial(op, framework=framework, runtime=runtime) for op in OPERATORS)


@pytest.mark.slow
class TestCpu(CollectorContract):
    cls = CpuCollector

    def make(self):
        # Other tests run on this machine at the same time: it does not wait until they end.
        return CpuCollector(
            "mine", trials("onnxruntime", "onnxruntime"), QUICK, QuietWait(left_s=0.0)
        )


class OnFakeGpu(CollectorContract):
    """Of collectors that measure a GPU; the contract itself runs in subclasses alone."""

    __test__ = False

    @pytest.fixture(autouse=True)
    def _cuda(self, monkeypatch):
        pytest.importorskip("torch")
        fake_cuda(monkeypatch)

    def gpu(self):
        collector = GpuCollector(device="h200", trials=trials("torch", "eager"))
        nvml = Nvml(FakeNvml(), "handle")
        pace = Pace(Stopwatch(0.01, 0.0), few=PowerWindow(0.02))
        collector.__dict__["_gpu_run"] = GpuRun("cpu", Pacing(pace, pace), nvml, 400.0)
        return collector


class TestGpu(OnFakeGpu):
    __test__ = True
    cls = GpuCollector

    def make(self):
        return self.gpu()
