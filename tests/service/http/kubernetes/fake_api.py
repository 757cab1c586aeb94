"""The part of a Kubernetes API that lists and watches nodes and pods, in this process."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from queue import Queue
from threading import Event, Lock
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.service.http.served import Handler, served

PAGE = 2
"""Objects of a page, whatever limit was asked for."""


@dataclass
class FakeApi:
    """Objects by kind and name, and the watches that hear of their changes.

    Attributes:
        url: address of the API.
        tokens: values of the header Authorization that came, in order.
        expired: while it is set, the version of every watch is too old.
    """

    url: str = ""
    objects: dict[str, dict[str, Any]] = field(default_factory=lambda: {"nodes": {}, "pods": {}})
    tokens: list[str | None] = field(default_factory=list)
    expired: Event = field(default_factory=Event)
    _watches: dict[str, list["Queue[dict[str, Any] | None]"]] = field(
        default_factory=lambda: {"nodes": [], "pods": []}
    )
    _history: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    _version: int = 100
    _lock: Lock = field(default_factory=Lock)

    def put(self, kind: str, content: dict[str, Any]) -> None:
        """Create or change an object."""
        known = content["metadata"]["name"] in self.objects[kind]
        self.objects[kind][content["metadata"]["name"]] = content
        self._tell(kind, "MODIFIED" if known else "ADDED", content)

    def delete(self, kind: str, name: str) -> None:
        """Delete an object."""
        self._tell(kind, "DELETED", self.objects[kind].pop(name))

    def end_watches(self) -> None:
        """End all watches, as the API does after some minutes."""
        for queues in self._watches.values():
            for queue in queues:
                queue.put(None)

    def watched(self) -> bool:
        """Whether both kinds are watched."""
        return all(self._watches.values())

    def _tell(self, kind: str, change: str, content: dict[str, Any]) -> None:
        with self._lock:
            self._version += 1
            content["metadata"]["resourceVersion"] = str(self._version)
            event = {"type": change, "object": content}
            self._history.append((self._version, kind, event))
            for queue in self._watches[kind]:
                queue.put(event)

    def page(self, kind: str, start: int) -> dict[str, Any]:
        """Objects from a position on, as a list of the API."""
        items = list(self.objects[kind].values())
        more = str(start + PAGE) if len(items) > start + PAGE else ""
        metadata = {"resourceVersion": str(self._version), "continue": more}
        return {"metadata": metadata, "items": items[start : start + PAGE]}

    def changes(self, kind: str, since: int) -> Iterator[dict[str, Any]]:
        """Changes since a version, until the watch ends."""
        if self.expired.is_set():
            status = {"kind": "Status", "code": 410, "metadata": {}}
            yield {"type": "ERROR", "object": status}
            return
        queue: Queue[dict[str, Any] | None] = Queue()
        with self._lock:
            missed = [event for at, own, event in self._history if own == kind and at > since]
            self._watches[kind].append(queue)
            version = {"metadata": {"resourceVersion": str(self._version)}}
        try:
            yield from missed
            yield {"type": "BOOKMARK", "object": version}
            while (change := queue.get()) is not None:
                yield change
        finally:
            self._watches[kind].remove(queue)


@contextmanager
def fake_api() -> Iterator[FakeApi]:
    """A running API."""
    api = FakeApi()

    class Listed(Handler):
        def do_GET(self) -> None:
            api.tokens.append(self.headers["Authorization"])
            where = urlsplit(self.path)
            asked = parse_qs(where.query)
            kind = where.path.removeprefix("/api/v1/")
            if "watch" not in asked:
                page = api.page(kind, int(asked.get("continue", ["0"])[0]))
                self.answer(json.dumps(page).encode())
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for change in api.changes(kind, int(asked["resourceVersion"][0])):
                line = json.dumps(change).encode() + b"\n"
                self.wfile.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")
            self.wfile.write(b"0\r\n\r\n")

    with served(Listed) as api.url:
        try:
            yield api
        finally:
            api.end_watches()
