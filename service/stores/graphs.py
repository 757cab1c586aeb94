"""Uploaded graphs: written to disk before they are acknowledged, with a cache in memory."""

import json
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from forerun.data.errors import InputError, UnknownGraph
from forerun.data.graph import OperatorGraph
from forerun.service.stores.files import write_whole

HEXADECIMAL = frozenset("0123456789abcdef")


class StoreFull(InputError):
    """The store is full."""

    slug, status = "store-full", 507


class GraphStore:
    """Graphs by digest. Graphs survive a restart once `put` returned; it is thread-safe.

    Several processes may share a folder. Each counts the graphs there when it starts and those that
    it adds, so together they may exceed `kept` until the next start.

    Args:
        folder: folder with one JSON file per graph.
        kept: largest number of graphs on disk; further graphs are refused and none is removed.
        operators_in_memory: largest number of operators in memory (0.8 kB each); the least recently
            used graphs leave memory first and are read again from disk on demand.
    """

    def __init__(self, folder: Path, kept: int, operators_in_memory: int = 100_000) -> None:
        self._folder, self._kept = folder, kept
        self._room = operators_in_memory
        self._graphs: OrderedDict[str, OperatorGraph] = OrderedDict()
        self._memory, self._disk = Lock(), Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._count = sum(1 for _ in folder.glob("*.json"))

    def put(self, graph: OperatorGraph) -> str:
        """Store a graph on disk and return its digest.

        Raises:
            StoreFull: `kept` graphs are stored; the message names the setting to raise.
            OSError: the graph could not be written; nothing was stored.
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
            UnknownGraph: no such graph was uploaded.
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
        """The graph if it is in memory, else None."""
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
