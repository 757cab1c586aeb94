"""Record of the training set of predictors: digests of bundles and values of grouping keys."""

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.measurements import Measurements

FILE = "training.json.gz"
FORMER_FILE = "training.json"


@dataclass(frozen=True)
class TrainingRecord:
    """Stored with saved predictors, so that evaluation can leave out rows of their training set.

    Attributes:
        digests: dataset -> digest of the bundle.
        keys: dataset -> grouping key -> values among the training rows.
        rows: dataset -> number of training rows, where it was recorded.
        medians: dataset -> metric -> median of the training rows, in the metric's unit, where it
            was recorded; the baseline for folders that nothing is fitted on.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    medians: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def knows(self, bundle: Bundle) -> bool:
        """True when the training set comes from exactly this bundle, by its digest."""
        return self.digests.get(bundle.name) == bundle.digest

    def seen(self, dataset: str) -> Mapping[str, Sequence[str]]:
        """Grouping key -> values among the training rows; empty for a dataset not trained on."""
        return self.keys.get(dataset, {})

    def with_rows(self, bundle: Bundle, rows: Measurements) -> "TrainingRecord":
        """A copy of the record with the training rows of one more bundle."""
        keys = {key: sorted(set(map(str, values))) for key, values in rows.groups.items()}
        return TrainingRecord(
            {**self.digests, bundle.name: bundle.digest},
            {**self.keys, bundle.name: keys},
            {**self.rows, bundle.name: len(rows)},
            {**self.medians, bundle.name: _medians(rows)},
        )

    def write(self, folder: Path) -> None:
        """Write `training.json.gz` into a predictor's folder."""
        content: dict[str, Any] = {
            "digests": dict(self.digests),
            "keys": dict(self.keys),
            "rows": dict(self.rows),
            "medians": {name: dict(values) for name, values in self.medians.items()},
        }
        text = json.dumps(content, sort_keys=True) + "\n"
        (folder / FILE).write_bytes(gzip.compress(text.encode(), mtime=0))

    @classmethod
    def read(cls, folder: Path) -> "TrainingRecord":
        """The record in a predictor's folder; an empty record where there is none."""
        if (folder / FILE).is_file():
            content = json.loads(gzip.decompress((folder / FILE).read_bytes()))
        elif (folder / FORMER_FILE).is_file():
            content = json.loads((folder / FORMER_FILE).read_text())
        else:
            return cls()
        return cls(
            content["digests"],
            content["keys"],
            content.get("rows", {}),
            content.get("medians", {}),
        )


def _medians(rows: Measurements) -> dict[str, float]:
    finite = {name: column[np.isfinite(column)] for name, column in rows.values.items()}
    return {name: float(np.median(column)) for name, column in finite.items() if len(column)}
