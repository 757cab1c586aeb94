"""Well-known networks by name: operator graphs at their usual input size, without weights.

Vision networks take images of 224 x 224 pixels; `README.md` in `network_graphs` says how each was
traced, and how many tokens those that read text were traced with.
"""

from difflib import get_close_matches
from functools import cache, lru_cache

from forerun.data.errors import UnreadableModel
from forerun.data.graph import OperatorGraph
from forerun.data.named.packed import packed_content, packed_names

FOLDER = "network_graphs"


def network_names() -> tuple[str, ...]:
    """Names of all networks, sorted."""
    return packed_names(FOLDER)


@lru_cache(maxsize=32)
def network_named(name: str) -> OperatorGraph | None:
    """The network's graph at batch size 1; None where no network has that name.

    >>> network_named("resnet50").source
    'torch_export'
    """
    if name not in network_names():
        return None
    return OperatorGraph.from_json(packed_content(FOLDER, name))


def unknown_network(name: str) -> UnreadableModel:
    """The error about a model that is neither a file nor a network of that name.

    >>> str(unknown_network("resnet-50"))[:70]
    "Cannot read resnet-50: there is no such file, and no network of that n"
    """
    close = get_close_matches(name.lower(), network_names(), n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return UnreadableModel(
        name,
        f"there is no such file, and no network of that name.{hint} There are "
        f"{', '.join(network_names())}; of all others give a file, or trace timm's by `forerun "
        "trace timm:NAME -o graph.json`.",
    )


def network_with_digest(digest: str) -> OperatorGraph | None:
    """The network whose graph has that digest; None where none has."""
    name = _by_digest().get(digest)
    return None if name is None else network_named(name)


@cache
def _by_digest() -> dict[str, str]:
    graphs = ((name, network_named(name)) for name in network_names())
    return {graph.digest: name for name, graph in graphs if graph is not None}
