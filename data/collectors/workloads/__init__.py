"""Measured workloads: operators and networks, through onnxruntime and torch."""
