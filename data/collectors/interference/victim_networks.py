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
from typing import Any

from forerun.data.collectors.runner.trial import Source, Trial
from forerun.data.collectors.system.host_inventory import read_task
from forerun.data.collectors.workloads.executors import prepare
from forerun.data.collectors.workloads.onnx_networks import NetworkBuilder
from forerun.data.file_store import draft_of


def _convnet() -> bytes:
    """Depthwise separable convolutions, as in MobileNet."""
    net = NetworkBuilder((3, 96, 96))
    x = net.conv("x", 32, 3, 2, bias=False)
    for wider, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), (512, 1)):
        width = net.shapes[x][0]
        x = net.conv(x, width, 3, stride, width, "relu", bias=False)
        x = net.conv(x, wider, activation="relu", bias=False)
    return net.model(net.node("GlobalAveragePool", [x], (512, 1, 1)))


def _perceptron() -> bytes:
    net, x = NetworkBuilder((512,)), "x"
    for width in (1024, 1024, 512):
        x = net.linear(x, width, "relu", bias=False)
    return net.model(x)


def _transformer() -> bytes:
    """Encoder blocks: attention over all tokens, then a network of two layers on each."""
    width = 256
    net, x = NetworkBuilder((48, width)), "x"
    for _ in range(4):
        x = net.add(x, net.attention(net.layer_norm(x), 4, bias=False))
        wide = net.linear(net.layer_norm(x), 4 * width, "relu", bias=False)
        x = net.add(x, net.linear(wide, width, bias=False))
    return net.model(x)


NETWORKS: dict[str, Callable[[], bytes]] = {
    "convnet": _convnet,
    "perceptron": _perceptron,
    "transformer": _transformer,
}
"""Name -> what builds it, as ONNX."""


def inference(name: str, folder: Path) -> Callable[[], Any]:
    """A function that runs one inference of a network; its file is cached in the folder."""
    path = folder / f"{name}.onnx"
    if not path.is_file():
        with draft_of(path) as draft:
            draft.write_bytes(NETWORKS[name]())
    return prepare(Trial(Source(name, str(path)), framework="onnxruntime"), threads=1)()


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
