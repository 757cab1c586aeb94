"""Uploaded graphs: written to disk before they are acknowledged, with a cache in memory."""

import json
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from forerun.data.collectors.runner.worker import finished
from forerun.data.errors import UnknownGraph, UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.data.named.networks import network_named, network_names, network_with_digest
from forerun.features.readers.hugging_face_cache import cached_model
from forerun.features.readers.model_zoo import PREFIX as TIMM
from forerun.service.settings import Settings
from forerun.service.stores.database.store import Records
from forerun.service.stores.places import (
    SUFFIX,
    DamagedRecord,
    Place,
    StoreFull,
    log_damage,
    place_of,
)

HEXADECIMAL = frozenset("0123456789abcdef")


def graphs_of(settings: Settings) -> "GraphStore":
    """The graphs of the place that the settings select."""
    return GraphStore(place_of(settings) / "graphs", settings.graphs_kept)


class GraphStore:
    """Graphs by digest. Graphs survive a restart once `put` returned; it is thread-safe.

    Several processes may share a place. A record whose content is not that of its digest counts as
    absent, until the graph is uploaded again.

    Args:
        place: where the graphs are.
        kept: largest number of graphs on disk. Further graphs are refused and none is removed by
            itself, because a client that was given a digest may ask about it at any time.
        operators_in_memory: largest number of operators in memory (0.8 kB each); the least recently
            used graphs leave memory first and are read again from disk on demand.
    """

    def __init__(self, place: Place, kept: int, operators_in_memory: int = 100_000) -> None:
        self._kept = kept
        self._files = Records(
            place, OperatorGraph.to_text, _decoded, log_damage, weigh=len, room=operators_in_memory
        )

    def put(self, graph: OperatorGraph) -> str:
        """Store a graph on disk, unless an intact file holds it, and return its digest.

        Of two graphs of one digest that were read in different ways, the later one is kept.

        Raises:
            StoreFull: `kept` graphs are stored; the message names the setting to raise.
            DiskFull, CannotStore: the graph could not be written; nothing was stored.
        """
        name = f"{graph.digest}{SUFFIX}"
        with self._files.writing():
            if not self._is_stored(name, graph):
                names = self._files.names()
                if name not in names and sum(n.endswith(SUFFIX) for n in names) >= self._kept:
                    raise StoreFull(
                        f"{self._kept} graphs are kept already; delete some with DELETE "
                        "/v1/graphs/DIGEST, or raise FORERUN_GRAPHS_KEPT."
                    )
                self._files.put(name, graph)
        return graph.digest

    def _is_stored(self, name: str, graph: OperatorGraph) -> bool:
        """Whether an intact file holds the graph, read in the same way."""
        try:
            stored = self._files.get(name)
        except (FileNotFoundError, DamagedRecord):
            return False
        return (stored.bound_dimensions, stored.assumptions) == (
            graph.bound_dimensions,
            graph.assumptions,
        )

    def get(self, digest: str) -> OperatorGraph:
        """The graph of that digest, or of a network of that name: one that comes with the package,
        `timm:NAME`, or a model in this host's cache of Hugging Face. Nothing is downloaded.

        Raises:
            UnknownGraph: no such graph was uploaded, or its file is damaged.
            UnreadableModel: the model cannot be traced, also because torch, timm or transformers is
                not installed.
        """
        if _is_digest(digest):
            with suppress(FileNotFoundError, DamagedRecord):
                return self.held(digest) or self._files.get(f"{digest}{SUFFIX}")
        graph = network_with_digest(digest) if _is_digest(digest) else network_named(digest)
        if graph is None and digest.startswith(TIMM):
            return _traced(digest, digest)
        folder = cached_model(digest) if graph is None else None
        if folder is not None:
            return _traced(str(folder), "a model of the cache")
        if graph is None:
            raise UnknownGraph(digest[:64], () if _is_digest(digest) else network_names())
        return graph

    def held(self, digest: str) -> OperatorGraph | None:
        """The graph if it is in memory and was not deleted, else None."""
        return self._files.held(f"{digest}{SUFFIX}")

    def delete(self, digest: str) -> None:
        """Delete a graph from the disk, or the damaged file of that digest.

        Raises:
            UnknownGraph: no such graph was uploaded. Those of the package are not deleted.
            CannotStore: the file could not be deleted.
        """
        if not _is_digest(digest) or not self._files.delete(f"{digest}{SUFFIX}"):
            raise UnknownGraph(digest[:64])


@lru_cache(maxsize=16)
def _traced(source: str, title: str) -> OperatorGraph:
    """The graph of a model of timm, or of one in the cache, whose path contains the hash of its
    content.

    Another process traces it, so that the service does not import torch.
    """
    with TemporaryDirectory() as folder:
        file = Path(folder) / "graph.json"
        program = "from forerun.service.cli import main; main()"
        command = [sys.executable, "-c", program, "trace", source, "--output", str(file)]
        done = finished(command)
        if done.returncode:
            why = (done.stderr.strip().splitlines() or ["tracing failed"])[-1]
            why = why.removeprefix("forerun: ").removeprefix(f"Cannot read {title}: ")
            raise UnreadableModel(title, why.replace(source, "its folder"))
        return from_text(file.read_text(encoding="utf-8"))


def _is_digest(text: str) -> bool:
    return len(text) == 32 and HEXADECIMAL.issuperset(text)


def from_text(text: str | bytes) -> OperatorGraph:
    """The graph that `OperatorGraph.to_text` wrote.

    Raises:
        KeyError, TypeError, ValueError: the text is not that of a graph.
    """
    return OperatorGraph.from_json(json.loads(text))


def _decoded(name: str, content: bytes) -> OperatorGraph:
    graph = from_text(content)
    if name != f"{graph.digest}{SUFFIX}":
        raise ValueError(f"its content has the digest {graph.digest}")
    return graph
