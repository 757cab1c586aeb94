"""Hardware monitoring of last-level cache and memory bandwidth: /sys/fs/resctrl.

Rarely available inside a guest. Values are for each L3 cache, over all tasks without a group of
their own.
"""

from dataclasses import dataclass
from pathlib import Path

from forerun.data.collectors.system.counters import Reading

FOLDER = "sys/fs/resctrl/mon_data"
COUNTED = ("mbm_total_bytes", "mbm_local_bytes")
OCCUPANCY = "llc_occupancy"


@dataclass(frozen=True)
class Resctrl:
    """The monitor of the root group.

    Attributes:
        name: name of the source in `sources.json`.
    """

    name: str = "resctrl"

    def read(self, root: Path) -> Reading:
        """Bytes moved so far, and MiB that are held, by cache.

        Raises:
            OSError: there is no resctrl, or it may not be read.
        """
        reading = Reading()
        for cache in sorted((root / FOLDER).iterdir()):
            domain, _, number = cache.name.removeprefix("mon_").rpartition("_")
            if domain != "L3":
                continue
            prefix = f"resctrl.l3_{int(number)}"
            for event in COUNTED:
                value = _number(cache / event)
                if value is not None:
                    reading.cumulative[f"{prefix}.{event}"] = value
            held = _number(cache / OCCUPANCY)
            if held is not None:
                reading.gauges[f"{prefix}.{OCCUPANCY}_mib"] = held / 2**20
        return reading


def _number(path: Path) -> float | None:
    """None where it is not there, or says `Unavailable` or `Error`."""
    try:
        return float(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
