"""Tables of one design: its cells, nets and delays, with one column for each seed of the placer.

`nodes`: cells with their places. `arcs`: connections, with their delays before and after routing.
`paths`: delays through cells and setup times, which depend on no seed. `runs`: one row per seed.
Delays are read from files in the Standard Delay Format, as nextpnr writes them.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.circuits.cells import KIND_OF_TYPE
from forerun.data.collectors.circuits.tools import CircuitFailed, Design, Placed
from forerun.data.lazy import pd

Pin = tuple[str, str]
"""Name of a cell, and of one of its ports."""
_PS: Final = r"\((\d+):\d+:\d+\)"
_NET: Final = re.compile(rf"\(INTERCONNECT (\S+)/(\S+) (\S+)/(\S+) {_PS}")
_INSTANCE: Final = re.compile(r"\(INSTANCE (\S*?)\)$")
_TYPE: Final = re.compile(r'\(CELLTYPE "(.*)"\)')
_IOPATH: Final = re.compile(rf"\(IOPATH (?:\((?:pos|neg)edge )?(\w+)\)? (\w+) {_PS} {_PS}")
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
                elif match := _IOPATH.match(text):
                    into, out, rise, fall = match.groups()
                    found.paths[cell, into, out] = max(int(rise), int(fall))
                elif match := _SETUP.match(text):
                    into, clock, ps = match.groups()
                    found.setups[cell, into, clock] = int(ps)
        return found


def _plain(name: str) -> str:
    return _ESCAPE.sub(r"\1", name)


USED: Final[Mapping[str, str]] = {
    "ICESTORM_LC": "logic_cells",
    "SB_IO": "ports",
    "SB_GB": "globals",
    "ICESTORM_RAM": "memories",
}
_PLACE: Final = re.compile(r"X(\d+)/Y(\d+)/[a-z]+(\d*)")


def tables_of(
    design: Design, statistics: Mapping[str, int], runs: Mapping[int, Placed]
) -> dict[str, "pd.DataFrame"]:
    """The tables of a design, by name.

    Args:
        design: the design.
        statistics: type of a cell before mapping -> number.
        runs: seed -> its placement.

    Raises:
        CircuitFailed: placements with two seeds have other cells or connections.
    """
    delays = {
        kind: {seed: Delays.read(getattr(run, kind)) for seed, run in runs.items()}
        for kind in ("routed", "estimated")
    }
    first = delays["routed"][next(iter(runs))]
    for each in (one for kind in delays.values() for one in kind.values()):
        if each.nets.keys() != first.nets.keys() or each.paths != first.paths:
            raise CircuitFailed("The cells depend on the seed.")
    names = sorted(first.kinds)
    number = {name: position for position, name in enumerate(names)}
    frames = {
        "nodes": _nodes(first, names, runs),
        "arcs": _arcs(first, number, delays),
        "paths": _paths(first, number),
        "runs": _runs(design, runs),
        "words": pd.DataFrame(
            {"word": list(statistics), "count": np.array(list(statistics.values()), np.int32)}
        ),
    }
    for frame in frames.values():
        frame.insert(0, "design", design.name)
    return frames


def _nodes(delays: Delays, names: Sequence[str], runs: Mapping[int, Placed]) -> "pd.DataFrame":

    columns: dict[str, Any] = {
        "node": np.arange(len(names), dtype=np.int32),
        "kind": [KIND_OF_TYPE.get(delays.kinds[name], "other") for name in names],
    }
    for seed, run in runs.items():
        places = _places(run.netlist)
        at = np.array([places.get(name, (-1, -1, -1)) for name in names], dtype=np.int8)
        columns |= {f"{axis}_{seed}": at[:, column] for column, axis in enumerate("xyz")}
    return pd.DataFrame(columns)


def _places(netlist: Mapping[str, Any]) -> dict[str, tuple[int, int, int]]:
    """Cell -> column, row, and number within the tile of its place."""
    found = {}
    for module in netlist["modules"].values():
        for name, cell in module["cells"].items():
            match = _PLACE.match(str(cell["attributes"].get("NEXTPNR_BEL", "")))
            if match:
                column, row, own = match.groups()
                found[name] = int(column), int(row), int(own or 0)
    return found


def _arcs(
    first: Delays, number: Mapping[str, int], delays: Mapping[str, Mapping[int, Delays]]
) -> "pd.DataFrame":

    keys = sorted(first.nets, key=lambda arc: (number[arc[0][0]], arc[0][1], arc[1]))
    columns: dict[str, Any] = {
        "source": np.array([number[source] for (source, _), _ in keys], dtype=np.int32),
        "source_port": [port for (_, port), _ in keys],
        "sink": np.array([number[sink] for _, (sink, _) in keys], dtype=np.int32),
        "sink_port": [port for _, (_, port) in keys],
    }
    for kind, by_seed in delays.items():
        for seed, own in by_seed.items():
            columns[f"{kind}_{seed}_ps"] = np.array([own.nets[key] for key in keys], np.int32)
    return pd.DataFrame(columns)


def _paths(delays: Delays, number: Mapping[str, int]) -> "pd.DataFrame":

    rows = [(number[cell], *ports, "delay", ps) for (cell, *ports), ps in delays.paths.items()]
    rows += [(number[cell], *ports, "setup", ps) for (cell, *ports), ps in delays.setups.items()]
    frame = pd.DataFrame(sorted(rows), columns=["node", "from_port", "to_port", "kind", "ps"])
    return frame.astype({"node": np.int32, "ps": np.int32})


def _runs(design: Design, runs: Mapping[int, Placed]) -> "pd.DataFrame":

    rows = []
    for seed, run in runs.items():
        clocks = [own["achieved"] for own in run.report["fmax"].values()]
        used = {USED[k]: own["used"] for k, own in run.report["utilization"].items() if k in USED}
        rows.append(
            {
                "family": design.family,
                "module": design.module,
                "parameters": " ".join(f"{k}={v}" for k, v in design.parameters.items()),
                "seed": seed,
                "clocks": len(clocks),
                "fmax_mhz": clocks[0] if len(clocks) == 1 else float("nan"),
                **used,
                "seconds": round(run.seconds, 3),
            }
        )
    return pd.DataFrame(rows)
