"""Scales times on CPUs to fewer cores and to several concurrent instances.

PyTorch was measured on all cores only, and always as a single instance.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.operators.roofline import ELEMENT_BYTES
from forerun.features.processors.work import CACHE_BYTES, COLUMNS, work_of
from forerun.models.answers.served_models import InUse
from forerun.models.limit import LATENCY, Limit
from forerun.models.power.limit_response import ENERGY
from forerun.models.prediction import Estimate
from forerun.models.router import predictors_in

ON_PROCESSORS: Final = "cpu_latency"
"""Name of the ONNX Runtime predictor; its module is not imported for queries about GPUs."""


def on_part_of_processor(
    estimates: Mapping[str, Estimate], query: Query, in_use: InUse
) -> tuple[dict[str, Estimate], list[Limit]]:
    """The estimates at the query's threads and instances, and the limits that state this."""
    found, of_threads = at_threads(estimates, query, in_use)
    found, of_instances = with_instances(found, query)
    return found, [*of_threads, *of_instances]


def at_threads(
    estimates: Mapping[str, Estimate], query: Query, in_use: InUse
) -> tuple[dict[str, Estimate], list[Limit]]:
    """The estimates of a network at the query's thread count, and the limit that states this.

    The ratio to all cores is that of a forward pass in ONNX Runtime. Nothing changes where that
    predictor gives the answer itself, or where the user measured the device.
    """
    cores = query.device.compute_units
    parts = {part.name: part for part in predictors_in(in_use.loaded.predictor)}
    scaling = parts.get(ON_PROCESSORS)
    if query.device.kind != "cpu" or query.device in in_use.rows or scaling is None:
        return dict(estimates), []
    threads = None if cores is None else query.software.threads_on(cores)
    if cores is None or threads is None or threads >= cores or LATENCY not in estimates:
        return dict(estimates), []
    if not isinstance(query.workload, Network) or scaling.answers(query):
        return dict(estimates), []
    forward = replace(query.network, precision="fp32", phase="inference")
    runs = [
        replace(query, workload=forward, software=query.software.model_copy(update=update))
        for update in ({"runtime": "onnxruntime"}, {"runtime": "onnxruntime", "threads": cores})
    ]
    some, every = scaling.predict(runs).values[LATENCY].tolist()
    message = f"on {threads} of {cores} cores, the time grows as measured in ONNX Runtime"
    scaled = {
        name: _times(estimates[name], max(1.0, some / every))
        for name in (LATENCY, ENERGY)
        if name in estimates
    }
    return {**estimates, **scaled}, [Limit(message, LATENCY)]


def with_instances(
    estimates: Mapping[str, Estimate], query: Query
) -> tuple[dict[str, Estimate], list[Limit]]:
    """The estimates of one of several concurrent instances on a CPU, and the limit that states it.

    Data beyond an instance's share of the last-level cache is read at its share of the memory
    bandwidth.
    """
    alone, count = estimates.get(LATENCY), query.software.instances
    known = query.device.kind == "cpu" and query.device.memory_bandwidth_gbs is not None
    if not known or count == 1 or alone is None or not isinstance(query.workload, Network):
        return dict(estimates), []
    waiting = count * _memory_ms(query, count) - _memory_ms(query, 1)
    ratio = 1.0 + max(0.0, waiting) / alone.value
    message = f"{count} instances share the memory bandwidth and the last cache, as the sheet says"
    scaled = {n: _times(estimates[n], ratio) for n in (LATENCY, ENERGY) if n in estimates}
    return {**estimates, **scaled}, [Limit(message, LATENCY)]


def _memory_ms(query: Query, count: int) -> float:
    """Least milliseconds to read what does not fit into 1 / count of the last-level cache."""
    network, device = query.network, query.device
    cache = CACHE_BYTES if device.l2_mib is None else device.l2_mib * 2**20 / count
    amounts = work_of(network.graph, network.batch_size / network.graph.batch_size, cache).amounts
    far = sum(amounts[COLUMNS.index(("memory", term))] for term in ("far_weights", "far_bytes"))
    return (
        float(far)
        * ELEMENT_BYTES[network.precision]
        / ELEMENT_BYTES["fp32"]
        / (1e6 * device.bandwidth_gbs)
    )


def _times(estimate: Estimate, ratio: float) -> Estimate:
    low, high = estimate.low, estimate.high
    return replace(
        estimate,
        value=estimate.value * ratio,
        low=None if low is None else low * ratio,
        high=None if high is None else high * ratio,
    )
