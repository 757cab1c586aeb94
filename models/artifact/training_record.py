"""Record of predictors' training sets: digests of bundles and values of grouping keys."""

import gzip
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.measurements import NO_HOST, Measurements
from forerun.data.query import Query
from forerun.data.workload import Kernel, Network, phase_of

FILE = "training.json.gz"
FORMER_FILE = "training.json"


@dataclass(frozen=True, slots=True, order=True)
class Setting:
    """The categories in which training rows are counted.

    Attributes:
        device: name of the device.
        kind: kind of workload, such as `network` or `kernel`.
        metric: name of the measured metric.
        phase: `inference` or `training`; empty if the workload has none.
        precision: number format of the run; empty if the workload has none.
        runtime: how the operators are executed; empty if the workload has none.
    """

    device: str
    kind: str
    metric: str
    phase: str = ""
    precision: str = ""
    runtime: str = ""


WORDS: Final = len(fields(Setting))
Judged = tuple[float, float]
"""Number of held-out runs that were scored, and how many of them their intervals hold. Rows of one
run, such as repetitions or other batch sizes, count as one, in parts where some are inside."""
LEAST_COVERAGE: Final = 0.8
"""Share of measured values that intervals of grade A hold with `CONFIDENCE`: a level of 90 % is not
missed more than twice as often as it says."""
CONFIDENCE: Final = 0.95


