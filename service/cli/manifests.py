"""Pods and templates of pods in a manifest of Kubernetes, with the lines of what they say."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import yaml
from msgspec import ValidationError, convert

from forerun.data.errors import InputError, why_unreadable
from forerun.service.http.kubernetes.extender import Pod
from forerun.service.http.kubernetes.findings import Finding
from forerun.service.http.kubernetes.pods import PREFIX


class UnreadableFile(InputError):
    """The file is neither a manifest of Kubernetes nor a job script of Slurm."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written.

    Attributes:
        line: its line, from 1 on.
        name: its name there; empty where it has none of its own.
    """

    line: int
    name: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A pod, or a job as the pod that would ask for the same.

    Attributes:
        pod: the pod.
        place: where it begins.
        places: annotation, label or resource -> where it is written.
        found: what was wrong with its form, with names as in `places`.
        is_job: whether it is a job of Slurm.
        name: name of the pod, or of the object around its template; empty without one.
    """

    pod: Pod
    place: Place
    places: Mapping[str, Place]
    found: list[Finding] = field(default_factory=list)
    is_job: bool = False
    name: str = ""


def pods_in(text: str) -> list[Asked]:
    """The pods and templates of pods of a manifest, as YAML or JSON.

    Raises:
        UnreadableFile: there are none.
    """
    loader = yaml.SafeLoader(text)
    found: list[Asked] = []
    try:
        while loader.check_node():
            found += _pods(loader, loader.get_node())
    except yaml.YAMLError as error:
        raise UnreadableFile(f"{why_unreadable(error)}.") from None
    except (ValidationError, RecursionError, AttributeError, TypeError) as error:
        raise UnreadableFile(f"A pod is not as Kubernetes has them: {error}.") from None
    finally:
        loader.dispose()
    if not found:
        raise UnreadableFile(
            "It holds no pod (spec.containers) and no line #SBATCH; give a manifest of Kubernetes "
            "or a job script of Slurm."
        )
    return found


def _pods(loader: yaml.SafeLoader, node: Any, owner: str = "") -> Iterator[Asked]:
    """The pods and templates of pods in a part of a manifest, such as a Deployment or a List."""
    if isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _pods(loader, item, owner)
    if not isinstance(node, yaml.MappingNode):
        return
    parts = {key.value: value for key, value in node.value}
    spec, metadata = parts.get("spec"), parts.get("metadata")
    owner = next((own.value for key, own in _items(metadata) if key.value == "name"), owner)
    inner = [own for value in parts.values() for own in _pods(loader, value, owner)]
    given = _entries(metadata, "annotations")
    if "containers" in _keys(spec):
        yield replace(_pod(loader, node, spec, metadata), name=owner)
    elif inner and (own := [name for name in given if name.startswith(PREFIX)]):
        message = "write it in the metadata of the pod's template: it is not read here"
        first = inner[0]
        places = {**given, **first.places, own[0]: given[own[0]]}
        inner[0] = replace(first, places=places, found=[*first.found, Finding(own[0], message)])
    yield from inner


def _pod(loader: yaml.SafeLoader, node: Any, spec: Any, metadata: Any) -> Asked:
    content = loader.construct_object(node, deep=True)
    places: dict[str, Place] = {}
    found: list[Finding] = []
    for part in ("annotations", "labels"):
        places |= _entries(metadata, part)
        own = (content.get("metadata") or {}).get(part) or {}
        for name, value in own.items():
            if not isinstance(value, str):
                said = json.dumps(value, default=str)
                own[name] = said
                if str(name).startswith(PREFIX):
                    found.append(Finding(name, f"{said} is not text for Kubernetes: quote it"))
    places |= _entries(spec, "nodeSelector")
    for container in (own for key, own in spec.value if key.value == "containers"):
        for one in container.value:
            resources = next((v for k, v in one.value if k.value == "resources"), None)
            places |= _entries(resources, "requests") | _entries(resources, "limits")
    kept = {"metadata": content.get("metadata") or {}, "spec": content["spec"]}
    return Asked(convert(kept, Pod), Place(node.start_mark.line + 1), places, found)


def _items(node: Any) -> list[tuple[Any, Any]]:
    """Keys and values of a mapping, none of anything else."""
    return node.value if isinstance(node, yaml.MappingNode) else []


def _keys(node: Any) -> dict[str, Any]:
    return {key.value: key for key, _ in _items(node)}


def _entries(node: Any, part: str) -> dict[str, Place]:
    """Name -> place of each entry of a part, such as the annotations of some metadata."""
    own = next((value for key, value in _items(node) if key.value == part), None)
    return {name: Place(key.start_mark.line + 1, name) for name, key in _keys(own).items()}
