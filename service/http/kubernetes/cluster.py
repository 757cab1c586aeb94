"""Nodes of a cluster and the programs that run on them, followed through its API.

Lists and watches of `nodes` and `pods` as any controller makes them. Of a pod only its node and its
annotation `forerun.dev/program` are kept.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from msgspec import DecodeError, Raw, Struct, json
from msgspec import field as renamed

from forerun.data.errors import InputError
from forerun.service.http.kubernetes.extender import ClusterNode, Metadata
from forerun.service.http.kubernetes.pods import program_of
from forerun.service.log import log
from forerun.service.schemas.colocation import ProgramIn

if TYPE_CHECKING:
    from requests import Session

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where a pod finds the token of its service account and the certificate of the API."""
PAGE: Final = 500
WATCH_S: Final = 240
"""Time after which the API ends a watch, and the next begins with a fresh token, seconds."""
CONNECT_S: Final = 5
LONGEST_PAUSE_S: Final = 30.0
ENDED: Final = ("Succeeded", "Failed")


class _ListMetadata(Struct):
    resource_version: str = renamed(name="resourceVersion", default="")
    next_page: str = renamed(name="continue", default="")


class _Status(Struct):
    phase: str = ""


class _PodSpec(Struct, rename="camel"):
    node_name: str = ""


class _Object(Struct):
    metadata: Metadata
    spec: _PodSpec | None = None
    status: _Status | None = None


class _Listed(Struct):
    metadata: _ListMetadata
    items: list[_Object]


class _Event(Struct):
    type: str
    object: Raw


class _Bookmark(Struct):
    metadata: _ListMetadata


Keep: TypeAlias = Callable[[_Object, bool], None]
"""Takes over an object, or drops it where the flag says that it is gone."""


class Expired(Exception):
    """The API no longer knows the version from which a watch should go on."""


@dataclass
class Cluster:
    """What is known of a cluster at the moment; it is thread-safe.

    Attributes:
        api: address of the API.
        account: folder with the files `token` and `ca.crt`; either may be missing.
    """

    api: str
    account: Path = ACCOUNT
    _nodes: dict[str, ClusterNode] = field(default_factory=dict)
    _programs: dict[str, tuple[str, ProgramIn]] = field(default_factory=dict)
    _lock: RLock = field(default_factory=RLock)
    _stopped: Event = field(default_factory=Event)

    def start(self) -> None:
        """Follow the cluster in threads that end with the process."""
        for kind, keep in (("nodes", self._keep_node), ("pods", self._keep_pod)):
            name = f"forerun-kubernetes-{kind}"
            Thread(target=self._follow, args=(kind, keep), name=name, daemon=True).start()

    def stop(self) -> None:
        """Start no further request."""
        self._stopped.set()

    def node(self, name: str) -> ClusterNode | None:
        """The node of that name; None while it is not known."""
        with self._lock:
            return self._nodes.get(name)

    def programs(self) -> Mapping[str, list[ProgramIn]]:
        """Node -> the programs of its pods that are not finished."""
        found: dict[str, list[ProgramIn]] = defaultdict(list)
        with self._lock:
            for node, program in self._programs.values():
                found[node].append(program)
        return found

    def _follow(self, kind: str, keep: Keep) -> None:
        pause_s = 1.0
        while not self._stopped.is_set():
            try:
                with self._session() as session:
                    version = self._list(session, kind, keep)
                    pause_s = 1.0
                    while not self._stopped.is_set():
                        version = self._watch(session, kind, version, keep)
            except Expired:
                pass
            except (OSError, DecodeError, ValueError) as error:
                log().warning("the cluster is not followed", kind=kind, why=_reason(error))
            self._stopped.wait(pause_s)
            pause_s = min(2.0 * pause_s, LONGEST_PAUSE_S)

    def _session(self) -> "Session":
        import requests

        session = requests.Session()
        token, certificate = self.account / "token", self.account / "ca.crt"
        if token.is_file():
            session.headers["Authorization"] = f"Bearer {token.read_text().strip()}"
        if certificate.is_file():
            session.verify = str(certificate)
        return session

    def _list(self, session: "Session", kind: str, keep: Keep) -> str:
        """Take over all objects of a kind in place of those before; the version of the list."""
        found: list[_Object] = []
        parameters: dict[str, Any] = {"limit": PAGE}
        while True:
            answer = session.get(self._url(kind), params=parameters, timeout=(CONNECT_S, 60))
            _check(answer.status_code)
            listed = json.decode(answer.content, type=_Listed)
            found += listed.items
            if not listed.metadata.next_page:
                break
            parameters["continue"] = listed.metadata.next_page
        with self._lock:
            (self._nodes if kind == "nodes" else self._programs).clear()
            for one in found:
                keep(one, False)
        return listed.metadata.resource_version

    def _watch(self, session: "Session", kind: str, version: str, keep: Keep) -> str:
        """Take over changes until the API ends the watch; the version of the last one."""
        parameters: dict[str, Any] = {
            "watch": "1",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_S,
        }
        timeout = (CONNECT_S, WATCH_S + 30)
        with session.get(
            self._url(kind), params=parameters, timeout=timeout, stream=True
        ) as answer:
            _check(answer.status_code)
            for line in answer.iter_lines():
                if not line:
                    continue
                event = json.decode(line, type=_Event)
                if event.type == "ERROR":
                    raise Expired
                version = json.decode(event.object, type=_Bookmark).metadata.resource_version
                if event.type != "BOOKMARK":
                    keep(json.decode(event.object, type=_Object), event.type == "DELETED")
        return version

    def _url(self, kind: str) -> str:
        return f"{self.api.rstrip('/')}/api/v1/{kind}"

    def _keep_node(self, one: _Object, gone: bool) -> None:
        own = one.metadata
        with self._lock:
            if gone:
                self._nodes.pop(own.name, None)
            else:
                labels, annotations = own.labels or {}, own.annotations or {}
                self._nodes[own.name] = ClusterNode(own.name, labels, annotations, Raw())

    def _keep_pod(self, one: _Object, gone: bool) -> None:
        name = f"{one.metadata.namespace}/{one.metadata.name}"
        node = "" if one.spec is None else one.spec.node_name
        ended = gone or (one.status is not None and one.status.phase in ENDED)
        program = None
        if node and not ended:
            try:
                program = program_of(one.metadata.annotations or {})
            except InputError as error:
                log().warning("a pod's program is not counted", pod=name, why=str(error))
        with self._lock:
            if program is None:
                self._programs.pop(name, None)
            else:
                self._programs[name] = (node, program)


def _check(status: int) -> None:
    if status == HTTPStatus.GONE:
        raise Expired
    if status != HTTPStatus.OK:
        raise OSError(f"the API answered {status}")


def _reason(error: Exception) -> str:
    """A message without the address, which may hold credentials."""
    return str(error) if isinstance(error, DecodeError) else type(error).__name__
