"""Made-up circuits: chains of gates between registers, whose delays follow from their places."""

import numpy as np
import pandas as pd

from forerun.data.datasets.circuits.circuit_fpga import LARGE_CELLS, designs
from forerun.features.circuits.longest_path import TimingGraph, fmax_mhz
from tests.contracts.tiny_published import packaged_files

FAMILIES = tuple(f"family_{number}" for number in range(7))
SEEDS = (1, 2, 3, 4, 5)
TILE_PS, CONGESTED_PS = 90, 60
CLOCK_PS, GATE_PS, SETUP_PS = 540, 400, 470


def routed_ps(columns, rows, congested):
    """Delay of a connection by the distance that it spans; families differ in congestion."""
    return 300 + TILE_PS * (np.abs(columns) + np.abs(rows)) + CONGESTED_PS * congested


def tiny_tables(each: int = 2) -> dict[str, pd.DataFrame]:
    """The five tables, with so many designs in each family; the last has two clocks."""
    parts = [
        _design(family, number, np.random.default_rng(100 * place + number))
        for place, family in enumerate(FAMILIES)
        for number in range(each)
    ]
    tables = {
        name: pd.concat([part[name] for part in parts], ignore_index=True) for name in parts[0]
    }
    last = tables["runs"]["design"] == f"{FAMILIES[-1]}-{each - 1}"
    tables["runs"].loc[last, ["clocks", "fmax_mhz"]] = [2, np.nan]
    return tables


def _design(family: str, number: int, draw: np.random.Generator) -> dict[str, pd.DataFrame]:
    name, chains, gates = f"{family}-{number}", 6, 3
    cells = chains * (gates + 2)
    cell = np.arange(cells, dtype=np.int32).reshape(chains, gates + 2)
    source, sink = cell[:, :-1].ravel(), cell[:, 1:].ravel()
    nodes = pd.DataFrame({"design": name, "node": np.arange(cells, dtype=np.int32)})
    nodes["kind"] = "logic"
    arcs = pd.DataFrame({"design": name, "source": source, "source_port": "O"})
    arcs["sink"], arcs["sink_port"] = sink, "I0"
    for seed in SEEDS:
        at = draw.integers(1, 30, (3, cells)).astype(np.int8)
        nodes[[f"{axis}_{seed}" for axis in "xyz"]] = np.array([at[0], at[1], at[2] % 8]).T
        apart = at[:2, sink].astype(int) - at[:2, source]
        delays = routed_ps(*apart, draw.random(len(sink)))
        arcs[f"routed_{seed}_ps"] = delays.astype(np.int32)
        arcs[f"estimated_{seed}_ps"] = (200 + 100 * np.abs(apart).sum(0)).astype(np.int32)
    rows = []
    for node in cell[:, [0, -1]].ravel().tolist():
        rows += [(node, "CLK", "O", "delay", CLOCK_PS), (node, "I0", "CLK", "setup", SETUP_PS)]
    rows += [(node, "I0", "O", "delay", GATE_PS) for node in cell[:, 1:-1].ravel().tolist()]
    paths = pd.DataFrame(rows, columns=["node", "from_port", "to_port", "kind", "ps"])
    paths.insert(0, "design", name)
    paths = paths.astype({"node": np.int32, "ps": np.int32})
    (own,) = designs({"nodes": nodes, "arcs": arcs, "paths": paths})
    net_ps = np.column_stack([own.routed_ps[seed] for seed in SEEDS])
    runs = pd.DataFrame({"design": name, "family": family, "module": family, "seed": SEEDS})
    runs["parameters"], runs["clocks"] = f"N={number}", 1
    runs["fmax_mhz"] = fmax_mhz(TimingGraph.of(own.netlist).period_ps(net_ps))
    runs["logic_cells"] = cells + LARGE_CELLS * number
    runs[["memories", "globals", "ports"]] = [0, 1, 3]
    runs["seconds"] = 0.1
    words = pd.DataFrame({"design": [name], "word": ["$dff"], "count": np.array([12], np.int32)})
    return {"runs": runs, "nodes": nodes, "arcs": arcs, "paths": paths, "words": words}


def circuit_fpga() -> dict[str, bytes]:
    """The files of the package, with made-up rows."""
    return packaged_files(**tiny_tables())
