"""Highest frequencies of circuits from the delays of their connections."""

from collections.abc import Iterator, Sequence

import numpy as np

from forerun.data.circuits.netlist import Circuit
from forerun.data.columns import Column, Positions, groups_of
from forerun.data.query import Query
from forerun.features.circuits.longest_path import TimingGraph, fmax_mhz


def frequencies(circuits: Sequence[Circuit], net_ps: Sequence[Column]) -> Column:
    """Highest frequency of each of n circuits with given delays of its connections, (n,), MHz.

    Args:
        circuits: the circuits; those of one netlist share its timing graph.
        net_ps: (m,) delays of the connections of each, picoseconds.
    """
    found = np.full(len(circuits), np.nan)
    for rows in netlists_of(circuits):
        graph = TimingGraph.of(circuits[rows[0]].netlist)
        found[rows] = fmax_mhz(graph.period_ps(np.column_stack([net_ps[row] for row in rows])))
    return found


def netlists_of(circuits: Sequence[Circuit]) -> Iterator[Positions]:
    """Positions of the circuits of each netlist."""
    for rows in groups_of(id(circuit.netlist) for circuit in circuits).values():
        yield np.array(rows, dtype=np.intp)


def circuits_of(queries: Sequence[Query]) -> list[Circuit]:
    """The circuits that are asked about.

    Raises:
        TypeError: a workload is of another kind.
    """
    circuits = [query.workload for query in queries if isinstance(query.workload, Circuit)]
    if len(circuits) < len(queries):
        raise TypeError("only circuits have a highest frequency")
    return circuits
