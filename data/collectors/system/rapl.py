"""Energy of a CPU from its RAPL counters, as Linux exposes them under /sys/class/powercap.

Counters of packages are summed; those of cores and graphics are parts of them and are left out;
memory (`dram`) is counted separately where present. A counter wraps at `max_energy_range_uj`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


@dataclass(frozen=True, slots=True)
class Domain:
    """One counter.

    Attributes:
        name: `package-0`, `dram`, ...
        counter: file with microjoules.
        range_uj: value after which it starts from 0.
    """

    name: str
    counter: Path
    range_uj: int

    def read_uj(self) -> int:
        """The counter now, microjoules.

        Raises:
            OSError, ValueError: it cannot be read.
        """
        return int(self.counter.read_text())


@dataclass(frozen=True, slots=True)
class Rapl:
    """The counters of one machine.

    Attributes:
        domains: counters whose sum is the machine's processors, with memory where it is counted.
        reason: why there are none; empty where there are.
    """

    domains: tuple[Domain, ...]
    reason: str = ""

    @classmethod
    def find(cls, root: Path = POWERCAP) -> "Rapl":
        """Counters under `root`, once each, as far as this process may read them."""
        if not root.is_dir():
            return cls((), f"no energy counters: no {root}")
        domains: dict[str, Domain] = {}
        # An MMIO tree repeats the packages of the register one, which goes first.
        found = sorted(root.glob("intel-rapl*:*"), key=lambda path: ("mmio" in path.name, path))
        for folder in found:
            domain = _domain(folder)
            if domain is not None and domain.name not in domains:
                domains[domain.name] = domain
        if not domains:
            return cls((), f"no energy counters: no RAPL package in {root}")
        for counted in domains.values():
            try:
                counted.read_uj()
            except (OSError, ValueError) as error:
                why = type(error).__name__
                return cls((), f"energy counters cannot be read ({why}): {counted.counter}")
        return cls(tuple(domains.values()))

    def snapshot(self) -> dict[str, int]:
        """All counters now, microjoules."""
        return {domain.name: domain.read_uj() for domain in self.domains}

    def joules(self, before: Mapping[str, int], after: Mapping[str, int]) -> float:
        """Energy between two snapshots less than one wraparound apart.

        A package at 300 W takes 15 minutes to wrap 262 kJ, the least range that is shipped.
        """
        total = 0
        for domain in self.domains:
            gone = after[domain.name] - before[domain.name]
            total += gone if gone >= 0 else gone + domain.range_uj
        return total / 1e6


def _domain(folder: Path) -> Domain | None:
    """The domain of a folder if it counts towards the sum."""
    try:
        name = (folder / "name").read_text().strip()
        range_uj = int((folder / "max_energy_range_uj").read_text())
    except (OSError, ValueError):
        return None
    kind = name.split("-")[0]
    if kind == "dram":
        # Each package has a `dram` of its own: the parent distinguishes them.
        parent = folder.name.split(":")[1]
        return Domain(f"dram-{parent}", folder / "energy_uj", range_uj)
    return Domain(name, folder / "energy_uj", range_uj) if kind == "package" else None
