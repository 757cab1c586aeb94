"""Load of other processes while something is measured, and waiting until there is less of it."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path("/")
BUSY_SHARE = 0.25
"""Share of the processors in use by others from which on a measurement counts as disturbed:
measured on two processors, where a neighbour on the other one slowed small networks by a tenth at
this share."""
STOLEN_SHARE = 0.03
"""Share of time stolen by a hypervisor from which on a measurement counts as disturbed."""
LOOK_S = 0.25


@dataclass(frozen=True, slots=True)
class Ticks:
    """Counts since the machine started, in ticks of all processors.

    Attributes:
        busy: ticks in which any process ran.
        stolen: ticks in which a hypervisor ran another guest while a process was ready.
        total: ticks of all kinds, idle ones included.
        own: ticks of this process and of children that it has waited for.
    """

    busy: float
    stolen: float
    total: float
    own: float


@dataclass(frozen=True, slots=True)
class OtherLoad:
    """What others took over an interval.

    Attributes:
        busy_share: share of all processors' time in use, without this process and its children.
        stolen_share: share of all processors' time taken by a hypervisor.
    """

    busy_share: float
    stolen_share: float

    @property
    def disturbs(self) -> bool:
        """Whether times measured in this interval are doubtful."""
        return self.busy_share > BUSY_SHARE or self.stolen_share > STOLEN_SHARE

    @classmethod
    def between(cls, before: Ticks, after: Ticks) -> "OtherLoad":
        """Load between two readings; zero shares where no time went by."""
        total = after.total - before.total
        if total <= 0:
            return cls(0.0, 0.0)
        others = (after.busy - before.busy) - (after.own - before.own)
        stolen = after.stolen - before.stolen
        return cls(max(0.0, others / total), max(0.0, stolen / total))


def read_ticks(root: Path = ROOT) -> Ticks | None:
    """A reading of /proc/stat; None where the system has none."""
    try:
        first = (root / "proc/stat").read_text().splitlines()[0].split()
        counts = [float(field) for field in first[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    if first[0] != "cpu" or len(counts) < 8:
        return None
    user, nice, system, idle, waiting, hard, soft, stolen = counts
    times = os.times()
    own = times.user + times.system + times.children_user + times.children_system
    busy = user + nice + system + hard + soft
    return Ticks(busy, stolen, busy + idle + waiting + stolen, own * os.sysconf("SC_CLK_TCK"))


@dataclass
class QuietWait:
    """Waits until other processes leave the processors idle, up to a limit in all.

    Attributes:
        left_s: seconds that may still be waited.
        waited_s: seconds waited so far.
        most_s: longest single wait, seconds.
        read: takes a reading; returns None where the system has none.
        sleep: waits for some seconds.
    """

    left_s: float = 20.0
    waited_s: float = 0.0
    most_s: float = 5.0
    read: Callable[[], Ticks | None] = read_ticks
    sleep: Callable[[float], None] = time.sleep

    def wait(self) -> OtherLoad | None:
        """Wait for a quiet quarter of a second; the last reading, None where there is none."""
        gone = 0.0
        while (before := self.read()) is not None:
            self.sleep(LOOK_S)
            after = self.read()
            if after is None:
                return None
            seen = OtherLoad.between(before, after)
            if not seen.disturbs or gone + LOOK_S > min(self.most_s, self.left_s):
                return seen
            gone += LOOK_S
            self.waited_s += LOOK_S
            self.left_s -= LOOK_S
        return None
