"""Requests and results of a Kubernetes scheduler extender, version 1.

The names of the fields are those of the Go types in `k8s.io/kube-scheduler/extender/v1`, which have
no names for JSON of their own: encoders write them as they are, and decoders read them in any case.
Nodes are large, and a request has hundreds: only their names, labels and annotations are decoded,
and the rest is sent back as the bytes that came.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

from msgspec import DecodeError, Raw, Struct, ValidationError, field, json

from forerun.data.errors import BadRequest

HIGHEST_SCORE: Final = 10
"""`MaxExtenderPriority`; the lowest score is 0."""


class Metadata(Struct):
    """Metadata of a node or pod.

    Attributes:
        name: its name.
        namespace: its namespace; a node has none.
        labels: its labels.
        annotations: its annotations.
    """

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Resources(Struct):
    """What a container requests, by name of the resource."""

    limits: dict[str, Any] | None = None
    requests: dict[str, Any] | None = None


class Container(Struct):
    """A container of a pod."""

    resources: Resources | None = None


class MatchExpression(Struct):
    """A label of a node, and the values that it may have."""

    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class NodeSelectorTerm(Struct, rename="camel"):
    """What a node must have all of."""

    match_expressions: list[MatchExpression] | None = None


class NodeSelector(Struct, rename="camel"):
    """Terms of which a node must meet one."""

    node_selector_terms: list[NodeSelectorTerm] | None = None


class NodeAffinity(Struct):
    """What a node must have."""

    required: NodeSelector | None = field(
        name="requiredDuringSchedulingIgnoredDuringExecution", default=None
    )


class Affinity(Struct, rename="camel"):
    """Where a pod may run."""

    node_affinity: NodeAffinity | None = None


class PodSpec(Struct, rename="camel"):
    """A pod's containers, and what it asks of nodes."""

    containers: list[Container] | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None


class Pod(Struct):
    """A pod, as far as forerun reads it."""

    metadata: Metadata
    spec: PodSpec | None = None


class _Item(Struct):
    metadata: Metadata


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of a cluster, as far as forerun reads it.

    Attributes:
        name: name of the node.
        labels: its labels.
        annotations: its annotations.
        content: JSON of the whole object in a request that lists nodes; empty where it lists names.
    """

    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    content: Raw

    @classmethod
    def of(cls, content: Raw) -> Self:
        """The node of the JSON of an object of kind `Node`."""
        found = json.decode(content, type=_Item).metadata
        return cls(found.name, found.labels or {}, found.annotations or {}, content)


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Errors of the block say that a body is not what it should be, such as `ExtenderArgs`."""
    try:
        yield
    except (ValidationError, AttributeError, TypeError) as error:
        raise BadRequest(f"The body is not a {what} of Kubernetes: {error}.") from None
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise BadRequest(f"The body is not JSON: {error}.") from None


@dataclass(frozen=True, slots=True)
class ExtenderArgs:
    """The pod to be placed, and the candidate nodes.

    Attributes:
        pod: the pod.
        nodes: the candidates; those of a request with names alone have neither labels nor content.
        names_only: whether the request names the nodes in place of listing them, as schedulers do
            whose extender has `nodeCacheCapable`.
        list_fields: JSON of the fields of the request's `NodeList` other than its items.
    """

    pod: Pod
    nodes: Sequence[ClusterNode]
    names_only: bool
    list_fields: Mapping[str, Raw]

    @classmethod
    def of(cls, content: bytes) -> Self:
        """The arguments of a request.

        Args:
            content: the body of the request.

        Raises:
            BadRequest: it is not JSON of a pod, and of nodes or names of nodes.
        """
        with reading("ExtenderArgs"):
            return cls._decoded(content)

    @classmethod
    def _decoded(cls, content: bytes) -> Self:
        given = json.decode(content, type=dict[str, Raw])
        fields = {name.lower(): value for name, value in given.items()}
        if "pod" not in fields:
            raise ValidationError("the field Pod is missing")
        pod = json.decode(fields["pod"], type=Pod)
        listed = json.decode(fields.get("nodes", b"null"), type=dict[str, Raw] | None)
        if listed is not None:
            items = json.decode(listed.pop("items", b"null"), type=list[Raw] | None)
            return cls(pod, [ClusterNode.of(item) for item in items or ()], False, listed)
        names = json.decode(fields.get("nodenames", b"null"), type=list[str] | None)
        if names is None:
            raise ValidationError("one of the fields Nodes and NodeNames must be given")
        return cls(pod, [ClusterNode(name, {}, {}, Raw()) for name in names], True, {})


def filter_result(
    asked: ExtenderArgs, failed: Mapping[str, str], unresolvable: Mapping[str, str]
) -> bytes:
    """JSON of the result of a filter, `ExtenderFilterResult`, with nodes or names as asked.

    Args:
        asked: the request.
        failed: node -> why the pod cannot run there while other pods do.
        unresolvable: node -> why it cannot run there even if other pods are evicted.
    """
    kept = [one for one in asked.nodes if one.name not in failed and one.name not in unresolvable]
    listed = {**asked.list_fields, "items": [one.content for one in kept]}
    result = {
        "Nodes": None if asked.names_only else listed,
        "NodeNames": [one.name for one in kept] if asked.names_only else None,
        "FailedNodes": failed,
        "FailedAndUnresolvableNodes": unresolvable,
        "Error": "",
    }
    return json.encode(result)


def priorities(scores: Mapping[str, int]) -> bytes:
    """JSON of the scores of nodes, `HostPriorityList`."""
    return json.encode([{"Host": name, "Score": score} for name, score in scores.items()])
