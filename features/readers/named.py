"""Models by name: of this package, of timm, or in the local cache of Hugging Face.

Nothing is downloaded.
"""

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from forerun.data.errors import UnknownLanguageModel, UnreadableModel, to_fetch
from forerun.data.graph import OperatorGraph
from forerun.data.named.networks import network_named, refuse_sizes, unknown_network
from forerun.features.readers import read_graph
from forerun.features.readers.hugging_face_cache import HUGGING_FACE, cached_model, is_id
from forerun.features.readers.input_sizes import DEFAULT_IMAGE_SIZE, InputSizes


def graph_named(name: str, sizes: InputSizes, option: Callable[[str], str] = str) -> OperatorGraph:
    """The graph of the network of a name.

    Args:
        name: of a network of this package, `timm:NAME`, `hf:ORG/MODEL` or `hf:TYPE`; `hf:` may be
            left out of the former.
        sizes: sizes of its inputs.
        option: field of `sizes` -> what the error about it calls it.

    Raises:
        UnreadableModel: no network has that name, or it cannot be traced.
        InputError: a size is given for a network of this package.
        MissingExtra: torch, transformers or timm is not installed.
    """
    from forerun.features.readers.model_zoo import PREFIX as TIMM
    from forerun.features.readers.model_zoo import zoo_graph

    if name.startswith(TIMM):
        pixels = sizes.image_size or DEFAULT_IMAGE_SIZE
        return zoo_graph(name.removeprefix(TIMM), pixels, batch_size=sizes.batch_size)
    graph = network_named(name)
    if graph is not None:
        given = {each: getattr(sizes, each) for each in ("sequence_length", "image_size", "shapes")}
        refuse_sizes(name, {option(each): bool(value) for each, value in given.items()})
        return graph
    folder = cached_model(name)
    if folder is not None:
        return _read(folder, sizes)
    plain = name.removeprefix(HUGGING_FACE)
    if plain != name and _is_type(plain):
        return _read(json.dumps({"model_type": plain}).encode(), sizes)
    raise unknown_name(name)


def unknown_name(name: str) -> UnreadableModel:
    """The error about a model that is neither a file nor a network of that name."""
    from forerun.features.readers.language_model.reader import named_model

    plain = name.removeprefix(HUGGING_FACE)
    try:
        named_model(plain)
    except UnknownLanguageModel:
        if not is_id(name):
            return unknown_network(name)
        return UnreadableModel(
            name,
            "there is no such file, its config.json is not in the local cache of Hugging Face, and "
            f"nothing is downloaded: give the file, or {to_fetch(name)}.",
        )
    return UnreadableModel(
        name,
        f"it is a language model. `forerun llm estimate {plain}` estimates what it costs to "
        "serve; for a single forward pass give its config.json.",
    )


def _is_type(name: str) -> bool:
    """Whether it is a type of model of transformers, which has a default configuration."""
    try:
        from transformers import CONFIG_MAPPING
    except ImportError:
        return False
    return name in CONFIG_MAPPING


def _read(source: Path | bytes, sizes: InputSizes) -> OperatorGraph:
    return read_graph(source, **{own.name: getattr(sizes, own.name) for own in fields(InputSizes)})
