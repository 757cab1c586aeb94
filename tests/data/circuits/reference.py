"""Netlists of yosys in `netlists`, and what nextpnr makes of them: the reference for packing.

`python -m tests.data.circuits.reference` makes the files again; it needs yosys and nextpnr-ice40.
"""

import gzip
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from forerun.data.circuits.cells import KIND_OF_TYPE
from forerun.data.circuits.netlist import CELL_KINDS, Connections, Netlist
from forerun.data.collectors.circuits import tools
from forerun.data.collectors.circuits.collection import Delays
from forerun.data.collectors.circuits.tools import SOURCES, Design
from forerun.features.circuits.connections import fixed_connections
from forerun.features.circuits.longest_path import TimingGraph

HERE = Path(__file__).parent / "netlists"
DESIGNS = {
    "adder": {"W": 8, "N": 2},
    "comparisons": {},
    "divider_serial": {"W": 8},
    "median": {"N": 3, "W": 8},
    "viterbi": {"STATES": 4, "W": 5},
    "fifo": {"W": 8, "DEPTH": 256, "BLOCK": 1},
}
"""Module -> its parameters. They have carries in and out of chains, constants, enables with many
users, and memories."""
COMPARISONS = """
module comparisons(input clk, input reset, input en, input [3:0] d, output reg [3:0] q);
  reg [39:0] x; reg [19:0] s; reg c;
  always @(posedge clk) begin
    x <= {x[35:0], d};
    if (reset) s <= 0; else if (en) s <= x[39:20] + x[19:0] + c;
    c <= x[39:20] < x[19:0];
    q <= s[19:16] ^ s[15:12] ^ s[11:8] ^ s[7:4] ^ s[3:0];
  end
endmodule
"""


def structure(netlist: Netlist) -> dict[str, object]:
    """What two netlists share that differ in the names and the order of their cells only."""
    arcs, paths = netlist.arcs, netlist.paths
    graph = TimingGraph.of(netlist)
    fixed = fixed_connections(arcs, netlist.kinds)
    periods = [
        graph.period_ps(np.where(fixed, own, free)[:, None])[0]
        for own, free in ((200.0, 700.0), (0.0, 5000.0), (900.0, 0.0))
    ]
    times = zip(paths.source_port, paths.sink_port, netlist.path_ps.tolist(), strict=True)
    return {
        "cells": dict(sorted(Counter(CELL_KINDS[kind] for kind in netlist.kinds).items())),
        "arcs": _counted(f"{a} {b}" for a, b in zip(arcs.source_port, arcs.sink_port, strict=True)),
        "paths": _counted(f"{a} {b} {ps:.0f}" for a, b, ps in times),
        "periods_ps": periods,
    }


def _counted(words: Iterator[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def packed_by_nextpnr(netlist: Path, folder: Path) -> Netlist:
    """The cells and connections in nextpnr's delays of a netlist of yosys."""
    sdf = folder / "estimated.sdf"
    command = [tools.NEXTPNR, *tools.DEVICE, "-q", "--timing-allow-fail", "--no-route"]
    subprocess.run(
        [*command, "--json", str(netlist), "--sdf", str(sdf)], check=True, capture_output=True
    )
    delays = Delays.read(sdf)
    number = {name: position for position, name in enumerate(sorted(delays.kinds))}
    kinds = [CELL_KINDS.index(KIND_OF_TYPE.get(delays.kinds[name], "other")) for name in number]
    ends = list(delays.nets)
    rows = [(cell, a, b, ps, False) for (cell, a, b), ps in delays.paths.items()]
    rows += [(cell, a, b, ps, True) for (cell, a, b), ps in delays.setups.items()]
    cells = np.array([number[row[0]] for row in rows], dtype=np.intp)
    return Netlist(
        np.array(kinds, dtype=np.intp),
        Connections(
            np.array([number[source[0]] for source, _ in ends], dtype=np.intp),
            [source[1] for source, _ in ends],
            np.array([number[sink[0]] for _, sink in ends], dtype=np.intp),
            [sink[1] for _, sink in ends],
        ),
        Connections(cells, [row[1] for row in rows], cells, [row[2] for row in rows]),
        np.array([row[3] for row in rows], dtype=np.float64),
        np.array([row[4] for row in rows], dtype=np.bool_),
    )


def made(name: str, folder: Path) -> Path:
    """The netlist of a design of `DESIGNS`, by yosys."""
    sources = SOURCES
    if name == "comparisons":
        sources = (folder / "comparisons.v",)
        sources[0].write_text(COMPARISONS)
    design = Design(name, name, name, DESIGNS[name], sources)
    return tools.synthesised(design, folder)[0]


def stored(name: str) -> dict:
    """The stored netlist of a design."""
    return json.loads(gzip.decompress((HERE / f"{name}.json.gz").read_bytes()))


def expected(name: str) -> dict:
    """The stored structure of the same netlist as nextpnr packs it."""
    return json.loads((HERE / "expected.json").read_text())[name]


def _without_sources(netlist: dict) -> dict:
    """The top module with what is read of it."""
    (module,) = (own for own in netlist["modules"].values() if "top" in own["attributes"])
    cells = {
        name: {key: cell[key] for key in ("type", "parameters", "connections")}
        for name, cell in module["cells"].items()
    }
    kept = {"attributes": {"top": "1"}, "ports": module["ports"], "cells": cells}
    for cell in cells.values():
        cell["parameters"] = {
            k: v for k, v in cell["parameters"].items() if not k.startswith("INIT_")
        }
    return {"modules": {"top": kept}}


def main() -> None:
    """Write the netlists and what nextpnr makes of them."""
    HERE.mkdir(exist_ok=True)
    found = {}
    for name in DESIGNS:
        with TemporaryDirectory() as scratch:
            path = made(name, Path(scratch))
            found[name] = structure(packed_by_nextpnr(path, Path(scratch)))
            text = json.dumps(_without_sources(json.loads(path.read_text())))
        (HERE / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (HERE / "expected.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