@dataclass(frozen=True)
class TrainingRecord:
    """Training set of saved predictors, which lets evaluation leave out its rows.

    Attributes:
        digests: dataset -> digest of the bundle.
        keys: dataset -> grouping key -> values among the training rows.
        rows: dataset -> number of training rows, if recorded.
        medians: dataset -> metric -> median of the training rows, in the metric's unit, if
            recorded; the baseline for folders that nothing is fitted on.
        counts: dataset -> setting -> number of training rows with the metric measured, if recorded.
            Device times of runs that did not wait for a host are not counted as latencies.
        judged: dataset -> setting -> held-out runs on which complete answers were scored; empty for
            a dataset without scores, and without an entry where that was not recorded.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    keys: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    rows: Mapping[str, int] = field(default_factory=dict)
    medians: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    counts: Mapping[str, Mapping[Setting, int]] = field(default_factory=dict)
    judged: Mapping[str, Mapping[Setting, Judged]] = field(default_factory=dict)

    def knows(self, bundle: Bundle) -> bool:
        """Whether the training set comes from exactly this bundle, by its digest."""
        return self.digests.get(bundle.name) == bundle.digest

    def seen(self, dataset: str) -> Mapping[str, Sequence[str]]:
        """Grouping key -> values among the training rows; empty for other datasets."""
        return self.keys.get(dataset, {})

    def rows_on_any_device(self, setting: Setting) -> int:
        """Number of training rows in a setting, on any device."""
        return self._of_any_device[replace(setting, device="")]

    def runs_judged(self, setting: Setting) -> Judged:
        """Scored held-out runs in a setting, over all datasets."""
        found = [counted.get(setting, (0, 0.0)) for counted in self.judged.values()]
        return sum(runs for runs, _ in found), sum(held for _, held in found)

    def is_covered(self, setting: Setting) -> bool:
        """Whether the coverage of intervals in a setting is known to be `LEAST_COVERAGE` or more.

        It is the lower confidence bound of a binomial share (Clopper and Pearson 1934): 14 runs are
        enough where all are inside, and 50 at 90 %.
        """
        from scipy.special import betaincinv

        runs, held = self.runs_judged(setting)
        return bool(betaincinv(held, runs - held + 1.0, 1.0 - CONFIDENCE) >= LEAST_COVERAGE)

    def unjudged(self, fewest: int) -> dict[Setting, Judged]:
        """Settings with at least `fewest` training rows that are not covered -> their runs."""
        trained = {
            setting
            for dataset in self.judged
            for setting, rows in self.counts.get(dataset, {}).items()
            if rows >= fewest
        }
        return {own: self.runs_judged(own) for own in sorted(trained) if not self.is_covered(own)}

    @cached_property
    def _of_any_device(self) -> Counter[Setting]:
        total: Counter[Setting] = Counter()
        for counted in self.counts.values():
            for setting, rows in counted.items():
                total[replace(setting, device="")] += rows
        return total

    def with_rows(
        self, bundle: Bundle, rows: Measurements, *, part: bool = False
    ) -> "TrainingRecord":
        """A copy that also records the training rows of a bundle.

        Records of other parts of the same bundle are kept, since each part trains its own
        predictor. A row may be in several parts, so a setting keeps its largest count over them.
        The result does not depend on the order of the parts.

        Args:
            bundle: the bundle; records of another bundle with its name are replaced.
            rows: training rows of it.
            part: whether they are only a part of its training rows, which leaves the number and the
                medians of other parts in place.
        """
        name = bundle.name
        record = self if self.knows(bundle) else TrainingRecord()
        keys = {key: set(values) for key, values in record.seen(name).items()}
        for key, values in rows.groups.items():
            keys.setdefault(key, set()).update(map(str, values))
        counts = Counter(record.counts.get(name, {})) | Counter(_counts(rows))
        kept = part and name in record.rows
        return TrainingRecord(
            {**self.digests, name: bundle.digest},
            {**self.keys, name: {key: sorted(values) for key, values in keys.items()}},
            {**self.rows, name: record.rows[name] if kept else len(rows)},
            {**self.medians, name: record.medians[name] if kept else _medians(rows)},
            {**self.counts, name: dict(counts)},
            self.judged,
        )

    def write(self, folder: Path) -> None:
        """Write `training.json.gz` into a predictor's folder."""
        content: dict[str, Any] = {
            "digests": dict(self.digests),
            "keys": dict(self.keys),
            "rows": dict(self.rows),
            "medians": {name: dict(values) for name, values in self.medians.items()},
            "counts": _listed(self.counts),
            "judged": _listed(self.judged),
        }
        text = json.dumps(content, sort_keys=True) + "\n"
        (folder / FILE).write_bytes(gzip.compress(text.encode(), mtime=0))

    @classmethod
    def read(cls, folder: Path) -> "TrainingRecord":
        """The record in a predictor's folder; an empty record if there is none."""
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
            *(
                {
                    name: {Setting(*own[:WORDS]): figures(own[WORDS:]) for own in counted}
                    for name, counted in content.get(part, {}).items()
                }
                # Earlier releases say how many rows were judged, and not how many were inside.
                for part, figures in (("counts", itemgetter(0)), ("judged", itemgetter(0, -1)))
            ),
        )


def _listed(counts: Mapping[str, Mapping[Setting, Any]]) -> dict[str, list[list[Any]]]:
    return {
        name: [[*astuple(key), *np.ravel(own).tolist()] for key, own in sorted(counted.items())]
        for name, counted in counts.items()
    }


def _medians(rows: Measurements) -> dict[str, float]:
    finite = {name: column[np.isfinite(column)] for name, column in rows.values.items()}
    return {name: float(np.median(column)) for name, column in finite.items() if len(column)}


def _counts(rows: Measurements) -> dict[Setting, int]:
    counted: Counter[Setting] = Counter()
    launched = rows.groups.get("host", np.full(len(rows), "")) != NO_HOST
    for name, column in rows.values.items():
        for row in np.flatnonzero(np.isfinite(column) & (launched | (name != "latency_ms"))):
            counted[setting_of(rows.queries[int(row)], name)] += 1
    return dict(counted)


def setting_of(query: Query, metric: str) -> Setting:
    """The setting under which a row of a query and a metric is counted."""
    device, workload = query.device.name, query.workload
    if isinstance(workload, Kernel | Network):
        run = (phase_of(workload), workload.precision, query.software.runtime)
        return Setting(device, workload.kind, metric, *run)
    return Setting(device, workload.kind, metric)
