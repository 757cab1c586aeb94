"""Well-known networks and programs by name, as packaged graphs without weights.

Each is a JSON file compressed with xz. Vision networks take images of 224 x 224 pixels, YOLO
detectors of 640 x 640 (their usual input sizes). `README.md` in `network_graphs` says how each was
traced, and with how many tokens if it reads text. Programs are those of HLSyn, for high-level
synthesis, with slots for directives.
"""

import json
import lzma
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any, Final

from forerun.data.errors import InputError, UnreadableModel, did_you_mean
from forerun.data.graph import OperatorGraph
from forerun.data.program import ProgramGraph


@cache
def packed_names(folder: str) -> tuple[str, ...]:
    """Names of the graphs in a folder next to this module, sorted."""
    found = (entry.name for entry in (files("forerun.data.named") / folder).iterdir())
    return tuple(sorted(n.removesuffix(".json.xz") for n in found if n.endswith(".json.xz")))


def packed_content(folder: str, name: str) -> Any:
    """The content of one of `packed_names(folder)`, as plain JSON."""
    path = files("forerun.data.named") / folder / f"{name}.json.xz"
    return json.loads(lzma.decompress(path.read_bytes()))


FOLDER = "network_graphs"
DIGESTS: Final = "digests.json"
"""File of the folder: name -> digest of its graph."""
OTHER_NAMES: Final[Mapping[str, str]] = {
    "mobilenetv3large": "mobilenet-v3",
    "swint": "swin-tiny",
    "swins": "swin-small",
    "swinb": "swin-base",
    "vitb16": "vit-base",
    "vitl16": "vit-large",
}
"""torchvision's names, without separators -> ours."""


def network_names() -> tuple[str, ...]:
    """Names of all networks, sorted."""
    return packed_names(FOLDER)


def network_named(name: str) -> OperatorGraph | None:
    """The network's graph at batch size 1; None if no network has that name.

    Capitals and separators do not matter, and torchvision's names are also known.

    >>> network_named("ResNet-50") is network_named("resnet50")
    True
    """
    known = _by_plain_name().get(_plain(name))
    return None if known is None else _graph(known)


def _plain(name: str) -> str:
    return name.lower().translate({ord(mark): None for mark in "-_. "})


@cache
def _by_plain_name() -> Mapping[str, str]:
    return {**OTHER_NAMES, **{_plain(name): name for name in network_names()}}


@lru_cache(maxsize=64)
def _graph(name: str) -> OperatorGraph:
    return OperatorGraph.from_json(packed_content(FOLDER, name))


def unknown_network(name: str) -> UnreadableModel:
    """The error for a model that is neither a file nor a known network.

    >>> str(unknown_network("resnet51"))[:70]
    'Cannot read resnet51: there is no such file, and no network of that na'
    """
    _, hint = did_you_mean(name, network_names(), 0.6)
    return UnreadableModel(
        name,
        f"there is no such file, and no network of that name. {hint}`forerun presets` lists "
        f"{len(network_names())} by name; of all others give a file, or trace timm's by "
        "`forerun trace timm:NAME -o graph.json`. For the cost of serving a language model, "
        "use `forerun llm estimate NAME`.",
    )


def refuse_sizes(name: str, given: Mapping[str, bool]) -> None:
    """Reject options that would change the input of a packaged network.

    Args:
        name: name of the network.
        given: name of an option about sizes -> whether it was given.

    Raises:
        InputError: one of them was given.
    """
    for option in (option for option, is_given in given.items() if is_given):
        raise InputError(
            f"{option}: {name} comes with forerun at one size of its input; give a model file or a "
            "config.json for another."
        )


def network_with_digest(digest: str) -> OperatorGraph | None:
    """The network whose graph has that digest; None if there is none."""
    name = _by_digest().get(digest)
    return None if name is None else _graph(name)


@cache
def _by_digest() -> Mapping[str, str]:
    text = (files("forerun.data.named") / FOLDER / DIGESTS).read_text(encoding="utf-8")
    return {digest: name for name, digest in json.loads(text).items()}


PROGRAM_FOLDER = "program_graphs"


def program_names() -> tuple[str, ...]:
    """Names of all programs, sorted."""
    return packed_names(PROGRAM_FOLDER)


@lru_cache(maxsize=32)
def program_named(name: str) -> ProgramGraph | None:
    """The program's graph; None if no program has that name."""
    return program_of(packed_content(PROGRAM_FOLDER, name)) if name in program_names() else None


def program_of(content: dict[str, Any]) -> ProgramGraph:
    """A graph from its fields as lists."""
    edges = tuple(tuple(edge) for edge in content["edges"])
    columns = ("types", "texts", "full_texts", "blocks", "functions")
    return ProgramGraph(edges=edges, **{name: tuple(content[name]) for name in columns})
