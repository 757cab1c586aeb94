"""Networks as onnxruntime runs them on a processor: nodes, and the work they do."""
