"""What a pod asks for in its annotations `forerun.dev/*`.

    forerun.dev/graph: resnet50
    forerun.dev/batch-size: "64"
    forerun.dev/precision: amp
    forerun.dev/max-latency-ms: "40"

An annotation that is no option of the placement is a field of the workload, as POST /v1/predict
takes it, of kind `network` unless `forerun.dev/kind` says otherwise. With `forerun.dev/llm` the pod
serves a language model, which `language_models` reads. Values are JSON, or text.
"""

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field

from forerun.data.errors import BadRequest, InputError, in_field
from forerun.features.caches import Recent
from forerun.features.deadline import check
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.answers.colocation import slowest_programs
from forerun.service.http.kubernetes.extender import ClusterNode, Pod
from forerun.service.http.kubernetes.language_models import ServedIn, served_by
from forerun.service.log import log
from forerun.service.problems import valid
from forerun.service.schemas.colocation import MOST_HOSTS, HostIn, HostsIn, ProgramIn

PREFIX: Final = "forerun.dev/"
OPTIONS: Final = ("objective", "risk", "software", "power_limit_w")
MOST: Final = {f"max_{name}": name for name in ("latency_ms", "power_w", "peak_memory_mib")}
NAMES: Final = (f"{PREFIX}graph", f"{PREFIX}program", f"{PREFIX}llm")
RESIDENTS: Final = f"{PREFIX}residents"
"""Annotation of a node: the programs that run there, as a JSON list."""
LIMITS: Final = ("must_fit", "in_domain_only")


class SpeedIn(BaseModel):
    """A program whose speed next to the other programs of a node counts."""

    model_config = ConfigDict(extra="forbid")

    program: ProgramIn
    min_relative_speed: float = Field(default=0.0, ge=0.0, le=1.0)


@dataclass(frozen=True, slots=True)
class Placed:
    """What a pod asks for.

    Attributes:
        ranking: a request of POST /v1/rank without devices; None where the pod names no workload.
        serving: a language model that the pod serves; None where it names none.
        speed: the program and the lowest relative speed of any program; None where it names none.
    """

    ranking: Mapping[str, Any] | None
    speed: SpeedIn | None
    serving: ServedIn | None = None


def placed_by(pod: Pod) -> Placed:
    """What the annotations of a pod ask for.

    Raises:
        BadRequest: an annotation does not fit; the message names it.
    """
    given = pod.metadata.annotations or {}
    fields = {
        name.removeprefix(PREFIX).replace("-", "_"): _value(text, name)
        for name, text in given.items()
        if name.startswith(PREFIX)
    }
    speed = _speed(fields)
    if "llm" in fields:
        return Placed(None, speed, served_by(fields))
    options = {name: fields.pop(name) for name in OPTIONS if name in fields}
    limits = {own: fields.pop(name) for name, own in MOST.items() if name in fields}
    limits |= {name: fields.pop(name) for name in LIMITS if name in fields}
    whole = fields.pop("workload", {})
    if not isinstance(whole, Mapping):
        raise BadRequest("forerun.dev/workload: give a JSON object.")
    workload: dict[str, Any] = {**whole, **fields}
    if not workload:
        if options or limits:
            raise BadRequest("forerun.dev/graph is missing: it names the workload.")
        return Placed(None, speed)
    workload.setdefault("kind", "network")
    operation = {"power_limit_w": options.pop("power_limit_w", None)}
    return Placed(options | {"workload": workload, "operation": operation, "limits": limits}, speed)


def residents_of(annotations: Mapping[str, str]) -> list[ProgramIn]:
    """The programs that a node's annotation `forerun.dev/residents` lists.

    Raises:
        BadRequest: it is no list of programs.
    """
    listed = _value(annotations.get(RESIDENTS, "[]"))
    if not isinstance(listed, list):
        raise BadRequest("forerun.dev/residents: give a JSON list of programs.")
    with in_field("residents"):
        return [valid(ProgramIn, _program(item)) for item in listed]


