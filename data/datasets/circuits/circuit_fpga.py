"""Circuits on an FPGA, placed and routed with five seeds: cells, connections and their delays.

The designs are our own and freely licensed processors (`forerun collect circuit`), processed by
yosys and nextpnr for an iCE40 HX8K. One row of `runs` is one design with one seed.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.circuits.netlist import CELL_KINDS, Circuit, Connections, Netlist, Placement
from forerun.data.columns import Column, Mask, Positions
from forerun.data.datasets.packaged import PackagedDataset
from forerun.data.lazy import pd

RUNS, NODES, ARCS, PATHS, WORDS = "runs", "nodes", "arcs", "paths", "words"
LARGE_CELLS: Final = 1000
"""Fewest logic cells of a large design."""
PROCESSORS: Final = ("picorv32", "serv", "vexriscv")
"""Processor families by other authors: a fixed test set that nothing is trained on."""
_ROUTED: Final = re.compile(r"routed_(\d+)_ps")


class CircuitFpga(PackagedDataset, declared="circuit_fpga"):
    """Families of designs, large designs and processors held out."""

    def parts(self, rows: "pd.DataFrame") -> Mapping[str, Mask]:
        """Circuits with a single clock: processors, and the other circuits by size."""
        timed = np.asarray(rows["fmax_mhz"].notna(), dtype=np.bool_)
        processors = np.asarray(rows["family"].isin(PROCESSORS), dtype=np.bool_)
        large = np.asarray(rows["logic_cells"] >= LARGE_CELLS, dtype=np.bool_)
        others = timed & ~processors
        sizes = {"small": others & ~large, "large": others & large}
        return {"": others, "processors": timed & processors, **sizes}


@dataclass(frozen=True, slots=True)
class Design:
    """A design of the dataset.

    Attributes:
        name: name of the design.
        netlist: its cells and connections.
        placements: seed -> positions of the cells.
        routed_ps: seed -> (m,) delays of the connections after routing, picoseconds.
    """

    name: str
    netlist: Netlist
    placements: Mapping[int, Placement]
    routed_ps: Mapping[int, Column]

    def circuit(self, seed: int, *, routed: bool) -> Circuit:
        """The circuit placed with a seed, with its delays after routing if requested."""
        return Circuit(
            self.netlist, self.placements[seed], self.routed_ps[seed] if routed else None
        )


def designs(tables: "Mapping[str, pd.DataFrame]") -> Iterator[Design]:
    """The designs of the tables `nodes`, `arcs` and `paths`, in the order of `nodes`."""
    nodes, arcs, paths = (dict(iter(tables[t].groupby("design"))) for t in (NODES, ARCS, PATHS))
    for name in tables[NODES]["design"].drop_duplicates():
        yield _design(str(name), nodes[name], arcs[name], paths[name])


def _design(
    name: str, nodes: "pd.DataFrame", arcs: "pd.DataFrame", paths: "pd.DataFrame"
) -> Design:
    nodes = nodes.sort_values("node")
    seeds = [int(found[1]) for found in map(_ROUTED.fullmatch, arcs.columns) if found]
    kinds = np.array([CELL_KINDS.index(kind) for kind in nodes["kind"]], dtype=np.intp)
    cells = _whole(paths["node"])
    netlist = Netlist(
        kinds,
        Connections(
            _whole(arcs["source"]), list(arcs["source_port"]),
            _whole(arcs["sink"]), list(arcs["sink_port"]),
        ),
        Connections(cells, list(paths["from_port"]), cells, list(paths["to_port"])),
        paths["ps"].to_numpy(dtype=np.float64),
        np.asarray(paths["kind"] == "setup", dtype=np.bool_),
    )  # fmt: skip
    placements = {
        seed: Placement(
            x=_whole(nodes[f"x_{seed}"]),
            y=_whole(nodes[f"y_{seed}"]),
            z=_whole(nodes[f"z_{seed}"]),
            estimated_ps=arcs[f"estimated_{seed}_ps"].to_numpy(dtype=np.float64),
        )
        for seed in seeds
    }
    routed = {seed: arcs[f"routed_{seed}_ps"].to_numpy(dtype=np.float64) for seed in seeds}
    return Design(name, netlist, placements, routed)


def _whole(column: "pd.Series[int]") -> Positions:
    return np.asarray(column, dtype=np.intp)
