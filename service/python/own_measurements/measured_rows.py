"""Measurements as they are given in Python: a file, a table, or a list of them."""

import json
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import BaseModel

from forerun.data.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

Rows: TypeAlias = "str | PathLike[str] | Sequence[Mapping[str, Any] | BaseModel] | pd.DataFrame"
"""Measurements: a file, a table, or a list as POST /v1/devices/NAME/measurements takes it."""


def file_of(measurements: Any, scratch: Path) -> Path:
    """The file of measurements; those that are no file are written into a folder first."""
    if isinstance(measurements, str | PathLike):
        return Path(measurements)
    if hasattr(measurements, "to_parquet"):
        file = scratch / "measurements.parquet"
        measurements.to_parquet(file, index=False)
        return file
    file = scratch / "measurements.json"
    plain = [
        row.model_dump(mode="json") if isinstance(row, BaseModel) else row for row in measurements
    ]
    try:
        file.write_text(json.dumps(plain), encoding="utf-8")
    except (TypeError, ValueError) as error:
        raise InputError(f"measurements: {error}.") from None
    return file
