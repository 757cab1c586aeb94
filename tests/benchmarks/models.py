"""Network files that come with the `onnx` package."""

from pathlib import Path

import onnx

LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
