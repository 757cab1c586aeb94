"""Withholds metrics of networks in which the time of most operators is unknown."""

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
"""Share of unknown operators above which metrics that depend on time are withheld."""
_NAMES_LISTED = 5


def not_priced(query: Query) -> dict[str, str]:
    """Metric -> the reason, where unknown operators make up most of a network.

    Their share is the larger of that among operator executions and that among elements read and
    written.
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
    """Metric -> the reason, where an estimate is shorter than a kernel launch on a GPU.

    Args:
        query: the query.
        latency: the estimate, milliseconds; None if there is none.
    """
    if query.device.kind != "gpu" or latency is None or latency.value >= SHORTEST_KERNEL_MS:
        return {}
    reason = (
        f"the estimate of {latency.value * 1e6:.3g} ns is shorter than one kernel launch, "
        f"{SHORTEST_KERNEL_MS * 1e3:.0f} microseconds"
    )
    return dict.fromkeys(METRICS, reason)


def _shares(graph: OperatorGraph) -> tuple[float, float]:
    """Share of unknown operators among executions, and among elements read and written."""
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
