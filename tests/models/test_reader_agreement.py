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
from tests.features.memory.test_training_step import modules

torch = pytest.importorskip("torch")


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
@pytest.mark.parametrize("name", ["stem", "residual", "excited", "softmax", "attention"])
def test_onnx_and_torch_export_agree(name, opset, tmp_path):
    module, shape = modules()[name]
    module, example = module.eval(), torch.zeros(1, *shape)
    exported = through_onnx(module, example, tmp_path, opset)
    traced = trace_module(module, (example,))
    for runtime in ("eager", "compiled"):
        for precision in ("amp", "fp16"):
            one, other = (milliseconds(g, runtime, precision) for g in (exported, traced))
            assert one == pytest.approx(other, rel=0.15)
