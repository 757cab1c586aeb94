"""Metrics of a host's virtual machines: `virsh domstats`, where libvirt runs.

Machines are numbered as they are first seen; their names are not kept.
"""

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from forerun.data.collectors.system.counters import Reading

SOCKET = "run/libvirt/libvirt-sock"
TOOL = "virsh"
COMMAND = ("--readonly", "domstats", "--raw", "--cpu-total", "--balloon", "--vcpu", "--interface")
LONGEST_S = 0.5
"""Seconds after which a reading is given up, so that the sampler's clock continues."""

NS = 1e-9
COUNTED = {
    r"cpu\.time": ("cpu_s", NS),
    r"cpu\.user": ("cpu_user_s", NS),
    r"cpu\.system": ("cpu_system_s", NS),
    r"vcpu\.\d+\.delay": ("vcpu_delay_s", NS),
    r"vcpu\.\d+\.wait": ("vcpu_wait_s", NS),
    r"net\.\d+\.rx\.bytes": ("net_rx_bytes", 1.0),
    r"net\.\d+\.rx\.pkts": ("net_rx_packets", 1.0),
    r"net\.\d+\.tx\.bytes": ("net_tx_bytes", 1.0),
    r"net\.\d+\.tx\.pkts": ("net_tx_packets", 1.0),
    r"block\.\d+\.rd\.reqs": ("disk_reads", 1.0),
    r"block\.\d+\.rd\.bytes": ("disk_read_bytes", 1.0),
    r"block\.\d+\.rd\.times": ("disk_read_s", NS),
    r"block\.\d+\.wr\.reqs": ("disk_writes", 1.0),
    r"block\.\d+\.wr\.bytes": ("disk_write_bytes", 1.0),
    r"block\.\d+\.wr\.times": ("disk_write_s", NS),
    r"block\.\d+\.fl\.reqs": ("disk_flushes", 1.0),
    r"block\.\d+\.fl\.times": ("disk_flush_s", NS),
}
"""Field -> counter and unit; those of several CPUs, interfaces and disks are added up."""

BALLOON = {
    "balloon.current": "memory_mib",
    "balloon.available": "memory_available_mib",
    "balloon.unused": "memory_unused_mib",
    "balloon.rss": "memory_resident_mib",
}
_COUNTED = {re.compile(pattern): known for pattern, known in COUNTED.items()}


@dataclass(frozen=True)
class Libvirt:
    """All machines of this host.

    Attributes:
        name: name of the source in `sources.json`.
        numbers: machine -> its number, in the order in which they were first seen.
    """

    name: str = "libvirt"
    numbers: dict[str, int] = field(default_factory=dict)

    def read(self, root: Path) -> Reading:
        """Output of virsh now, as a reading.

        Raises:
            OSError: libvirt does not run here, virsh is missing, refuses or is too slow.
        """
        if not (root / SOCKET).exists():
            raise FileNotFoundError(f"no /{SOCKET}")
        tool = shutil.which(TOOL)
        if tool is None:
            raise FileNotFoundError(f"no {TOOL}")
        try:
            done = subprocess.run(  # noqa: S603
                [tool, *COMMAND, "--block"],
                capture_output=True,
                text=True,
                timeout=LONGEST_S,
                check=True,
            )
        except subprocess.SubprocessError as error:
            raise OSError(f"{TOOL}: {type(error).__name__}") from error
        return machines(done.stdout, self.numbers)


def machines(text: str, numbers: dict[str, int]) -> Reading:
    """Values in the text of `virsh domstats --raw`; lines that are not understood are skipped.

    Args:
        text: what virsh printed.
        numbers: name -> number of machines seen before; new machines are added.
    """
    reading = Reading()
    for block in re.split(r"^Domain: ", text, flags=re.MULTILINE)[1:]:
        name, *lines = block.splitlines()
        prefix = f"libvirt.vm{numbers.setdefault(name, len(numbers))}"
        for line in lines:
            field, _, value = line.strip().partition("=")
            amount = _number(value)
            if amount is None:
                continue
            if field in BALLOON:
                reading.gauges[f"{prefix}.{BALLOON[field]}"] = amount / 1024
            for pattern, (counter, unit) in _COUNTED.items():
                if pattern.fullmatch(field):
                    key = f"{prefix}.{counter}"
                    reading.cumulative[key] = reading.cumulative.get(key, 0.0) + unit * amount
    return reading


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
