"""An ONNX file as operators: its inputs, shapes, control flow and nodes."""
