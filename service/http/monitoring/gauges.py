"""Metrics that are read when they are asked for: live errors, processes, sizes of the stores."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector

from forerun.service.adaptation.predictor_in_use import FOLDER
from forerun.service.http import shared_folder
from forerun.service.schemas.measurements import DriftOut, SliceOut
from forerun.service.settings import Settings
from forerun.service.stores.devices import MOST_DEVICES
from forerun.service.stores.measurement_sets import MOST_SETS, OBSERVED
from forerun.service.stores.places import place_of

MOST_SLICES: Final = 200
"""Slices that are exported, those of the most observations; each has a value in every metric."""
LABELS: Final = ("metric", "device", "version", "kind", "family", "precision")
_VALUES: Final[Mapping[str, tuple[str, Callable[[SliceOut], float | None]]]] = {
    "forerun_live_observations": (
        "Observations with which the answers of now are compared",
        lambda own: own.live.rows,
    ),
    "forerun_live_error_ratio": (
        "Mean absolute error of answers over the measured value",
        lambda own: own.live.mape / 100,
    ),
    "forerun_live_bias": (
        "Median of log(measured / answered)",
        lambda own: own.live.bias,
    ),
    "forerun_live_coverage_ratio": (
        "Share of measured values inside their 90 % interval",
        lambda own: None if own.live.coverage_90 is None else own.live.coverage_90 / 100,
    ),
    "forerun_drift_alarm": (
        "Whether measured over answered has changed and is not back",
        lambda own: float(own.alarm),
    ),
}


def metrics_of(report: DriftOut) -> Iterator[Metric]:
    """The metrics of a report, of `MOST_SLICES` slices; labels are empty for all of a property."""
    slices = sorted(report.slices, key=lambda own: -own.rows)[:MOST_SLICES]
    if not slices:
        return
    for name, (described, value_of) in _VALUES.items():
        family = GaugeMetricFamily(name, described, labels=LABELS)
        for own in slices:
            value = value_of(own)
            if value is not None:
                family.add_metric([getattr(own, label) or "" for label in LABELS], value)
        yield family


PROC: Final = Path("/proc")
PID: Final = "pid"


def process_metrics() -> Iterator[Metric]:
    """`process_*` of Prometheus, by process id; nothing where the system has no /proc.

    Sums over `pid` are those of the service; a process that is replaced begins at zero.
    """
    families: dict[str, Metric] = {}
    for pid in _pids():
        for found in ProcessCollector(pid=lambda pid=pid: pid, registry=None).collect():  # type: ignore[misc]
            made = CounterMetricFamily if found.type == "counter" else GaugeMetricFamily
            family = families.setdefault(
                found.name, made(found.name, found.documentation, labels=(PID,))
            )
            for sample in found.samples:
                family.add_sample(sample.name, {PID: str(pid)}, sample.value)
    yield from families.values()


def _pids() -> list[int]:
    """Process ids of the service: this one alone, or the parent of all workers and its children."""
    if shared_folder.in_use() is None:
        return [os.getpid()]
    parent = os.getppid()
    try:
        children = (PROC / f"{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return [os.getpid()]
    return [parent, *map(int, children)]


STORE: Final = "store"
PATHS: Final = {
    "graphs": "graphs",
    "devices": "devices",
    "measurements": FOLDER,
    "measured graphs": f"{FOLDER}/graphs",
    "observations": f"{FOLDER}/{OBSERVED}",
}
"""Store -> its path below the place of the service or of a tenant."""


class StoreSizes:
    """Sizes of the stores.

    Args:
        settings: where the stores are, and what they may hold.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._limits = {
            "graphs": settings.graphs_kept,
            "devices": MOST_DEVICES,
            "measurements": MOST_SETS,
            "measured graphs": settings.graphs_kept,
        }

    def metrics(self) -> Iterator[Metric]:
        """Records, bytes and limits by store, and the free bytes of the disk.

        Raises:
            CannotStore: the database does not answer.
        """
        records = GaugeMetricFamily("forerun_store_records", "Records in a store", labels=(STORE,))
        limits = GaugeMetricFamily(
            "forerun_store_records_limit", "Records that a store may hold", labels=(STORE,)
        )
        size = GaugeMetricFamily("forerun_store_bytes", "Bytes of all records", labels=(STORE,))
        place = place_of(self._settings)
        of_path = {} if place.is_empty() else place.database.sizes()
        for store, path in PATHS.items():
            own = of_path.get((place / path).path, (0, 0))
            records.add_metric((store,), own[0])
            if store in self._limits:  # of observations the oldest leave
                limits.add_metric((store,), self._limits[store])
            size.add_metric((store,), own[1])
        yield from (records, limits, size)
        with suppress(OSError):
            yield GaugeMetricFamily(
                "forerun_home_free_bytes",
                "Free bytes on the disk of FORERUN_HOME",
                shutil.disk_usage(self._settings.home).free,
            )
