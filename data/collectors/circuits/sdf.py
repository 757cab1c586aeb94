"""Delays of a circuit in the Standard Delay Format, as nextpnr writes it."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

Pin = tuple[str, str]
"""Name of a cell, and of one of its ports."""
_PS: Final = r"\((\d+):\d+:\d+\)"
_NET: Final = re.compile(rf"\(INTERCONNECT (\S+)/(\S+) (\S+)/(\S+) {_PS}")
_INSTANCE: Final = re.compile(r"\(INSTANCE (\S*?)\)$")
_TYPE: Final = re.compile(r'\(CELLTYPE "(.*)"\)')
_PATH: Final = re.compile(rf"\(IOPATH (?:\((?:pos|neg)edge )?(\w+)\)? (\w+) {_PS} {_PS}")
_SETUP: Final = re.compile(rf"\(SETUPHOLD \(posedge (\w+)\) \(\w+ (\w+)\) {_PS}")
_ESCAPE: Final = re.compile(r"\\(.)")


@dataclass
class Delays:
    """Delays of a circuit, picoseconds.

    Attributes:
        kinds: cell -> its type.
        nets: (source, sink) -> delay of the connection.
        paths: (cell, input, output) -> delay through the cell.
        setups: (cell, input, clock) -> time before the clock's edge.
    """

    kinds: dict[str, str] = field(default_factory=dict)
    nets: dict[tuple[Pin, Pin], int] = field(default_factory=dict)
    paths: dict[tuple[str, str, str], int] = field(default_factory=dict)
    setups: dict[tuple[str, str, str], int] = field(default_factory=dict)

    @classmethod
    def read(cls, path: Path) -> "Delays":
        """The delays of a file; of a rising and a falling edge, the longer one."""
        found, cell, kind = cls(), "", ""
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                text = line.strip()
                if match := _NET.match(text):
                    a, out, b, into, ps = match.groups()
                    found.nets[(_plain(a), out), (_plain(b), into)] = int(ps)
                elif match := _TYPE.match(text):
                    kind = match.group(1)
                elif match := _INSTANCE.match(text):
                    cell = _plain(match.group(1))
                    if cell:
                        found.kinds[cell] = kind
                elif match := _PATH.match(text):
                    into, out, rise, fall = match.groups()
                    found.paths[cell, into, out] = max(int(rise), int(fall))
                elif match := _SETUP.match(text):
                    into, clock, ps = match.groups()
                    found.setups[cell, into, clock] = int(ps)
        return found


def _plain(name: str) -> str:
    return _ESCAPE.sub(r"\1", name)
