"""Uploaded graphs: on disk before they are acknowledged, in memory while they are in use."""

import json
import os
import tempfile
from collections import OrderedDict
from pathlib import Path
from threading import Lock

from forerun.data.errors import InputError, UnknownGraph
from forerun.data.graph import OperatorGraph

HEXADECIMAL = frozenset("0123456789abcdef")


class StoreFull(InputError):
    """The store holds as many graphs as it may."""

    slug, status = "store-full", 507


class GraphStore:
    """Graphs by digest. What `put` returned survives a restart; safe to use from threads.

    Args:
        folder: one JSON file a graph.
        kept: most graphs on disk; further ones are refused, none is dropped.
        in_memory: most graphs in memory; the longest unused is read again from disk.
    """

    def __init__(self, folder: Path, kept: int, in_memory: int = 512) -> None:
        self._folder, self._kept, self._in_memory = folder, kept, in_memory
        self._graphs: OrderedDict[str, OperatorGraph] = OrderedDict()
        self._lock = Lock()
        folder.mkdir(parents=True, exist_ok=True)
        self._count = sum(1 for _ in folder.glob("*.json"))

    def put(self, graph: OperatorGraph) -> str:
        """Keep a graph; its digest is returned once it is safe on disk.

        Raises:
            StoreFull: no room; the message says which setting makes more.
        """
        digest = graph.digest
        path = self._path(digest)
        if not path.exists():
            with self._lock:
                if self._count >= self._kept:
                    raise StoreFull(
                        f"{self._kept} graphs are kept already; raise FORERUN_GRAPHS_KEPT or "
                        f"delete files under {self._folder.name}/."
                    )
                self._count += 1
            _write_safely(path, json.dumps(graph.to_json(), separators=(",", ":")))
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
            text = self._path(digest).read_text()
        except FileNotFoundError:
            raise UnknownGraph(digest) from None
        graph = OperatorGraph.from_json(json.loads(text))
        self._remember(digest, graph)
        return graph

    def held(self, digest: str) -> OperatorGraph | None:
        """The graph if it is in memory."""
        with self._lock:
            graph = self._graphs.get(digest)
            if graph is not None:
                self._graphs.move_to_end(digest)
            return graph

    def _path(self, digest: str) -> Path:
        return self._folder / f"{digest}.json"

    def _remember(self, digest: str, graph: OperatorGraph) -> None:
        with self._lock:
            self._graphs[digest] = graph
            self._graphs.move_to_end(digest)
            while len(self._graphs) > self._in_memory:
                self._graphs.popitem(last=False)


def _write_safely(path: Path, text: str) -> None:
    """Write a file so that it is either whole or not there, also after a power cut."""
    with tempfile.NamedTemporaryFile("w", dir=path.parent, suffix=".part", delete=False) as draft:
        draft.write(text)
        draft.flush()
        os.fsync(draft.fileno())
    Path(draft.name).replace(path)
