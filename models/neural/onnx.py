"""Export of torch modules to ONNX, and sessions of onnxruntime that run them on one thread."""

import logging
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn


def onnx_bytes(
    module: "nn.Module",
    example: "tuple[Tensor, ...]",
    free: tuple[Any, ...],
    inputs: Sequence[str],
    outputs: Sequence[str],
) -> bytes:
    """A module as serialised ONNX, without the exporter's warnings and log messages.

    Args:
        module: to export; it is put into evaluation mode.
        example: inputs that the module accepts.
        free: dynamic dimensions of each input, as `torch.onnx.export` takes them.
        inputs: names of the inputs.
        outputs: names of the outputs.
    """
    import torch

    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                module.eval(),
                example,
                dynamo=True,
                dynamic_shapes=free,
                input_names=list(inputs),
                output_names=list(outputs),
                verbose=False,
            )
            assert program is not None
    finally:
        logger.setLevel(level)
    content = program.model_proto
    for node in content.graph.node:
        # Where in the source each operator comes from, half of the file.
        del node.metadata_props[:]
    return bytes(content.SerializeToString())


def onnx_session(content: bytes) -> Any:
    """An `onnxruntime.InferenceSession` of serialised ONNX, on one thread of the processor."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
