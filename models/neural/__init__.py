"""Neural networks of every kind of workload: training in torch, inference by onnxruntime."""

from forerun.models.neural.onnx import onnx_bytes, onnx_session
from forerun.models.neural.training import geometric, minimise, seeded_torch, stacked

__all__ = ["geometric", "minimise", "onnx_bytes", "onnx_session", "seeded_torch", "stacked"]
