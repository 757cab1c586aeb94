"""One torch network through two readers: kernels that take equally long."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from forerun.data.device import DeviceCatalog
from forerun.data.graph import OperatorGraph
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Network
from forerun.features.kernels.rows import KernelRows
from forerun.features.readers.input_sizes import InputSizes
from forerun.features.readers.onnx import OnnxReader
from forerun.features.readers.torch_trace import trace_module
from forerun.models.kernels.kernel_times import SHORTEST_S

torch = pytest.importorskip("torch")
nn = torch.nn


class Residual(nn.Module):
    def __init__(self, channels: int, stride: int = 1) -> None:
        super().__init__()
        wide = channels * stride
        self.one = nn.Conv2d(channels, wide, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(wide)
        self.two = nn.Conv2d(wide, wide, 3, 1, 1)
        self.short = nn.Conv2d(channels, wide, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: Any) -> Any:
        inner = torch.relu(self.norm(self.one(x)))
        return torch.relu(self.two(inner) + self.short(x))


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 32, 7, 2, 3)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.body = nn.Sequential(Residual(32), Residual(32, 2), Residual(64, 2))
        self.act, self.head = nn.SiLU(), nn.Linear(128, 10)

    def forward(self, x: Any) -> Any:
        return self.head(self.act(self.body(self.pool(self.stem(x)))).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        split = self.qkv(self.before(x)).reshape(batch, length, 3, self.heads, width // self.heads)
        q, k, v = split.permute(2, 0, 3, 1, 4).unbind(0)
        mixed = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2)
        x = x + self.out(mixed.reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.after(x))))


def through_onnx(module: Any, example: Any, folder: Path, opset: int) -> OperatorGraph:
    file = folder / "network.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module,
            (example,),
            str(file),
            opset_version=opset,
            dynamo=False,
            # Folding would hide the batch norms that eager torch runs.
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
        )
    return OnnxReader().read(file, InputSizes())


def milliseconds(graph: OperatorGraph, runtime: str, precision: str) -> float:
    network = Network(graph, 64, precision)  # type: ignore[arg-type]
    software = Software(version="2.4.0", runtime=runtime)  # type: ignore[arg-type]
    rows = KernelRows.of([Query(network, DeviceCatalog.load().get("rtx-4090"), software)])
    return 1e3 * float(((np.hypot(rows.compute_s, rows.memory_s) + SHORTEST_S) * rows.count).sum())


@pytest.mark.parametrize("opset", [14, 17])
@pytest.mark.parametrize(
    ("make", "shape"), [(Convolutional, (1, 3, 96, 96)), (Encoder, (1, 196, 128))]
)
def test_onnx_and_torch_export_agree(
    make: Any, shape: tuple[int, ...], opset: int, tmp_path: Path
) -> None:
    module, example = make().eval(), torch.zeros(shape)
    exported = through_onnx(module, example, tmp_path, opset)
    traced = trace_module(module, (example,))
    for runtime in ("eager", "compiled"):
        for precision in ("amp", "fp16"):
            one, other = (milliseconds(g, runtime, precision) for g in (exported, traced))
            assert one == pytest.approx(other, rel=0.15)
