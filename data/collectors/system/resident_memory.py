"""Resident memory of this process as the operating system counts it."""

import ctypes
import gc
import re
import sys
from contextlib import suppress
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"


def resident_mib() -> float | None:
    """Resident memory of this process now, MiB; None where the system does not report it."""
    return _field("VmRSS")


def peak_mib() -> float | None:
    """Peak of resident memory since the start or since `forget_peak`, MiB."""
    found = _field("VmHWM")
    if found is not None or sys.platform == "win32":
        return found
    import resource

    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / 2**20 if sys.platform == "darwin" else most / 2**10


def forget_peak() -> bool:
    """Return free memory and reset the peak; whether the system allows it."""
    gc.collect()
    # Only glibc has this function.
    with suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    try:
        CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _field(name: str) -> float | None:
    try:
        found = re.search(rf"^{name}:\s+(\d+) kB$", STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) / 1024 if found else None
