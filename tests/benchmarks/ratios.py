"""Times as ratios of two pieces of work on one machine: the same whether it is fast or slow.

Each ratio is `work` over `yardstick`, the fastest of some runs of either, taken in turn.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from forerun.data.device import Device, DeviceCatalog
from forerun.data.graph import Operator, OperatorGraph
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Architecture, Network
from forerun.features.memory.liveness import inference_requests
from forerun.features.memory.plan import memory_plan
from forerun.features.readers import read_graph
from forerun.models.artifact.sealed_folder import bundled
from tests.benchmarks.models import LIGHT
from tests.benchmarks.timing import clients, seconds
from tests.contracts.tiny_colocation import PROGRAMS
from tests.models.architectures.test_latency import device, fitted, stranger
from tests.service.answers.test_colocation import program
from tests.service.answers.test_colocation import trained as trained_colocation

LIMITS = {
    "read_resnet50_over_squeezenet": ("<", 10.0),
    "peak_of_a_batch_over_reading_lifetimes": ("<", 0.1),
    "memory_plan_known_graph_over_reading": ("<", 0.2),
    "forty_devices_over_ten": ("<", 6.0),
    "adapt_20_networks_over_predicting_them": ("<", 3.0),
    "search_15625_architectures_over_100": ("<", 120.0),
    "rank_300_hosts_over_30": ("<", 20.0),
    "rank_200_devices_over_bare": ("<", 80.0),
    "rank_100_hosts_of_2_over_bare": ("<", 40.0),
    "rank_200_hosts_of_8_over_bare": ("<", 200.0),
}
"""Chosen so that work which starts to grow with the square of its input, or is done again for each
of many, misses them; measured ratios stand in the results of `make bench`."""


def figures() -> dict[str, float]:
    """Every ratio, by the name of its limit."""
    return {
        "read_resnet50_over_squeezenet": _reading(),
        "peak_of_a_batch_over_reading_lifetimes": _peaks(),
        "memory_plan_known_graph_over_reading": _plans(),
        "forty_devices_over_ten": _devices(),
        "adapt_20_networks_over_predicting_them": _adapting(),
        "search_15625_architectures_over_100": _searching(),
        "rank_300_hosts_over_30": _hosts(),
        "rank_200_devices_over_bare": _choosing(200),
        "rank_100_hosts_of_2_over_bare": _placing(100, 2),
        "rank_200_hosts_of_8_over_bare": _placing(200, 8),
    }


def ratio(work: Callable[[], Any], yardstick: Callable[[], Any], runs: int = 7) -> float:
    """Fastest run of `work` over the fastest of `yardstick`, after one of each to warm up."""
    pairs = [(seconds(work), seconds(yardstick)) for _ in range(runs + 1)][1:]
    return min(one for one, _ in pairs) / min(other for _, other in pairs)


def _resnet50() -> bytes:
    return (LIGHT / "light_resnet50.onnx").read_bytes()


def _reading() -> float:
    large, small = _resnet50(), (LIGHT / "light_squeezenet.onnx").read_bytes()
    return ratio(lambda: read_graph(large), lambda: read_graph(small))


def _peaks() -> float:
    shape = ((10,),)
    chain = [Operator("elementwise", "x", shape, shape)]
    chain += [Operator("elementwise", "x", shape, shape, inputs=(n,)) for n in range(299)]
    graph = OperatorGraph(tuple(chain))
    asked = inference_requests(graph, "int8")
    return ratio(
        lambda: asked.live(asked.sizes(3.0)).max(), lambda: inference_requests(graph, "int8")
    )


def _plans() -> float:
    content = _resnet50()
    graph, sizes = read_graph(content), iter(range(2, 1000))
    return ratio(
        lambda: memory_plan(Network(graph, next(sizes), phase="training")),
        lambda: read_graph(content),
    )


def _devices() -> float:
    predictor, gpus = bundled().predictor, _gpus(40)
    network = Network(read_graph(_resnet50()), 8, "amp")
    queries = [Query(network, gpu) for gpu in gpus]
    return ratio(lambda: predictor.predict(queries), lambda: predictor.predict(queries[:10]), 3)


def _adapting() -> float:
    predictor, device = bundled().predictor, _gpus(1)[0]
    graph = read_graph(_resnet50())
    compiled = Software(runtime="compiled")
    queries = [Query(Network(graph, n + 1, "amp"), device, compiled) for n in range(20)]
    scatter = np.exp(np.random.default_rng(0).normal(0.0, 0.5, 20))
    measured = Measurements(queries, {"latency_ms": 5.0 * scatter})
    return ratio(lambda: predictor.adapt(measured), lambda: predictor.predict(queries), 3)


def _searching() -> float:
    codes = np.stack(np.meshgrid(*[range(5)] * 6), axis=-1).reshape(-1, 6)
    adapted, unseen = fitted().adapt(stranger(20)), device("stranger")
    queries = [Query(Architecture("nb201", tuple(c)), unseen) for c in codes.tolist()]
    few = queries[:: len(queries) // 100]
    return ratio(lambda: adapted.predict(queries), lambda: adapted.predict(few), 3)


def _hosts() -> float:
    names = list(PROGRAMS)
    hosts = [
        {"name": f"h{i}", "residents": [program(names[(i + j) % 5]) for j in range(i % 4)]}
        for i in range(300)
    ]

    def rank(some: list[dict[str, Any]]) -> None:
        asked = {"candidate": program("table"), "hosts": some}
        client.post("/v1/colocation/rank", json=asked).raise_for_status()

    with clients(trained_colocation()) as (client, _):
        return ratio(lambda: rank(hosts), lambda: rank(hosts[:30]), 5)


def _placing(hosts: int, residents: int) -> float:
    """A rank of hosts by the bundled predictor over an endpoint that returns a constant."""
    names = list(PROGRAMS)
    shares = [0.5 + 0.5 * n / (hosts * residents) for n in range(hosts * residents)]
    programs = [program(names[n % 5], cpu_share=share) for n, share in enumerate(shares)]
    loads = [{"residents": programs[n::hosts], "cpus": 2 + n % 7} for n in range(hosts)]
    asked = {"candidate": program("table"), "hosts": loads}
    with clients(bundled()) as (client, bare):
        return ratio(
            lambda: client.post("/v1/colocation/rank", json=asked).raise_for_status(),
            lambda: bare.post("/").raise_for_status(),
            5,
        )


def _choosing(count: int) -> float:
    """A rank of GPUs for a network at a new batch size over an endpoint that returns a constant."""
    gpus, sizes = _gpus(count), iter(range(3, 10_000))
    sheets = [_faster(gpus[n % len(gpus)], n) for n in range(count)]
    with clients(bundled()) as (client, bare):
        digest = client.post("/v1/graphs", content=_resnet50()).json()["digest"]

        def rank() -> None:
            network = {"kind": "network", "graph": digest, "precision": "amp"}
            workload = {**network, "batch_size": next(sizes)}
            asked = {"workload": workload, "devices": sheets}
            client.post("/v1/rank", json=asked).raise_for_status()

        return ratio(rank, lambda: bare.post("/").raise_for_status(), 5)


def _faster(gpu: Device, number: int) -> dict[str, Any]:
    """The sheet of a GPU with a memory that differs from all others."""
    changed = {"name": f"gpu-{number}", "memory_bandwidth_gbs": gpu.bandwidth_gbs + number / 100}
    kept = {"vendor", "kind", "architecture", "memory_gib", "peak_tflops", "compute_units", "tdp_w"}
    return gpu.model_dump(mode="json", include=kept, exclude_none=True) | changed


def _gpus(count: int) -> list[Device]:
    return [d for d in DeviceCatalog.load() if d.kind == "gpu" and "fp16" in d.peak_tflops][:count]
