"""Hardware counters of every CPU through perf_event_open(2); rarely available inside a guest."""

import ctypes
import os
import platform
import struct
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from forerun.data.collectors.system.counters import Reading

NUMBERS: Final[Mapping[str, int]] = {"x86_64": 298, "aarch64": 241}
"""Architecture -> number of the system call."""

HARDWARE: Final = 0
SOFTWARE: Final = 1
EVENTS: Final[Mapping[str, tuple[int, int]]] = {
    "cycles": (HARDWARE, 0),
    "instructions": (HARDWARE, 1),
    "cache_references": (HARDWARE, 2),
    "cache_misses": (HARDWARE, 3),
}
"""Counter -> type and number of the kernel's generic event (linux/perf_event.h). Four, because more
would take turns on the counters that there are."""

ATTRIBUTES: Final = struct.Struct("=IIQQQQQIIQ")
"""The first published version of struct perf_event_attr: type, size, config, period, sample type,
read format, flags, wakeup, breakpoint type, config1."""

READ_FORMAT: Final = 3
"""Each reading also holds the times for which the event was enabled and was counted, ns."""

COUNTED: Final = struct.Struct("=QQQ")
CLOSE_ON_EXEC: Final = 8
EVERY_PROCESS: Final = -1
NO_GROUP: Final = -1


@dataclass(frozen=True)
class PerfCounters:
    """Open counters.

    Attributes:
        files: (CPU, event) -> file descriptor.
        name: name of the source in `sources.json`.
        totals: (CPU, event) -> the last reading of the file, and events so far.
    """

    files: Mapping[tuple[int, str], int]
    name: str = "perf hardware counters"
    totals: dict[tuple[int, str], tuple[int, int, int, float]] = field(default_factory=dict)

    def read(self, root: Path) -> Reading:
        """Events so far by CPU, scaled up for the time in which other events were counted.

        Raises:
            OSError: a counter cannot be read any more.
        """
        reading = Reading()
        for key, file in self.files.items():
            read = COUNTED.unpack(os.read(file, COUNTED.size))
            *before, total = self.totals.get(key, (0, 0, 0, 0.0))
            events, wanted_ns, counted_ns = (int(b - a) for a, b in zip(before, read, strict=True))
            if counted_ns > 0:
                total += events * (wanted_ns / counted_ns)
                self.totals[key] = (*read, total)
            if key in self.totals:
                reading.cumulative[f"perf.cpu{key[0]}.{key[1]}"] = total
        return reading


@contextmanager
def perf_counters(
    cpus: Sequence[int], events: Mapping[str, tuple[int, int]] = EVENTS
) -> Iterator[PerfCounters]:
    """Counters of all processes on some CPUs, closed when the block is left.

    Args:
        cpus: their numbers.
        events: counter -> type and number.

    Raises:
        OSError: the machine has no such counters, or this process may not read them.
    """
    with ExitStack() as stack:
        files = {}
        for cpu in cpus:
            for event, (kind, number) in events.items():
                files[cpu, event] = file = _opened(cpu, kind, number)
                stack.callback(os.close, file)
        yield PerfCounters(files)


def _opened(cpu: int, kind: int, number: int) -> int:
    call = NUMBERS.get(platform.machine())
    if call is None or platform.system() != "Linux":
        raise OSError(f"no perf_event_open known on {platform.system()} {platform.machine()}")
    wanted = ATTRIBUTES.pack(kind, ATTRIBUTES.size, number, 0, 0, READ_FORMAT, 0, 0, 0, 0)
    libc = ctypes.CDLL(None, use_errno=True)
    found = libc.syscall(
        ctypes.c_long(call),
        ctypes.c_char_p(wanted),
        ctypes.c_int(EVERY_PROCESS),
        ctypes.c_int(cpu),
        ctypes.c_int(NO_GROUP),
        ctypes.c_ulong(CLOSE_ON_EXEC),
    )
    if found < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return int(found)
