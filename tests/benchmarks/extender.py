"""CPU that the scheduler extender needs to filter and to score nodes for a pod."""

import itertools
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

from tests.benchmarks.server_cpu import bare_endpoint, cpu_ms
from tests.service.http.kubernetes.requests import args, node, pod
from tests.service.real_server import real_server

LIMITS = {
    "extender_one_pod_cpu_ms": ("<", 40.0),
    "extender_with_residents_cpu_ms": ("<", 60.0),
}
ROUNDS, NODES = 30, 100
PRODUCTS = (
    "NVIDIA-H100-80GB-HBM3",
    "NVIDIA-A100-SXM4-80GB",
    "NVIDIA-L40S",
    "NVIDIA-L4",
    "Tesla-T4",
)


def figures() -> dict[str, float]:
    """Milliseconds of a filter and the prioritize after it, and each over the bare endpoint.

    Whole nodes are sent, 100 of 5 device types; each pod has its own batch size and program.
    """
    batches, found = itertools.count(2), {}
    with (
        tempfile.TemporaryDirectory() as home,
        real_server(Path(home)) as server,
        bare_endpoint() as (port, pid),
    ):
        for name, residents in (("one_pod", False), ("with_residents", True)):
            nodes = [_node(index, residents) for index in range(NODES)]
            rounds = []
            for _ in range(ROUNDS + 1):
                body = json.dumps(args(_pod(next(batches), residents), nodes)).encode()
                spent = {"bare": cpu_ms([pid], f"http://127.0.0.1:{port}/", [body])}
                for verb in ("filter", "prioritize"):
                    url = f"{server.url}/v1/kubernetes/{verb}"
                    spent[verb] = cpu_ms(server.pids(), url, [body], warm=False)
                rounds.append(spent)
            middle = {
                verb: statistics.median(each[verb] for each in rounds[1:]) for verb in rounds[0]
            }
            both = middle["filter"] + middle["prioritize"]
            found |= {
                f"extender_{name}_filter_cpu_ms": middle["filter"],
                f"extender_{name}_prioritize_cpu_ms": middle["prioritize"],
                f"extender_{name}_cpu_ms": both,
                f"extender_{name}_over_bare": both / middle["bare"],
            }
    return found


def _pod(batch_size: int, program: bool) -> dict[str, Any]:
    asked = {"graph": "resnet50", "batch-size": str(batch_size), "precision": "amp"}
    asked["max-latency-ms"] = "500"
    if program:
        asked |= {"program": f"candidate-{batch_size}", "min-relative-speed": "0.3"}
    return pod(asked)


def _node(index: int, residents: bool) -> dict[str, Any]:
    product = PRODUCTS[index % len(PRODUCTS)]
    name = f"node-{index:03}"
    if not residents:
        return node(name, product)
    programs = [
        {"name": f"p{index}-{each}", "threads": 1 + (index + each) % 4, "cpu_share": 0.5}
        for each in range(2)
    ]
    return node(name, product, residents=json.dumps(programs))
