"""How far packing agrees with nextpnr's on designs drawn from the plan of `circuit_fpga`.

`python -m tests.data.circuits.agreement 228` takes seven minutes; it needs yosys and nextpnr-ice40.
"""

import json
import random
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from forerun.data.circuits.assembly import assembled
from forerun.data.circuits.netlist import Circuit
from forerun.data.circuits.yosys import packed_cells, read_netlist
from forerun.data.collectors.circuits import tools
from forerun.data.collectors.circuits.tools import Plan
from forerun.data.named.synthesis import HX8K, NEXTPNR
from forerun.data.query import Query
from forerun.models.artifact.sealed_folder import bundled
from forerun.models.catalog import Scope
from tests.data.circuits.reference import packed_by_nextpnr, structure

SEED = 7


def main(number: int) -> None:
    """Print the designs that differ, and how far predicted frequencies do."""
    designs = list(Plan.read().designs)
    random.Random(SEED).shuffle(designs)
    predictor = bundled(Scope(frozenset({"circuit"}))).predictor
    same, differences = 0, []
    for design in designs[:number]:
        with TemporaryDirectory() as scratch:
            path, _ = tools.synthesised(design, Path(scratch))
            theirs = packed_by_nextpnr(path, Path(scratch))
            ours = assembled(packed_cells(read_netlist(json.loads(path.read_text())))).netlist
        queries = [Query(Circuit(netlist), HX8K, NEXTPNR) for netlist in (theirs, ours)]
        values = predictor.predict(queries).values["fmax_mhz"]
        differences.append(abs(values[1] / values[0] - 1.0))
        agrees = structure(theirs) == structure(ours)
        same += agrees
        if not agrees:
            sys.stdout.write(f"{design.name}: {len(theirs.kinds)}, {len(ours.kinds)} cells\n")
    mean, most = 100 * np.mean(differences), 100 * max(differences)
    sys.stdout.write(
        f"{same} of {len(differences)} agree; MHz differ by {mean:.2f} % in the mean, "
    )
    sys.stdout.write(f"{most:.1f} % at most\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
