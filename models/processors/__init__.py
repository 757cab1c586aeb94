"""Latency and memory of networks run by onnxruntime on a processor."""
