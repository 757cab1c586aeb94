"""Graphs of networks whose latency is listed in published tables, by name.

A name gives network, input and, for transformers, head and attention: `bert_base_mlm-256-sdpa`.
Every entry states where its configuration is published; uncertain networks are left out.

    python -m forerun.features.published.zoo FILE.parquet

traces all of them anew (minutes; needs the `zoo` and `train` extras) and writes the table that
comes with the dataset `published_networks`.
"""

import json
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from forerun.data.errors import MissingExtra
from forerun.data.graph import OperatorGraph
from forerun.data.lazy import pd
from forerun.features.published.sources import (
    Built,
    Entry,
    Inputs,
    Source,
    Transformer,
    ssd300,
    wide_squeeze_efficientnet,
    with_dense_head,
    with_stored_positions,
)
from forerun.features.readers.model_zoo import build, is_installed
from forerun.features.readers.torch_trace import declare_operators

Shapes = tuple[int, ...]
_INPUTS: Final[Mapping[str, Callable[[Shapes], Inputs]]] = {
    "tokens": lambda n: {"input_ids": (1, *n), "attention_mask": (1, *n)},
    "unmasked tokens": lambda n: {"input_ids": (1, *n)},
    "image": lambda sides: {"pixel_values": (1, 3, sides[0], sides[-1])},
    "masked image": lambda sides: {"pixel_values": (1, 3, *sides), "pixel_mask": (1, *sides)},
    "video": lambda n: {"pixel_values": (1, n[0], 3, n[1], n[1])},
}
"""Kind of input -> inputs of `forward`, given the numbers in a network's name."""


def of_45_classes(model: str, fields: dict[str, Any]) -> Any:
    """A network of timm with the 45 classes of RESISC45."""
    import timm

    return timm.create_model(model, pretrained=False, num_classes=45, **fields)


_MAKERS: Final[Mapping[str, Callable[..., Any]]] = {
    make.__name__: make for make in (build, wide_squeeze_efficientnet, ssd300, of_45_classes)
}
_WRAPS: Final[Mapping[str, Callable[..., Any]]] = {
    wrap.__name__: wrap for wrap in (with_dense_head, with_stored_positions)
}


@cache
def declared() -> Mapping[str, Any]:
    """The tables of networks in `networks.toml`."""
    file = files("forerun.features.published") / "networks.toml"
    return tomllib.loads(file.read_text(encoding="utf-8"))


def entries(table: str) -> Iterator[Entry]:
    """The networks of a table in `networks.toml`, with their names."""
    for entry in declared()[table]:
        for name in entry["names"]:
            _, size, *attention = name.split("-")
            numbers = tuple(map(int, size.split("x")))
            if "make" in entry:
                make = partial(_MAKERS[entry["make"]], *entry.get("given", ()))
                yield name, Built(entry["source"], make, (1, 3, numbers[0], numbers[0]))
                continue
            wrap = dict(entry.get("wrap", {}))
            by = _WRAPS[wrap.pop("by")] if wrap else None
            yield (
                name,
                Transformer(
                    *(entry["source"], entry["architecture"], entry["config"]),
                    _INPUTS[entry["input"]](numbers),
                    entry.get("attention") or (attention or ["eager"])[0],
                    entry.get("fields", {}),
                    partial(by, **wrap) if by and wrap else by,
                ),
            )


def networks() -> dict[str, Source]:
    """All traceable networks with published latencies, by name."""
    return dict(entries("timed"))


def graph_table(
    names: Sequence[str] = (), sources: Mapping[str, Source] | None = None, *, marks: bool = False
) -> "pd.DataFrame":
    """One row per network: `graph`, `configuration`, `operators` and `content` (the graph's JSON).

    Args:
        names: networks to trace; all if empty.
        sources: networks by name; those of `networks()` if None.
        marks: whether operators get the attributes that training memory needs.

    Raises:
        MissingExtra: torch, torchvision, timm or transformers is not installed.
        UnreadableModel: a network cannot be traced.
    """
    if not is_installed():
        raise MissingExtra("Building a published network", "zoo")
    declare_operators()
    rows, known = [], networks() if sources is None else sources
    for name, source in known.items():
        if names and name not in names:
            continue
        graph = source.traced(marks=marks)
        content = json.dumps(graph.to_json(), sort_keys=True, separators=(",", ":"))
        row = {"graph": name, "configuration": source.configuration}
        rows.append({**row, "operators": len(graph), "content": content})
    return pd.DataFrame(rows)


def read_graphs(table: "pd.DataFrame") -> dict[str, OperatorGraph]:
    """Graphs by name from a table written by `graph_table`.

    Raises:
        KeyError, ValueError: it is not such a table.
    """
    contents = zip(table["graph"], table["content"], strict=True)
    return {str(name): OperatorGraph.from_json(json.loads(text)) for name, text in contents}


if __name__ == "__main__":
    graph_table().to_parquet(
        Path(sys.argv[1]), index=False, compression="zstd", compression_level=19
    )
