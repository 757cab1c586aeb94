"""Uploaded graphs: on disk before they are acknowledged, in memory while they are in use."""

import json
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from forerun.data.errors import InputError, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.service.stores.files import write_whole

HEXADECIMAL = frozenset("0123456789abcdef")


class StoreFull(InputError):
    """The store holds as much as it may."""

    slug, status = "store-full", 507


class GraphStore:
    """Graphs by digest. What `put` returned survives a restart; safe to use from threads.

    Several processes may share a folder; each counts what it finds there when it starts and what
    it adds, so that together they may keep more than `kept` until the next start.

    Args:
        folder: one JSON file a graph.
        kept: most graphs on disk; further ones are refused, none is dropped.
        operators_in_memory: most operators of graphs in memory (0.8 kB each); the graph longest
            unused is read again from disk when it is asked for.
    """

    def __init__(self, folder: Path, kept: int, operators_in_memory: int = 100_000) -> None:
        self._folder, self._kept = folder, kept
        self._room = operators_in_memory
        self._graphs: OrderedDict[str, OperatorGraph] = OrderedDict()
        self._memory, self._disk = Lock(), Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._count = sum(1 for _ in folder.glob("*.json"))

    def put(self, graph: OperatorGraph) -> str:
        """Keep a graph; its digest is returned once it is safe on disk.

        Raises:
            StoreFull: no room; the message says which setting makes more.
            OSError: the disk refuses; nothing was kept.
        """
        digest = graph.digest
        path = self._path(digest)
        with self._disk:
            if not path.exists():
                if self._count >= self._kept:
                    raise StoreFull(
                        f"{self._kept} graphs are kept already; raise FORERUN_GRAPHS_KEPT or "
                        f"delete files under {self._folder.name}/."
                    )
                write_whole(path, json.dumps(graph.to_json(), separators=(",", ":")))
                self._count += 1
        self._remember(digest, graph)
        return digest

    def get(self, digest: str) -> OperatorGraph:
        """The graph of that digest.

        Raises:
            UnknownGraph: none was uploaded.
        """
        graph = self.held(digest)
        if graph is not None:
            return graph
        if len(digest) != 32 or not HEXADECIMAL.issuperset(digest):
            raise UnknownGraph(digest[:64])
        try:
            text = self._path(digest).read_text(encoding="utf-8")
        except FileNotFoundError:
            raise UnknownGraph(digest) from None
        graph = OperatorGraph.from_json(json.loads(text))
        self._remember(digest, graph)
        return graph

    def held(self, digest: str) -> OperatorGraph | None:
        """The graph if it is in memory."""
        with self._memory:
            graph = self._graphs.get(digest)
            if graph is not None:
                self._graphs.move_to_end(digest)
            return graph

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"

    def _remember(self, digest: str, graph: OperatorGraph) -> None:
        with self._memory:
            before = self._graphs.pop(digest, None)
            self._room += 0 if before is None else len(before)
            self._graphs[digest] = graph
            self._room -= len(graph)
            while self._room < 0 and len(self._graphs) > 1:
                self._room += len(self._graphs.popitem(last=False)[1])
