"""Graphs of networks whose peak memory public tables list, each under a name.

    python -m forerun.features.published.memory_zoo FILE.parquet

traces all of them anew (minutes; needs the `zoo` and `train` extras) and writes
the table that comes with the dataset `published_memory`. Networks that tables also time are those
of `forerun.features.published.zoo`, by the same names.
"""

import re
import sys
from pathlib import Path
from typing import Final

from forerun.features.published.diffusion import diffusion
from forerun.features.published.memory_networks import (
    encoders,
    large_vision,
    llamas,
    without_loss,
)
from forerun.features.published.sources import Source
from forerun.features.published.zoo import graph_table, networks

TIMED: Final = re.compile(
    r"(?:albert_base-|biogpt-(?:64|128)|pythia_410m).*-sdpa"
    r"|(?:beit_base|data2vec_base)-224-sdpa|sam_vit_[bh]_encoder-1024"
)
"""Networks of both memory and latency tables; the kind of attention is an option."""


def memory_networks() -> dict[str, Source]:
    """All networks of the memory tables that can be traced, by name."""
    shared = {name: source for name, source in networks().items() if TIMED.fullmatch(name)}
    own = (*without_loss(), *encoders(), *llamas(), *large_vision(), *diffusion())
    return {**shared, **dict(own)}


if __name__ == "__main__":
    graph_table(sources=memory_networks(), marks=True).to_parquet(
        Path(sys.argv[1]), index=False, compression="zstd", compression_level=19
    )
