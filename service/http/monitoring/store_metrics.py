"""How full the stores are: records, their bytes, and the room that is left."""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from prometheus_client.core import GaugeMetricFamily, Metric

from forerun.data.file_store import SUFFIX
from forerun.service.adaptation.predictor_in_use import FOLDER
from forerun.service.settings import Settings
from forerun.service.stores.database.place import TENANTS
from forerun.service.stores.devices import MOST_DEVICES
from forerun.service.stores.measurement_sets import MOST_SETS, OBSERVED
from forerun.service.stores.places import database_of

LABEL: Final = "store"
PATHS: Final = {
    "graphs": "graphs",
    "devices": "devices",
    "measurements": FOLDER,
    "measured graphs": f"{FOLDER}/graphs",
    "observations": f"{FOLDER}/{OBSERVED}",
}
"""Store -> its path below FORERUN_HOME or the place of a tenant, or in the database."""


class StoreSizes:
    """Sizes of the stores; a folder is read again only where it changed.

    Args:
        settings: where the stores are, and what they may hold.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sized: dict[Path, tuple[int, int, int]] = {}
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
        records = GaugeMetricFamily("forerun_store_records", "Records in a store", labels=(LABEL,))
        limits = GaugeMetricFamily(
            "forerun_store_records_limit", "Records that a store may hold", labels=(LABEL,)
        )
        size = GaugeMetricFamily("forerun_store_bytes", "Bytes of all records", labels=(LABEL,))
        database, tenant = database_of(self._settings), self._settings.tenant
        before = "" if tenant is None else f"{TENANTS}/{tenant}/"
        of_path = None if database is None else database.sizes()
        for store, path in PATHS.items():
            named = before + path
            own = self._in_folder(named) if of_path is None else of_path.get(named, (0, 0))
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

    def _in_folder(self, path: str) -> tuple[int, int]:
        """Number of records in a folder, and their bytes."""
        folder = self._settings.home / path
        try:
            changed_ns = folder.stat().st_mtime_ns
            found = self._sized.get(folder)
            if found is None or found[0] != changed_ns:
                with os.scandir(folder) as files:
                    sizes = [one.stat().st_size for one in files if one.name.endswith(SUFFIX)]
                found = self._sized[folder] = changed_ns, len(sizes), sum(sizes)
        except OSError:
            return 0, 0
        return found[1], found[2]
