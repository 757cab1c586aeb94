"""Exact longest register-to-register paths of a circuit from delays of cells and connections.

Times start at the clock edge: a register's output arrives after its delay, a pin at the latest of
all its inputs, and a register's input must arrive the setup time before the next edge. Inputs and
outputs of the circuit have no timing, so paths from and to them do not count.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.circuits.netlist import CLOCK_PORTS, Connections, Netlist
from forerun.data.columns import Column, Matrix, Positions
from forerun.data.errors import InputError

MHZ_PS: Final = 1e6


class CombinationalLoop(InputError):
    """A signal depends on itself without a register in between."""


@dataclass(frozen=True, slots=True)
class TimingGraph:
    """Pins of a circuit, and the edges between them in topological order.

    Attributes:
        pins: cell and port of each of p pins.
        source, sink: (e,) pins of each edge, lowest levels first.
        arc: (e,) connection of the edge; -1 for an edge through a cell.
        fixed_ps: (e,) delay of the edge through a cell; 0 for a connection.
        starts: position of the first edge of each level, and e at the end.
        launch_ps: (p,) time after the clock edge when a register drives a pin; -inf elsewhere.
        setup_ps: (p,) time before the next edge when a register reads a pin; -inf elsewhere.
    """

    pins: tuple[tuple[int, str], ...]
    source: Positions
    sink: Positions
    arc: Positions
    fixed_ps: Column
    starts: tuple[int, ...]
    launch_ps: Column
    setup_ps: Column

    @classmethod
    def of(cls, netlist: Netlist) -> "TimingGraph":
        """The graph of a circuit.

        Raises:
            CombinationalLoop: a signal depends on itself.
        """
        arcs, paths = netlist.arcs, netlist.paths
        path_ps, is_setup = netlist.path_ps, netlist.is_setup
        number: dict[tuple[int, str], int] = {}

        def pin(cell: int, port: str) -> int:
            return number.setdefault((cell, port), len(number))

        ends = [(pin(a, p), pin(b, q)) for a, p, b, q in _rows(arcs)]
        through = [(pin(a, p), pin(b, q)) for a, p, b, q in _rows(paths)]
        launches = np.array([port in CLOCK_PORTS for port in paths.source_port], dtype=np.bool_)
        launch, setup = np.full((2, len(number)), -np.inf)
        pairs = np.array(through, dtype=np.intp).reshape(-1, 2)
        starts = launches & ~is_setup
        np.maximum.at(launch, pairs[starts, 1], path_ps[starts])
        np.maximum.at(setup, pairs[is_setup, 0], path_ps[is_setup])
        inner = ~launches & ~is_setup
        edges = np.concatenate([np.array(ends, dtype=np.intp).reshape(-1, 2), pairs[inner]])
        arc = np.concatenate([np.arange(len(ends)), np.full(int(inner.sum()), -1)])
        fixed = np.concatenate([np.zeros(len(ends)), path_ps[inner]])
        levels = _levels(edges, len(number))[edges[:, 1]]
        order = np.lexsort((edges[:, 1], levels))
        firsts = np.searchsorted(levels[order], np.arange(1, levels.max(initial=0) + 2))
        return cls(
            tuple(number),
            edges[order, 0],
            edges[order, 1],
            arc[order],
            fixed[order],
            tuple(firsts.tolist()),
            launch,
            setup,
        )

    @classmethod
    def of_clocks(
        cls, netlist: Netlist, clocks: Sequence[str]
    ) -> dict[str, tuple["TimingGraph", Positions]]:
        """The timing graph of each clock, of the paths between its registers, and its connections.

        One pass over the whole graph finds what every clock reaches, so a further clock adds only
        the cost of its own paths. The arcs of a graph are positions in its connections, (a,).

        Args:
            netlist: a circuit.
            clocks: clock of each path of the netlist; empty for delays without a register.

        Raises:
            CombinationalLoop: a signal depends on itself.
        """
        whole, paths = cls.of(netlist), netlist.paths
        number = {pin: position for position, pin in enumerate(whole.pins)}
        rows = list(enumerate(zip(_rows(paths), clocks, strict=True)))
        names = sorted(set(clocks) - {""})
        bit = {name: divmod(position, 8) for position, name in enumerate(names)}
        after, before = np.zeros((2, len(number), len(names) // 8 + 1), dtype=np.uint8)
        at: dict[str, list[tuple[int, int]]] = {name: [] for name in names}
        for row, ((a, p, b, q), name) in rows:
            if name:
                is_setup = bool(netlist.is_setup[row])
                pin = number[(a, p) if is_setup else (b, q)]
                (before if is_setup else after)[pin, bit[name][0]] |= 1 << bit[name][1]
                at[name].append((row, pin))
        whole._spread(after, before)
        both = after & before
        return {
            name: whole._between(
                np.flatnonzero(both[:, byte] >> place & 1),
                np.array(at[name], dtype=np.intp),
                netlist,
            )
            for name, (byte, place) in bit.items()
        }

    def _spread(self, after: NDArray[np.uint8], before: NDArray[np.uint8]) -> None:
        """Propagate marks of pins, (p, bytes) bits each, downstream and upstream."""
        levels = self._by_level()
        for first, last in levels:
            at = slice(first, last)
            np.bitwise_or.at(after, self.sink[at], after[self.source[at]])
        for first, last in reversed(levels):
            at = slice(first, last)
            np.bitwise_or.at(before, self.source[at], before[self.sink[at]])

    def _between(
        self, pins: Positions, registers: Positions, netlist: Netlist
    ) -> tuple["TimingGraph", Positions]:
        """The graph of some pins with the timing of some registers, and its connections.

        Args:
            pins: the pins to keep, in order.
            registers: (k, 2) rows of the netlist's paths, and the pin that each drives or reads.
            netlist: the circuit.
        """
        place = np.full(len(self.pins), -1)
        place[pins] = np.arange(len(pins))
        launch, setup = np.full((2, len(pins)), -np.inf)
        rows, at = registers[place[registers[:, 1]] >= 0].T
        for times, allowed in ((launch, ~netlist.is_setup[rows]), (setup, netlist.is_setup[rows])):
            np.maximum.at(times, place[at[allowed]], netlist.path_ps[rows[allowed]])
        kept = np.flatnonzero((place[self.source] >= 0) & (place[self.sink] >= 0))
        arcs, arc = np.unique(self.arc[kept], return_inverse=True)
        through = int(arcs[:1].tolist() == [-1])
        return replace(
            self,
            pins=tuple(self.pins[pin] for pin in pins.tolist()),
            source=place[self.source[kept]],
            sink=place[self.sink[kept]],
            arc=arc - through,
            fixed_ps=self.fixed_ps[kept],
            starts=tuple(np.unique(np.searchsorted(kept, self.starts)).tolist()),
            launch_ps=launch,
            setup_ps=setup,
        ), arcs[through:]

    def arrivals_ps(self, net_ps: Matrix) -> Matrix:
        """Latest arrival at each pin, shape (p, runs); -inf where no register drives it.

        Args:
            net_ps: (arcs, runs) delays of the connections, picoseconds.
        """
        delays, found = self._delays(net_ps), np.repeat(self.launch_ps[:, None], net_ps.shape[1], 1)
        for first, last in self._by_level():
            at = slice(first, last)
            np.maximum.at(found, self.sink[at], found[self.source[at]] + delays[at])
        return found

    def to_registers_ps(self, net_ps: Matrix) -> Matrix:
        """Longest time from each pin to a register, with its setup, shape (p, runs); else -inf.

        Args:
            net_ps: as in `arrivals_ps`.
        """
        delays, found = self._delays(net_ps), np.repeat(self.setup_ps[:, None], net_ps.shape[1], 1)
        for first, last in reversed(self._by_level()):
            at = slice(first, last)
            np.maximum.at(found, self.source[at], found[self.sink[at]] + delays[at])
        return found

    def period_ps(self, net_ps: Matrix) -> Column:
        """Shortest clock period, shape (runs,); 0 where no register feeds another.

        Args:
            net_ps: as in `arrivals_ps`.
        """
        ends = self.arrivals_ps(net_ps) + self.setup_ps[:, None]
        return np.asarray(np.maximum(ends.max(axis=0, initial=0.0), 0.0))

    def through_ps(self, net_ps: Column) -> tuple[Column, Column]:
        """Longest times from a register to each connection, and from its end to one, (arcs,) each.

        They are -inf for connections on no path between registers.

        Args:
            net_ps: (arcs,) delays of the connections.
        """
        before, after = np.full((2, len(net_ps)), -np.inf)
        is_net = self.arc >= 0
        before[self.arc[is_net]] = self.arrivals_ps(net_ps[:, None])[self.source[is_net], 0]
        after[self.arc[is_net]] = self.to_registers_ps(net_ps[:, None])[self.sink[is_net], 0]
        return before, after

    def critical_arcs(self, net_ps: Column) -> list[int]:
        """Connections of one longest path, in order; empty where no register feeds another.

        Args:
            net_ps: (arcs,) delays of the connections.
        """
        arrivals = self.arrivals_ps(net_ps[:, None])[:, 0]
        delays = self._delays(net_ps[:, None])[:, 0]
        ends = arrivals + self.setup_ps
        if not np.isfinite(ends).any():
            return []
        found, at = [], int(np.argmax(ends))
        order = np.argsort(self.sink, kind="stable")
        firsts = np.searchsorted(self.sink[order], np.arange(len(self.pins) + 1))
        while arrivals[at] > self.launch_ps[at]:
            into = order[firsts[at] : firsts[at + 1]]
            edge = into[np.argmax(arrivals[self.source[into]] + delays[into])]
            if self.arc[edge] >= 0:
                found.append(int(self.arc[edge]))
            at = int(self.source[edge])
        return found[::-1]

    def _delays(self, net_ps: Matrix) -> Matrix:
        """Delays of the edges, shape (e, runs)."""
        through = self.fixed_ps[:, None]
        return np.asarray(np.where(self.arc[:, None] >= 0, net_ps[self.arc], through))

    def _by_level(self) -> list[tuple[int, int]]:
        ends = (*self.starts, len(self.sink))
        return [pair for pair in pairwise(ends) if pair[0] < pair[1]]


def fmax_mhz(period_ps: Column) -> Column:
    """Maximum frequency for a shortest period, MHz; NaN for a period of 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(period_ps > 0.0, MHZ_PS / period_ps, np.nan))


