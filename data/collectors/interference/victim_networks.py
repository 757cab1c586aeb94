"""Victims that are networks: `python -m ...victim_networks NAME UNITS FOLDER`, as `victims.c`.

Small networks with random weights, built with onnx and run by onnxruntime on one thread: one unit
is one inference.
"""

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.data.collectors.system.host_inventory import read_task
from forerun.data.file_store import draft_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

SEED = 0
SIDE = 96
TOKENS, WIDTH, HEADS, LAYERS = 48, 256, 4, 4


class _Network:
    """Nodes and weights of a network under construction; values are named by their number."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        self.name, self.shape = name, shape
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._random = np.random.default_rng(SEED)

    def weight(self, *shape: int) -> str:
        scale = 1.0 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.constant(self._random.normal(0, scale, shape).astype(np.float32))

    def constant(self, values: "NDArray[Any]") -> str:
        from onnx import numpy_helper

        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def save(self, output: str, shape: tuple[int, ...], path: Path) -> None:
        import onnx
        from onnx import TensorProto, helper

        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        answer = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
        graph = helper.make_graph(self.nodes, self.name, [given], [answer], self.weights)
        opset = [helper.make_opsetid("", 17)]
        onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def _convnet(net: _Network) -> str:
    """Depthwise separable convolutions, as in MobileNet."""
    at = net.node("Conv", "x", net.weight(32, 3, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1])
    width = 32
    for wider, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        deep = net.weight(width, 1, 3, 3)
        at = net.node("Conv", at, deep, group=width, strides=[stride, stride], pads=[1, 1, 1, 1])
        at = net.node("Relu", at)
        at = net.node("Relu", net.node("Conv", at, net.weight(wider, width, 1, 1)))
        width = wider
    return net.node("GlobalAveragePool", at)


def _perceptron(net: _Network) -> str:
    at = "x"
    for wide, narrow in ((512, 1024), (1024, 1024), (1024, 512)):
        at = net.node("Relu", net.node("MatMul", at, net.weight(wide, narrow)))
    return at


def _transformer(net: _Network) -> str:
    """Encoder blocks: attention over all tokens, then a network of two layers on each."""

    def normal(value: str) -> str:
        scale, shift = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return net.node("LayerNormalization", value, net.constant(scale), net.constant(shift))

    split = net.constant(np.array([1, TOKENS, HEADS, WIDTH // HEADS], dtype=np.int64))
    whole = net.constant(np.array([1, TOKENS, WIDTH], dtype=np.int64))
    root = net.constant(np.array((WIDTH / HEADS) ** -0.5, dtype=np.float32))

    def heads(value: str, order: list[int]) -> str:
        product = net.node("MatMul", value, net.weight(WIDTH, WIDTH))
        return net.node("Transpose", net.node("Reshape", product, split), perm=order)

    at = "x"
    for _ in range(LAYERS):
        seen = normal(at)
        asked, keys = heads(seen, [0, 2, 1, 3]), heads(seen, [0, 2, 3, 1])
        shares = net.node("Softmax", net.node("Mul", net.node("MatMul", asked, keys), root))
        mixed = net.node("MatMul", shares, heads(seen, [0, 2, 1, 3]))
        joined = net.node("Reshape", net.node("Transpose", mixed, perm=[0, 2, 1, 3]), whole)
        at = net.node("Add", at, net.node("MatMul", joined, net.weight(WIDTH, WIDTH)))
        wide = net.node("Relu", net.node("MatMul", normal(at), net.weight(WIDTH, 4 * WIDTH)))
        at = net.node("Add", at, net.node("MatMul", wide, net.weight(4 * WIDTH, WIDTH)))
    return at


Shape = tuple[int, ...]
NETWORKS: dict[str, tuple[Shape, Shape, Callable[[_Network], str]]] = {
    "convnet": ((1, 3, SIDE, SIDE), (1, 512, 1, 1), _convnet),
    "perceptron": ((1, 512), (1, 512), _perceptron),
    "transformer": ((1, TOKENS, WIDTH), (1, TOKENS, WIDTH), _transformer),
}
"""Name -> shapes of its input and output, and what builds it."""


def build(name: str, path: Path) -> None:
    """Write a network as ONNX."""
    given, answer, builder = NETWORKS[name]
    net = _Network(name, given)
    net.save(builder(net), answer, path)


def inference(name: str, folder: Path) -> Callable[[], Any]:
    """A function that runs one inference of a network; its file is cached in the folder."""
    import onnxruntime

    path = folder / f"{name}.onnx"
    if not path.is_file():
        with draft_of(path) as draft:
            build(name, draft)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    shape = NETWORKS[name][0]
    given = {"x": np.random.default_rng(SEED).normal(size=shape).astype(np.float32)}
    return lambda: session.run(None, given)


def timed(work: Callable[[], Any], units: int) -> dict[str, float]:
    """Result of some units of work, as `victims.c` prints it: times, CPU seconds, counts."""
    delay = read_task(os.getpid()).get("task.wait_s")
    before = resource.getrusage(resource.RUSAGE_SELF)
    start = time.monotonic()
    for _ in range(units):
        work()
    end = time.monotonic()
    after = resource.getrusage(resource.RUSAGE_SELF)
    row = {
        "start": start,
        "end": end,
        "user_s": after.ru_utime - before.ru_utime,
        "system_s": after.ru_stime - before.ru_stime,
        "voluntary_switches": after.ru_nvcsw - before.ru_nvcsw,
        "involuntary_switches": after.ru_nivcsw - before.ru_nivcsw,
        "minor_faults": after.ru_minflt - before.ru_minflt,
        "major_faults": after.ru_majflt - before.ru_majflt,
    }
    if delay is not None:
        row["run_delay_s"] = read_task(os.getpid()).get("task.wait_s", delay) - delay
    return row


def main(name: str, units: int, folder: Path) -> None:
    """Prepare, report it, wait for a line, work, print the result; 0 units work without end."""
    work = inference(name, folder)
    for _ in range(3):
        work()
    print("ready", flush=True)
    while units == 0:
        work()
    if sys.stdin.readline():
        print(json.dumps(timed(work, units)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
