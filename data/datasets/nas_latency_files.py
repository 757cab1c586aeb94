"""Upstream files of nas_latency as tables: lists of times by architecture id, read as plain data."""

from typing import TYPE_CHECKING

from forerun.data.upstream import RawFiles

if TYPE_CHECKING:
    import pandas as pd


def tables_of(raw: RawFiles) -> dict[str, "pd.DataFrame"]:
    """Tables."""
    return {}