def _rows(arcs: Connections) -> "zip[tuple[int, str, int, str]]":
    return zip(
        arcs.source.tolist(), arcs.source_port, arcs.sink.tolist(), arcs.sink_port, strict=True
    )


def _levels(edges: NDArray[np.intp], pins: int) -> Positions:
    """Level of each pin: one more than the highest of its predecessors, shape (pins,).

    Raises:
        CombinationalLoop: some pin precedes itself.
    """
    source, sink = edges[:, 0], edges[:, 1]
    order = np.argsort(source, kind="stable")
    starts = np.searchsorted(source[order], np.arange(pins + 1))
    left, levels = np.bincount(sink, minlength=pins), np.zeros(pins, dtype=np.intp)
    ready, level, done = np.flatnonzero(left == 0), 0, 0
    while len(ready):
        levels[ready] = level
        done += len(ready)
        reached = sink[order[_ranges(starts[ready], starts[ready + 1])]]
        np.subtract.at(left, reached, 1)
        ready = np.unique(reached[left[reached] == 0])
        level += 1
    if done < pins:
        raise CombinationalLoop(f"{pins - done:,} pins depend on themselves without a register.")
    return levels


def _ranges(firsts: Positions, ends: Positions) -> Positions:
    """Integers from each first up to its end, exclusive, range after range."""
    sizes = ends - firsts
    return np.repeat(ends - np.cumsum(sizes), sizes) + np.arange(int(sizes.sum()))
