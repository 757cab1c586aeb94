"""circuit_fpga: maximum frequency of circuits of unseen families, of large designs and processors.

There are no published predictions for these designs. The baseline `nextpnr` uses the placer's own
estimate of each delay in the same exact longest-path computation.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.circuits.netlist import Circuit
from forerun.data.columns import Column, Positions
from forerun.data.datasets.circuits.circuit_fpga import (
    ARCS,
    NODES,
    PATHS,
    PROCESSORS,
    RUNS,
    designs,
)
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.data.named.synthesis import HX8K, NEXTPNR
from forerun.data.query import Query
from forerun.models.circuits.netlist_boost import circuits_of, fixed_kinds, frequencies
from forerun.training.protocols.protocol import NEW, DatasetProtocols, Kept, Task, Tasks, Trained

METRIC = "fmax_mhz"
KEYS = ("family", "design", "seed")


class CircuitFpgaProtocols(DatasetProtocols):
    """Circuits whose families, or whose size, are not in the training set."""

    dataset = "circuit_fpga"
    joined = (NODES, ARCS, PATHS)
    unseen: ClassVar = {"unseen_family": {"family": NEW}}
    reads: ClassVar = {RUNS: ("design", "family", "seed", METRIC)}

    def training_rows(self, bundle: Bundle, catalog: DeviceCatalog) -> Measurements:
        """All circuits with a single clock except processors, with the delays after routing."""
        measured, _ = circuit_measurements(bundle)
        return measured.take(~np.isin(measured.groups["family"], PROCESSORS))

    def measured(self, bundle: Bundle, catalog: DeviceCatalog) -> tuple[Measurements, Kept]:
        """Circuits with a single clock."""
        return circuit_measurements(bundle)

    def tasks(self, protocol: str, held_out: Measurements, train: Trained) -> Tasks:
        """The frequency of placed circuits, and of netlists before placement."""
        asked = without_routes(held_out)
        baselines = {}
        if train is not None:
            circuits = circuits_of(asked.queries)
            placed = estimated_ps(circuits_of(train.queries), circuits)
            baselines["nextpnr"] = frequencies(circuits, placed)
        yield Task(protocol, METRIC, asked, baselines=baselines)
        yield Task(f"{protocol}/netlist", METRIC, without_places(held_out))


def circuit_measurements(bundle: Bundle) -> tuple[Measurements, Positions]:
    """Circuits with a single clock, and their positions in the table `runs`.

    They have the groups `family`, `design` and `seed`.
    """
    runs = bundle.table(RUNS)
    kept = np.flatnonzero(runs["fmax_mhz"].notna())
    kept_runs = runs.iloc[kept]
    wanted = set(kept_runs["design"])
    tables = {name: bundle.table(name) for name in (NODES, ARCS, PATHS)}
    tables = {name: rows[rows["design"].isin(wanted)] for name, rows in tables.items()}
    found = {design.name: design for design in designs(tables)}
    queries = [
        Query(found[design].circuit(seed, routed=True), HX8K, NEXTPNR)
        for design, seed in zip(kept_runs["design"], kept_runs["seed"], strict=True)
    ]
    groups = {name: kept_runs[name].astype(str).to_numpy(dtype=np.str_) for name in KEYS}
    return Measurements(queries, {METRIC: kept_runs["fmax_mhz"].to_numpy(np.float64)}, groups), kept


def without_routes(measured: Measurements) -> Measurements:
    """The same circuits without their delays after routing, as in a query."""
    known = circuits_of(measured.queries)
    return _about(measured, [replace(circuit, routed_ps=None) for circuit in known])


def without_places(measured: Measurements) -> Measurements:
    """The same circuits before placement: all runs of one netlist are then identical."""
    return _about(measured, [Circuit(circuit.netlist) for circuit in circuits_of(measured.queries)])


def _about(measured: Measurements, circuits: Sequence[Circuit]) -> Measurements:
    pairs = zip(measured.queries, circuits, strict=True)
    return replace(measured, queries=[replace(query, workload=circuit) for query, circuit in pairs])


def estimated_ps(train: Sequence[Circuit], circuits: Sequence[Circuit]) -> list[Column]:
    """The placer's delay estimates for the connections of each circuit, shape (m,) each.

    The placer does not estimate carries and global networks; they take the median of the training
    set for their kind of connection.
    """
    delays: dict[str, list[Column]] = {}
    for circuit in train:
        assert circuit.routed_ps is not None
        for kind, rows in fixed_kinds(circuit.netlist).items():
            delays.setdefault(kind, []).append(circuit.routed_ps[rows])
    medians = {kind: float(np.median(np.concatenate(parts))) for kind, parts in delays.items()}
    found = []
    for circuit in circuits:
        assert circuit.placement is not None
        estimates = circuit.placement.estimated_ps.copy()
        for kind, rows in fixed_kinds(circuit.netlist).items():
            estimates[rows] = medians.get(kind, estimates[rows])
        found.append(estimates)
    return found
