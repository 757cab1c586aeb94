"""Metrics without an answer because no predictor knows the time of most of a network."""

from collections.abc import Mapping
from math import prod

from forerun.data.graph import Operator, OperatorGraph
from forerun.data.query import Query
from forerun.data.workload import Network
from forerun.features.operators.features import SHORTEST_KERNEL_MS
from forerun.models.answers.wording import readable
from forerun.models.prediction import Estimate

METRICS = ("latency_ms", "power_w", "energy_j", "utilisation")
LARGEST_SHARE = 0.5
"""Share of a graph in operators without a price, above which nothing is answered about its time."""
_NAMES_LISTED = 5


def not_priced(query: Query) -> dict[str, str]:
    """Metric -> the reason, where operators of no known kind make up most of a network.

    Their share is the larger of two: that of all operators as often as they run, and that of all
    elements that operators read and write.
    """
    workload = query.run
    if not isinstance(workload, Network) or not workload.graph.unknown:
        return {}
    count, traffic = _shares(workload.graph)
    share, of = max((count, "runs of operators"), (traffic, "memory traffic"))
    if share <= LARGEST_SHARE:
        return {}
    reason = (
        f"operators whose time no predictor knows make up {100 * share:.0f} % of the network's "
        f"{of}: {_listed(workload.graph.unknown)}"
    )
    return dict.fromkeys(METRICS, reason)


def below_a_launch(query: Query, latency: Estimate | None) -> dict[str, str]:
    """Metric -> the reason, where an estimate is shorter than one launch of a kernel on a GPU.

    Args:
        query: the query.
        latency: the estimate, milliseconds; None without one.
    """
    if query.device.kind != "gpu" or latency is None or latency.value >= SHORTEST_KERNEL_MS:
        return {}
    reason = (
        f"the estimate of {latency.value * 1e6:.3g} ns is shorter than one kernel launch, "
        f"{SHORTEST_KERNEL_MS * 1e3:.0f} microseconds"
    )
    return dict.fromkeys(METRICS, reason)


def _shares(graph: OperatorGraph) -> tuple[float, float]:
    """Share of unknown operators in all operators, and in all elements read and written."""
    unknown = [op for op in graph.operators if op.kind == "unknown"]
    count = sum(op.repeat for op in unknown) / sum(op.repeat for op in graph.operators)
    total = sum(map(_moved, graph.operators))
    return count, sum(map(_moved, unknown)) / total if total else 0.0


def _moved(op: Operator) -> int:
    shapes = (*op.input_shapes, *op.output_shapes)
    return op.repeat * (op.parameter_elements + sum(map(prod, shapes)))


def _listed(unknown: Mapping[str, int]) -> str:
    most = sorted(unknown, key=lambda name: (-unknown[name], name))
    more = f" and {len(most) - _NAMES_LISTED} more" if len(most) > _NAMES_LISTED else ""
    return readable(", ".join(most[:_NAMES_LISTED])) + more
