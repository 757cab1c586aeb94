"""A collection of circuits in a folder: each design is made once, and a resumed run goes on.

Tables of a design have one column for each seed of the placer. `nodes`: cells with their
places. `arcs`: connections, with their delays before and after routing. `paths`: delays through
cells and setup times, which depend on no seed. `runs`: one row per seed. Delays are read
from files in the Standard Delay Format, as nextpnr writes them.
"""

import json
import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.circuits.cells import KIND_OF_TYPE
from forerun.data.collectors.circuits import tools
from forerun.data.collectors.circuits.tools import STANDARD, CircuitFailed, Design, Placed, Plan
from forerun.data.collectors.runner.journal import LineJournal
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


TABLES: Final = ("runs", "words", "nodes", "arcs", "paths")
_ZSTD_LEVEL: Final = 12


@dataclass(frozen=True)
class Made:
    """What became of a design.

    Attributes:
        design: its name.
        problem: why there is no circuit of it; None where there is one.
    """

    design: str
    problem: str | None = None


@dataclass(frozen=True)
class Collection:
    """A plan and the folder in which it is carried out.

    Attributes:
        plan: designs and seeds.
        folder: one folder for each design that is done, and the tables of all.
    """

    plan: Plan
    folder: Path

    @classmethod
    def open(cls, folder: Path, plan: Path = STANDARD) -> "Collection":
        """The collection of a plan in a folder, new or resumed.

        Raises:
            BadTable: the plan cannot be used.
            MissingTool: yosys or nextpnr-ice40 is not installed.
        """
        tools.check()
        return cls(Plan.read(plan), folder)

    @property
    def failures(self) -> LineJournal:
        """Designs of which no circuit could be made, with the reason."""
        return LineJournal(self.folder / "failures.jsonl")

    def todo(self) -> list[Design]:
        """Designs that are neither done nor failed, in the order of the plan."""
        failed = {str(row["design"]) for row in self.failures.rows()}
        return [
            design
            for design in self.plan.designs
            if design.name not in failed and not self._at(design).is_dir()
        ]

    def run(self, *, jobs: int = 1, budget_minutes: float | None = None) -> Iterator[Made]:
        """Make the circuits that are left.

        Args:
            jobs: designs made in parallel.
            budget_minutes: no design is begun after that time; no limit when None.

        Yields:
            What became of each design, as it is done.
        """
        deadline = None if budget_minutes is None else time.monotonic() + 60.0 * budget_minutes

        def made(design: Design) -> Made | None:
            if deadline is not None and time.monotonic() > deadline:
                return None
            return self._make(design)

        with ThreadPoolExecutor(jobs) as pool:
            try:
                for one in pool.map(made, self.todo()):
                    if one is not None:
                        yield one
            finally:
                pool.shutdown(wait=True, cancel_futures=True)

    def frames(self) -> dict[str, "pd.DataFrame"]:
        """The tables of all designs that are done, in the order of the plan."""
        done = [self._at(design) for design in self.plan.designs if self._at(design).is_dir()]
        if not done:
            return {}
        return {
            name: pd.concat(
                [pd.read_parquet(folder / f"{name}.parquet") for folder in done], ignore_index=True
            )
            for name in TABLES
        }

    def write_tables(self) -> dict[str, int]:
        """Write the tables of all designs that are done, and what made them.

        Returns:
            Name of a table -> number of its rows.
        """
        frames = self.frames()
        if frames:
            about = {"tools": tools.versions(), "device": list(tools.DEVICE)}
            (self.folder / "about.json").write_text(json.dumps(about, indent=1) + "\n")
        for name, frame in frames.items():
            path = self.folder / f"{name}.parquet"
            frame.to_parquet(path, compression="zstd", compression_level=_ZSTD_LEVEL, index=False)
        return {name: len(frame) for name, frame in frames.items()}

    def _at(self, design: Design) -> Path:
        return self.folder / "designs" / design.name

    def _make(self, design: Design) -> Made:
        """One circuit, whose folder appears when all of it is written."""
        target = self._at(design)
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=".", dir=target.parent))
        try:
            netlist, statistics = tools.synthesised(design, scratch)
            runs = {}
            for seed in self.plan.seeds:
                own = scratch / str(seed)
                own.mkdir()
                runs[seed] = tools.placed(netlist, seed, own)
            frames = tables_of(design, statistics, runs)
            ready = scratch / "tables"
            ready.mkdir()
            for name, frame in frames.items():
                frame.to_parquet(ready / f"{name}.parquet", compression="zstd", index=False)
            ready.replace(target)
        except CircuitFailed as error:
            self.failures.append({"design": design.name, "why": str(error)})
            return Made(design.name, f"{design.name}: {error}")
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return Made(design.name)