def program_of(annotations: Mapping[str, str]) -> ProgramIn | None:
    """The program that a pod's annotation `forerun.dev/program` names; None without one.

    Raises:
        BadRequest: it is no program.
    """
    name = f"{PREFIX}program"
    if name not in annotations:
        return None
    return valid(ProgramIn, _program(_value(annotations[name], name)))


def _speed(fields: dict[str, Any]) -> SpeedIn | None:
    given = {n: fields.pop(n) for n in ("program", "min_relative_speed") if n in fields}
    if not given:
        return None
    if "program" in given:
        given["program"] = _program(given["program"])
    return valid(SpeedIn, given)


def _program(given: object) -> object:
    """A program by its name alone, or the whole of it."""
    return {"name": given} if isinstance(given, str) else given


def _value(text: str, name: str = "") -> Any:
    """An annotation's value; a digest of digits is a text all the same."""
    if name in NAMES and not text.startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


KEPT: Final = 10_000
"""Speeds that are kept: a filter of nodes is followed by their scores."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Lowest speeds on nodes; the last ones are kept by what runs there, and so are the hosts."""

    _speeds: Recent[Hashable, tuple[float, str]] = field(default_factory=lambda: Recent(KEPT))
    _hosts: Recent[Hashable, HostIn] = field(default_factory=lambda: Recent(KEPT))

    def slowest(
        self,
        candidate: ProgramIn,
        nodes: Sequence[ClusterNode],
        programs: Mapping[str, Sequence[ProgramIn]] | None,
        loaded: LoadedPredictor,
    ) -> dict[str, tuple[float, str]]:
        """Node -> the lowest relative speed of any program there, and the name of that program.

        A node is left out where nothing tells which programs run there, or its annotation
        `forerun.dev/residents` does not fit, which is logged.

        Args:
            candidate: the program of the pod.
            nodes: the candidate nodes.
            programs: node -> programs of its pods; None where only annotations of nodes tell.
            loaded: the predictor in use.

        Raises:
            UnanswerableQuery: no predictor in use was trained for co-location.
            BadRequest: the programs of all nodes are too many for one request.
        """
        known = [one for one in nodes if programs is not None or RESIDENTS in one.annotations]
        alike: dict[Hashable, list[ClusterNode]] = {}
        for one in known:
            placed = (programs or {}).get(one.name, ())
            texts = (program.model_dump_json() for program in placed)
            alike.setdefault((one.annotations.get(RESIDENTS), *texts), []).append(one)
        hosts: dict[Hashable, HostIn] = {}
        for key, (first, *_) in alike.items():
            host = self._hosts.get(key) or _host(first, (programs or {}).get(first.name, ()))
            if host is not None:
                self._hosts.put(key, host)
                hosts[key] = host
        common, kept = (loaded.version, candidate.model_dump_json()), list(hosts)

        def new(missing: list[int]) -> list[tuple[float, str]]:
            found = _predicted(candidate, [hosts[kept[row]] for row in missing], loaded)
            check()
            return found

        speeds = self._speeds.of_each([(*common, key) for key in kept], new)
        return {
            one.name: speed for key, speed in zip(kept, speeds, strict=True) for one in alike[key]
        }


def _predicted(
    candidate: ProgramIn, hosts: Sequence[HostIn], loaded: LoadedPredictor
) -> list[tuple[float, str]]:
    found: list[tuple[float, str]] = []
    for first in range(0, len(hosts), MOST_HOSTS):
        part = hosts[first : first + MOST_HOSTS]
        valid(HostsIn, {"candidate": candidate, "hosts": list(part)})
        found += slowest_programs(candidate, part, loaded)
    return found


def _host(node: ClusterNode, programs: Sequence[ProgramIn]) -> HostIn | None:
    """The node with its programs; None where they do not fit, which is logged."""
    try:
        return valid(HostIn, {"residents": [*residents_of(node.annotations), *programs]})
    except InputError as error:
        log().warning("the programs of a node are not counted", node=node.name, why=str(error))
        return None
