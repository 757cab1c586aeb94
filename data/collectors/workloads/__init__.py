"""What is measured: operators and networks, through onnxruntime and torch."""
