"""Which nodes suit a pod, and how well.

What is not known never keeps a pod from a node: a node whose device is unknown, or for which no
limit can be assessed, passes the filter and has the score 0.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from forerun.data.device import Device
from forerun.data.errors import InputError
from forerun.service.answers.ranking import Kept
from forerun.service.http.answers import Answers
from forerun.service.http.kubernetes.cluster import Cluster
from forerun.service.http.kubernetes.extender import HIGHEST_SCORE, ExtenderArgs
from forerun.service.http.kubernetes.language_models import RATES, ServedIn, served_on
from forerun.service.http.kubernetes.nodes import devices_of, requested_devices, requested_slice
from forerun.service.http.kubernetes.pods import Neighbours, Placed, placed_by
from forerun.service.http.rank_requests import outcomes_of
from forerun.service.http.schemas import RankIn
from forerun.service.log import log
from forerun.service.problems import valid

LONGEST_NAME: Final = 317
"""Characters of a namespace, a slash and a name."""
MAXIMISED: Final = ("throughput_per_w",)


@dataclass(frozen=True, slots=True)
class Advice:
    """Advice about the nodes of a request.

    Attributes:
        failed: node -> why the pod cannot run there next to its other pods.
        unresolvable: node -> why it cannot run there at all.
        suitability: node -> 0 to 1, the best device having 1; nodes about which nothing is known
            are left out.
    """

    failed: Mapping[str, str] = field(default_factory=dict)
    unresolvable: Mapping[str, str] = field(default_factory=dict)
    suitability: Mapping[str, float] = field(default_factory=dict)

    def scores(self, asked: ExtenderArgs) -> dict[str, int]:
        """Scores of all nodes, from 0 to 10."""
        return {
            node.name: round(HIGHEST_SCORE * self.suitability.get(node.name, 0.0))
            for node in asked.nodes
        }


def advice_on(
    asked: ExtenderArgs, answers: Answers, neighbours: Neighbours, cluster: Cluster | None = None
) -> Advice:
    """Advice about the nodes of a request; without knowledge of any, where the pod is at fault.

    A pod whose annotations do not fit is logged and may run anywhere.

    Args:
        asked: the request.
        answers: answers questions about devices.
        neighbours: knows how programs of one node slow each other down.
        cluster: knows the labels of nodes that the request only names, and programs of pods.
    """
    if cluster is not None and asked.names_only:
        asked = replace(asked, nodes=[cluster.node(one.name) or one for one in asked.nodes])
    programs = None if cluster is None else cluster.programs()
    try:
        placed = placed_by(asked.pod)
        devices = by_device(asked, placed, answers)
        if placed.speed is None:
            return devices
        loaded = answers.adaptation.current().loaded
        slowest = neighbours.slowest(placed.speed.program, asked.nodes, programs, loaded)
        return _combined(asked, devices, _by_speed(slowest, placed.speed.min_relative_speed))
    except InputError as error:
        log().warning("a pod is placed without advice", pod=_pod_name(asked), why=str(error))
        return Advice()


def by_device(asked: ExtenderArgs, placed: Placed, answers: Answers) -> Advice:
    """Advice by the device of each node, assessed once; none where the pod asks nothing."""
    if placed.ranking is None and placed.serving is None:
        return Advice()
    profile = requested_slice(asked.pod)
    of_node = devices_of(asked.nodes, profile, answers.devices.named)
    if not of_node:
        return Advice()
    if placed.serving is not None:
        return _by_serving(asked, placed.serving, of_node, answers)
    assert placed.ranking is not None
    return _by_ranking(placed.ranking, of_node, answers)


def _by_serving(
    asked: ExtenderArgs, wanted: ServedIn, of_node: Mapping[str, Device], answers: Answers
) -> Advice:
    """Advice on a pod that serves a language model."""
    requested = requested_devices(asked.pod)
    served = served_on(wanted, requested, of_node, asked.nodes, answers)
    broken = {node: own.broken for node, own in served.items()}
    values = {node: own.value for node, own in served.items() if own.value is not None}
    return _of_nodes(of_node, broken, values, maximised=wanted.objective in RATES)


def _by_ranking(
    ranking: Mapping[str, Any], of_node: Mapping[str, Device], answers: Answers
) -> Advice:
    """Advice on a pod that runs a workload once."""
    devices = list({device.name: device for device in of_node.values()}.values())
    outcomes = outcomes_of(rank_request(ranking, devices), answers)
    broken, values = {}, {}
    for node, device in of_node.items():
        own = outcomes[device.name]
        if isinstance(own, Kept):
            values[node] = own.aim.value
        else:
            broken[node] = "; ".join(reason.sentence for reason in own if not reason.unknown)
    maximised = ranking.get("objective") in MAXIMISED
    return _of_nodes(of_node, broken, values, maximised=maximised)


def _of_nodes(
    of_node: Mapping[str, Device],
    broken: Mapping[str, str],
    values: Mapping[str, float],
    *,
    maximised: bool,
) -> Advice:
    """Advice by what nodes break, and by the values of those that break nothing."""
    kept = {node: value for node, value in values.items() if not broken.get(node)}
    return Advice(
        unresolvable={node: f"{of_node[node].name}: {why}" for node, why in broken.items() if why},
        suitability=_relative(kept, maximised=maximised),
    )


def rank_request(ranking: Mapping[str, Any], devices: Sequence[Device]) -> RankIn:
    """The request of POST /v1/rank for what a pod asks.

    Raises:
        BadRequest: the annotations do not fit.
    """
    return valid(RankIn, {**ranking, "devices": devices})


def _relative(values: Mapping[str, float], *, maximised: bool) -> dict[str, float]:
    """How each value of an objective compares with the best, from 0 to 1."""
    if maximised:
        best = max(values.values(), default=0.0)
        return {name: value / best if best else 1.0 for name, value in values.items()}
    best = min(values.values(), default=0.0)
    return {name: best / value if value else 1.0 for name, value in values.items()}


def _by_speed(slowest: Mapping[str, tuple[float, str]], least: float) -> Advice:
    """Advice by the lowest relative speed of any program on each node, and that program's name."""
    return Advice(
        failed={
            node: f"{program} would run at {speed:.2f} of its speed alone, the least is {least:g}"
            for node, (speed, program) in slowest.items()
            if speed < least
        },
        suitability={node: min(speed, 1.0) for node, (speed, _) in slowest.items()},
    )


def _combined(asked: ExtenderArgs, one: Advice, other: Advice) -> Advice:
    """Both advices: a node passes where both let it, and its suitabilities are multiplied."""
    names = [node.name for node in asked.nodes]
    known = [name for name in names if name in one.suitability or name in other.suitability]
    return Advice(
        failed={**one.failed, **other.failed},
        unresolvable={**one.unresolvable, **other.unresolvable},
        suitability={
            name: one.suitability.get(name, 1.0) * other.suitability.get(name, 1.0)
            for name in known
        },
    )


def _pod_name(asked: ExtenderArgs) -> str:
    metadata = asked.pod.metadata
    return f"{metadata.namespace or 'default'}/{metadata.name}"[:LONGEST_NAME]
