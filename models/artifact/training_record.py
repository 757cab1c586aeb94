"""Record of the training set of predictors: digests of bundles and values of grouping keys."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network, phase_of

FILE = "training.json.gz"
FORMER_FILE = "training.json"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """What training rows are counted by.

    Attributes:
        device: name of the device.
        kind: kind of workload, such as `network` or `kernel`.
        metric: name of the metric that was measured.
        phase: `inference` or `training`; empty where the workload has none.
        precision: number format of the run; empty likewise.
        runtime: how the operators are executed; empty likewise.
    """

    device: str
    kind: str
    metric: str
    phase: str = ""
    precision: str = ""
    runtime: str = ""


@dataclass(frozen=True)
class TrainingRecord:
    """Stored with saved predictors, so that evaluation can leave out rows of their training set.

    Attributes:
        digests: dataset -> digest of the bundle.
        keys: dataset -> grouping key -> values among the training rows.
        rows: dataset -> number of training rows, where it was recorded.
        medians: dataset -> metric -> median of the training rows, in the metric's unit, where it
            was recorded; the baseline for folders that nothing is fitted on.
        counts: dataset -> setting -> number of training rows in which its metric was measured,
            where it was recorded.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    medians: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[Setting, int]] = field(default_factory=dict)

    def knows(self, bundle: Bundle) -> bool:
        """True when the training set comes from exactly this bundle, by its digest."""
        return self.digests.get(bundle.name) == bundle.digest

    def seen(self, dataset: str) -> Mapping[str, Sequence[str]]:
        """Grouping key -> values among the training rows; empty for a dataset not trained on."""
        return self.keys.get(dataset, {})

    def rows_on_any_device(self, setting: Setting) -> int:
        """Number of training rows in a setting but for its device."""
        return self._of_any_device[replace(setting, device="")]

    @cached_property
    def _of_any_device(self) -> Counter[Setting]:
        total: Counter[Setting] = Counter()
        for counted in self.counts.values():
            for setting, rows in counted.items():
                total[replace(setting, device="")] += rows
        return total

    def with_rows(self, bundle: Bundle, rows: Measurements) -> "TrainingRecord":
        """A copy of the record with the training rows of one more bundle."""
        keys = {key: sorted(set(map(str, values))) for key, values in rows.groups.items()}
        return TrainingRecord(
            {**self.digests, bundle.name: bundle.digest},
            {**self.keys, bundle.name: keys},
            {**self.rows, bundle.name: len(rows)},
            {**self.medians, bundle.name: _medians(rows)},
            {**self.counts, bundle.name: _counts(rows)},
        )

    def with_keys_of(self, bundle: Bundle, rows: Measurements) -> "TrainingRecord":
        """A copy that also knows the grouping keys of a further part of a bundle.

        Args:
            bundle: the bundle, of which other rows are in the record.
            rows: training rows of one part of it.
        """
        keys = {name: sorted(values) for name, values in self.seen(bundle.name).items()}
        for name, values in rows.groups.items():
            keys[name] = sorted({*keys.get(name, ()), *map(str, values)})
        return replace(self, keys={**self.keys, bundle.name: keys})

    def write(self, folder: Path) -> None:
        """Write `training.json.gz` into a predictor's folder."""
        content: dict[str, Any] = {
            "digests": dict(self.digests),
            "keys": dict(self.keys),
            "rows": dict(self.rows),
            "medians": {name: dict(values) for name, values in self.medians.items()},
            "counts": {
                name: [[*astuple(setting), rows] for setting, rows in sorted(counted.items())]
                for name, counted in self.counts.items()
            },
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
            {
                name: {Setting(*words): rows for *words, rows in counted}
                for name, counted in content.get("counts", {}).items()
            },
        )


def _medians(rows: Measurements) -> dict[str, float]:
    finite = {name: column[np.isfinite(column)] for name, column in rows.values.items()}
    return {name: float(np.median(column)) for name, column in finite.items() if len(column)}


def _counts(rows: Measurements) -> dict[Setting, int]:
    counted: Counter[Setting] = Counter()
    for name, column in rows.values.items():
        for row in np.flatnonzero(np.isfinite(column)):
            counted[setting_of(rows.queries[int(row)], name)] += 1
    return dict(counted)


def setting_of(query: Query, metric: str) -> Setting:
    """The setting that a row of a query and a metric is counted under."""
    device, workload = query.device.name, query.workload
    if isinstance(workload, Kernel | Network):
        run = (phase_of(workload), workload.precision, query.software.runtime)
        return Setting(device, workload.kind, metric, *run)
    return Setting(device, workload.kind, metric)
