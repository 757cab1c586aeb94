"""Speeds of the programs on nodes once a pod's program runs there too."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import ValidationError

from forerun.data.errors import BadRequest, InputError
from forerun.features.deadline import check
from forerun.features.recent import Recent
from forerun.models.artifact.loading import LoadedPredictor
from forerun.service.answers.colocation import slowest_programs
from forerun.service.http.kubernetes.extender import ClusterNode
from forerun.service.http.kubernetes.pods import RESIDENTS, residents_of
from forerun.service.log import log
from forerun.service.problems import unfit
from forerun.service.schemas.colocation import MOST_HOSTS, HostIn, HostsIn, ProgramIn

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
        try:
            HostsIn(candidate=candidate, hosts=list(part))
        except ValidationError as error:
            raise BadRequest(unfit(error.errors()).detail) from None
        found += slowest_programs(candidate, part, loaded)
    return found


def _host(node: ClusterNode, programs: Sequence[ProgramIn]) -> HostIn | None:
    """The node with its programs; None where they do not fit, which is logged."""
    try:
        residents = [*residents_of(node.annotations), *programs]
        return HostIn(residents=residents)
    except ValidationError as error:
        why = unfit(error.errors()).detail
    except InputError as error:
        why = str(error)
    log().warning("the programs of a node are not counted", node=node.name, why=why)
    return None
