"""The files of a leaderboard entry: `entry.yaml`, and the predictions as CSV or Parquet."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
import yaml
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from forerun.data.errors import BadEntry

if TYPE_CHECKING:
    import pandas as pd

FACTS: Final = "entry.yaml"
PREDICTIONS: Final = ("predictions.csv", "predictions.parquet")
KEY: Final = ("task", "device", "metric", "seed")
COLUMNS: Final = (*KEY, "row", "measured", "predicted", "low", "high")


class ClaimedScore(BaseModel):
    """The score of one task as the entry claims it."""

    model_config = ConfigDict(extra="forbid")

    task: str
    device: str | None = None
    metric: str
    score: str = Field(description="name of the score, such as mape")
    value: float
    n: int = Field(ge=1, description="number of held-out rows")


class EntryFacts(BaseModel):
    """Content of `entry.yaml`."""

    model_config = ConfigDict(extra="forbid")

    format: Literal["forerun.entry/1"] = "forerun.entry/1"
    system: str = Field(min_length=1, max_length=80, description="name of the predictor")
    command: str = Field(min_length=1, description="what makes the predictions again")
    commit: str = Field(min_length=1, description="version of the code")
    environment: dict[str, str] = Field(description="package -> version")
    dataset: str
    digest: str = Field(description="hash of the bundle, as `forerun data describe` says")
    protocols: tuple[str, ...] = Field(min_length=1, description="such as unseen_device")
    date: AwareDatetime
    citation: str | None = None
    scores: tuple[ClaimedScore, ...] = Field(min_length=1)


def read_facts(folder: Path) -> EntryFacts:
    """Content of `entry.yaml`.

    Raises:
        BadEntry: it is missing or malformed; names the field.
    """
    path = folder / FACTS
    if not path.is_file():
        raise BadEntry(f"{folder} has no {FACTS}.")
    try:
        return EntryFacts.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the file"
        raise BadEntry(f"{path}: {place}: {first['msg']}.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadEntry(f"{path} is no YAML: {' '.join(str(error).split())}") from None


def read_predictions(folder: Path) -> "pd.DataFrame":
    """The table of predictions, with the columns `COLUMNS`; without a seed, it is 0.

    Raises:
        BadEntry: it is missing, is there twice, lacks a column, or has a cell that is no number.
    """
    import pandas as pd

    files = [folder / name for name in PREDICTIONS if (folder / name).is_file()]
    if len(files) != 1:
        raise BadEntry(f"{folder} needs one of {' and '.join(PREDICTIONS)}; it has {len(files)}.")
    read: Callable[[Path], pd.DataFrame] = (
        pd.read_csv if files[0].suffix == ".csv" else pd.read_parquet
    )
    try:
        table = read(files[0])
    except (OSError, ValueError) as error:
        raise BadEntry(f"Cannot read {files[0]}: {error}") from None
    table = table.assign(**{n: np.nan for n in ("low", "high") if n not in table})
    table = table.assign(**({} if "seed" in table else {"seed": 0}))
    missing = [name for name in COLUMNS if name not in table]
    if missing:
        raise BadEntry(
            f"{files[0]} lacks {', '.join(missing)}; it has {', '.join(map(str, table))}."
        )
    table["device"] = table["device"].astype(object).where(table["device"].notna(), "")
    try:
        table["seed"] = table["seed"].astype("int64")
        numbers = {n: table[n].astype("float64") for n in ("measured", "predicted", "low", "high")}
        return table.assign(**numbers, row=table["row"].astype("int64"))
    except (TypeError, ValueError) as error:
        raise BadEntry(f"{files[0]}: a cell is no number: {error}") from None
