"""`make bench`: what the service and the readers need, written with machine and date."""

import asyncio
import json
import os
import platform
import statistics
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from tests.benchmarks import commands, extender, language_models, ratios, server_cpu, serving
from tests.benchmarks.client import load
from tests.benchmarks.models import LIGHT
from tests.benchmarks.own_cpu import own_cpu
from tests.benchmarks.timing import seconds
from tests.service.real_server import RealServer, real_server

RESULTS = Path(__file__).parent / "results"
PARTS = (server_cpu, ratios, commands, serving, language_models, extender)
LIMITS = {
    "warm_query_p50_ms": ("<", 1.0),
    "new_query_p50_ms": ("<", 1.0),
    "requests_per_s": (">", 1000.0),
    "resnet50_onnx_to_graph_s": ("<", 0.5),
    "service_memory_mb": ("<", 400.0),
    **{name: limit for part in PARTS for name, limit in part.LIMITS.items()},
    "own_cpu_median_error_percent": ("<", 15.0),
    "own_cpu_inside_interval": (">", 0.75),
}


def main() -> int:
    """Run all, print a table, write the result; 1 when a limit is missed."""
    found = {**in_process(), **over_http(), **own_processor()}
    for part in PARTS:
        found |= part.figures()
    result = {"date": datetime.now(UTC).date().isoformat(), "machine": machine(), "figures": found}
    RESULTS.mkdir(exist_ok=True)
    name = f"{result['date']}-{platform.machine()}-{machine()['cores']}-cores.json"
    (RESULTS / name).write_text(json.dumps(result, indent=1) + "\n")
    return show(found)


def in_process() -> dict[str, float]:
    """Times of one question inside one process, without a socket."""
    from forerun.features.readers import read_graph
    from forerun.models.artifact.sealed_folder import bundled
    from forerun.service.adaptation.predictor_in_use import Adaptation
    from forerun.service.http.answers import Answers
    from forerun.service.schemas.prediction import NetworkIn, PredictIn
    from forerun.service.stores.devices import DeviceStore
    from forerun.service.stores.graphs import GraphStore
    from forerun.service.stores.places import Place

    content = (LIGHT / "light_resnet50.onnx").read_bytes()
    read_graph(content)
    reading = statistics.median(seconds(lambda: read_graph(content)) for _ in range(5))
    with tempfile.TemporaryDirectory() as place:
        home = Place(Path(place))
        devices, graphs = DeviceStore(home / "devices"), GraphStore(home / "graphs", 100)
        adaptation = Adaptation(bundled(), home / "measurements", devices, graphs.get, 100)
        answers = Answers(adaptation, devices, graphs, 50_000)
        digest = answers.graphs.put(read_graph(content))

        def ask(batch: int) -> None:
            network = NetworkIn(kind="network", graph=digest, batch_size=batch, precision="amp")
            question = answers.question(PredictIn(workload=network, device="rtx-4090"))
            if answers.before(question) is None:
                answers.predict(question)

        ask(1)
        warm = [seconds(lambda: ask(1)) for _ in range(2000)]
        new = [seconds(lambda batch=batch: ask(batch)) for batch in range(2, 402)]
    return {
        "resnet50_onnx_to_graph_s": reading,
        "warm_query_p50_ms": 1e3 * statistics.median(warm),
        "new_query_p50_ms": 1e3 * statistics.median(new),
        "new_query_p99_ms": 1e3 * statistics.quantiles(new, n=100)[98],
    }


def own_processor() -> dict[str, float]:
    """Two minutes of collection on this machine, and networks it has not measured afterwards."""
    with tempfile.TemporaryDirectory() as place:
        return own_cpu(Path(place))


def over_http() -> dict[str, float]:
    """A real server in its own process, asked over loopback from this one."""
    with tempfile.TemporaryDirectory() as place, real_server(Path(place)) as server:
        return asyncio.run(_http_figures(server))


async def _http_figures(server: RealServer) -> dict[str, float]:
    content, port = (LIGHT / "light_resnet50.onnx").read_bytes(), server.port
    digest = (await load(port, "/v1/graphs", [content], 1))[2][0]["digest"]
    same = [_question(digest, 1)] * 8000
    different = [_question(digest, batch) for batch in range(1, 2001)]
    await load(port, "/v1/predict", same[:200], 4)
    same_seconds, times, _ = await load(port, "/v1/predict", same, 8)
    new_seconds, _, _ = await load(port, "/v1/predict", different, 8)
    _, alone, _ = await load(port, "/v1/predict", same[:2000], 1)
    return {
        "requests_per_s": len(same) / same_seconds,
        "new_requests_per_s": len(different) / new_seconds,
        "http_alone_p50_ms": 1e3 * statistics.median(alone),
        "http_under_load_p99_ms": 1e3 * statistics.quantiles(times, n=100)[98],
        "service_memory_mb": server.memory_mib() * 2**20 / 1e6,
    }


def _question(digest: str, batch: int) -> bytes:
    network = {"kind": "network", "graph": digest, "batch_size": batch, "precision": "amp"}
    return json.dumps({"workload": network, "device": "rtx-4090"}).encode()


def machine() -> dict[str, Any]:
    """What the figures were measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = [x for x in cpuinfo.read_text().splitlines() if x.startswith("model name")]
        model = lines[0].split(":", 1)[1].strip() if lines else model
    return {"cpu": model, "cores": os.cpu_count(), "python": platform.python_version()}


def show(found: dict[str, float]) -> int:
    """Print figures with their limits; 1 when one is missed."""
    table, missed = Table(box=None), 0
    for heading in ("figure", "measured", "limit", ""):
        table.add_column(heading)
    for name, value in found.items():
        sign, limit = LIMITS.get(name, ("", 0.0))
        fine = not sign or (value < limit if sign == "<" else value > limit)
        missed += not fine
        shown = f"{sign} {limit:g}" if sign else ""
        table.add_row(name, f"{value:,.3g}", shown, "" if not sign else "ok" if fine else "MISSED")
    Console().print(table)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
