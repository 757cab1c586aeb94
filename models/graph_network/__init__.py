"""Latency of whole networks by a graph network over their kernels.

Trained in torch, exported to ONNX, answered through onnxruntime.
"""

from forerun.models.graph_network.latency import GraphNetwork

__all__ = ["GraphNetwork"]
