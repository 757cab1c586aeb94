"""Executors of trials on the processor, through onnxruntime or torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operator_shapes import NotRunnable

Run = Callable[[], object]
Prepare = Callable[[], Run]
"""Makes inputs and weights; imports made before it do not count as a workload's memory."""


class NoMemory(Exception):
    """The runtime could not allocate."""


def prepare(trial: Trial, threads: int) -> Prepare:
    """Import the trial's runtime; returns a function that builds the workload and returns its run.

    Raises:
        NotRunnable: the runtime cannot run it.
        ImportError: the runtime is not installed.
    """
    if trial.framework == "onnxruntime":
        return _onnxruntime(trial, threads)
    return _torch(trial, threads)


def _onnxruntime(trial: Trial, threads: int) -> Prepare:
    import numpy as np
    import onnxruntime

    if trial.precision != "fp32" or trial.phase != "inference":
        raise NotRunnable("onnxruntime is measured in fp32 inference")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    subject = trial.subject
    model: bytes
    if isinstance(subject, Source) and not subject.file:
        from forerun.data.collectors.workloads.onnx_networks import NETWORKS

        model = NETWORKS[subject.name].build()
    elif isinstance(subject, Source):
        model = Path(subject.file).read_bytes()
    else:
        from forerun.data.collectors.workloads.onnx_nodes import model_of

        model = model_of(subject)

    def made() -> Run:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        feeds = {node.name: _input(node, trial.batch_size, rng) for node in session.get_inputs()}
        return lambda: session.run(None, feeds)

    return made


def _input(node: Any, batch_size: int, rng: Any) -> Any:
    """An input of the shape that a model declares; its first free dimension is the batch."""
    import numpy as np

    shape = [size if isinstance(size, int) and size > 0 else None for size in node.shape]
    bound = [batch_size if size is None and place == 0 else size or 1
             for place, size in enumerate(shape)]  # fmt: skip
    if shape and shape[0] is not None and batch_size not in (1, shape[0]):
        raise NotRunnable(f"the file is fixed at batch size {shape[0]}")
    if "int" in node.type:
        return np.zeros(bound, np.int32 if "int32" in node.type else np.int64)
    return rng.standard_normal(bound, np.float32)


def _torch(trial: Trial, threads: int) -> Prepare:
    import torch

    from forerun.data.collectors.workloads.torch_run import torch_run

    torch.set_num_threads(threads)

    def made() -> Run:
        try:
            return torch_run(trial, "cpu")
        except RuntimeError as error:
            if "allocate" in str(error):
                raise NoMemory(str(error)) from None
            raise

    return made
