"""Networks that were recorded as CUDA graphs, as training rows of `NetworkLatency`.

A recorded network does not wait for the host, so that its latency is the device time, at any batch
size. Rows of convolutional networks in fp32 are left out where TF32 was off for convolutions, which
no query expresses; so are recurrent networks, whose steps the additive model does not describe.
"""

from typing import Final

import numpy as np
import pandas as pd

from forerun.data.columns import Mask
from forerun.data.datasets.networks.published_networks import chips
from forerun.data.measurements import NO_HOST, Measurements
from forerun.data.query import Query

MOST_CONVOLUTIONS: Final = 1
"""Convolutions of a transformer that embeds patches: a few percent of its work."""


def trains(rows: Measurements) -> Mask:
    """Which of n rows train, shape (n,).

    Args:
        rows: measured networks and operators with the groups `mode` and `fp32_convolutions`.
    """
    return described(rows, "recorded")


def described(rows: Measurements, mode: str) -> Mask:
    """Which of n rows are networks of a mode that mean what a query says, shape (n,).

    Args:
        rows: measured networks and operators with the groups `mode` and `fp32_convolutions`.
        mode: how the networks were launched: `recorded` or `eager`.
    """
    kept = rows.groups["mode"] == mode
    strict = rows.groups["fp32_convolutions"] == "strict"
    for row in np.flatnonzero(kept).tolist():
        kept[row] = _is_described(rows.queries[row], bool(strict[row]))
    return np.asarray(kept, dtype=np.bool_)


def recorded_networks(rows: Measurements) -> Measurements:
    """The rows of `trains`, which wait for no host.

    Args:
        rows: measured networks and operators with the groups `mode` and `fp32_convolutions`.

    Returns:
        `latency_ms` with the groups of `rows`, `host` and `chip`.
    """
    kept = rows.take(trains(rows))
    chip = chips(pd.Series(kept.groups["device"], dtype=str))
    groups = {**kept.groups, "host": np.full(len(kept), NO_HOST), "chip": chip}
    return Measurements(kept.queries, {"latency_ms": kept.values["latency_ms"]}, groups)


def _is_described(query: Query, strict: bool) -> bool:
    """Whether the query means what was measured, and the additive model describes the network."""
    kinds = [operator.kind for operator in query.network.graph.operators]
    convolutional = kinds.count("conv") > MOST_CONVOLUTIONS
    other = strict and query.network.precision == "fp32" and convolutional
    return not other and "recurrent" not in kinds
