"""Graphs of networks whose latency published tables list, each under a name.

A name says network, input and, for transformers, head and attention: `bert_base_mlm-256-sdpa`.
Every entry says where its configuration is published; uncertain networks are left out.

    python -m forerun.features.published.zoo FILE.parquet

traces all of them anew (minutes; needs the `zoo` and `train` extras) and writes the table that
comes with the dataset `published_networks`.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from forerun.data.errors import MissingExtra
from forerun.data.graph import OperatorGraph
from forerun.features.published.convolutional import convolutional
from forerun.features.published.detection import detection
from forerun.features.published.language import bert, decoders
from forerun.features.published.sources import Source
from forerun.features.published.vision import segment_anything, vision, without_attention
from forerun.features.readers.model_zoo import is_installed
from forerun.features.readers.torchvision_operators import declare_operators

if TYPE_CHECKING:
    import pandas as pd


def networks() -> dict[str, Source]:
    """All published networks that can be traced, by name."""
    return dict(
        (
            *convolutional(),
            *bert(),
            *decoders(),
            *vision(),
            *without_attention(),
            *segment_anything(),
            *detection(),
        )
    )


def graph_table(
    names: Sequence[str] = (),
    sources: Mapping[str, Source] | None = None,
    *,
    marks: bool = False,
) -> "pd.DataFrame":
    """One row per network: `graph`, `configuration`, `operators` and `content` (the graph's JSON).

    Args:
        names: networks to trace; all when empty.
        sources: networks by name; those of `networks()` when None.
        marks: whether operators get the attributes that the memory of training needs.

    Raises:
        MissingExtra: torch, torchvision, timm or transformers is not installed.
        UnreadableModel: a network cannot be traced.
    """
    import pandas as pd

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
    """Graphs of a table as `graph_table` writes it, by name.

    Raises:
        KeyError, ValueError: it is not such a table.
    """
    contents = zip(table["graph"], table["content"], strict=True)
    return {str(name): OperatorGraph.from_json(json.loads(text)) for name, text in contents}


if __name__ == "__main__":
    graph_table().to_parquet(
        Path(sys.argv[1]), index=False, compression="zstd", compression_level=19
    )
