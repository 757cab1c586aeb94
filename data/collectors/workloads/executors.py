"""Executors of trials on the processor, through onnxruntime or torch."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.workloads.operators import NotRunnable
from forerun.data.lazy import torch

Run = Callable[[], object]
Prepare = Callable[[], Run]
"""Makes inputs and weights; imports made before it do not count as a workload's memory."""


_TYPES = {
    **{name: name for name in ("bool", "int8", "uint8", "int16", "int32", "int64")},
    **{"float": "float32", "float16": "float16", "double": "float64"},
}
"""Element type of ONNX -> that of NumPy."""


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
    import onnxruntime

    if trial.precision != "fp32" or trial.phase != "inference":
        raise NotRunnable("onnxruntime is measured in fp32 inference")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    subject = trial.subject
    model: bytes | str
    if isinstance(subject, Source) and not subject.file:
        from forerun.data.collectors.workloads.onnx_networks import NETWORKS

        model = NETWORKS[subject.name].build()
    elif isinstance(subject, Source):
        model = _content(Path(subject.file))
    else:
        from forerun.data.collectors.workloads.onnx_nodes import model_of

        model = model_of(subject)

    def made() -> Run:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        rng = np.random.default_rng(0)
        shapes = subject.shapes if isinstance(subject, Source) else {}
        feeds = {
            node.name: _input(node, shapes.get(node.name), trial.batch_size, rng)
            for node in session.get_inputs()
        }
        return lambda: session.run(None, feeds)

    return made


def _content(file: Path) -> bytes | str:
    """The content of an ONNX file; its path where weights lie in files next to it."""
    import onnx

    weights = onnx.load(file, load_external_data=False).graph.initializer
    apart = any(weight.data_location == onnx.TensorProto.EXTERNAL for weight in weights)
    return str(file) if apart else file.read_bytes()


def _input(node: Any, given: Sequence[int] | None, batch_size: int, rng: Any) -> Any:
    """An input of a given shape, or of the one that a model declares at a batch size.

    Of a declared shape, the first dimension is the batch where it is free.
    """
    if given is not None:
        return _values(node.type, given, rng)
    shape = [size if isinstance(size, int) and size > 0 else None for size in node.shape]
    bound = [batch_size if size is None and place == 0 else size or 1
             for place, size in enumerate(shape)]  # fmt: skip
    if shape and shape[0] is not None and batch_size not in (1, shape[0]):
        raise NotRunnable(f"the file is fixed at batch size {shape[0]}")
    return _values(node.type, bound, rng)


def _values(type_name: str, shape: Sequence[int], rng: Any) -> Any:
    """Values of an ONNX type such as `tensor(float)`: zeros for indices and flags."""
    kind = _TYPES.get(type_name.removeprefix("tensor(").removesuffix(")"), "float32")
    if kind.startswith("float"):
        return rng.standard_normal(shape, np.float32).astype(kind)
    return np.zeros(shape, kind)


def _torch(trial: Trial, threads: int) -> Prepare:

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
