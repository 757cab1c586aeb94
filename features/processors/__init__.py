"""Networks as onnxruntime runs them on a CPU: nodes and their work."""
