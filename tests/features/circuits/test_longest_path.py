"""Longest paths agree with those that are enumerated, and with nextpnr on circuits that it made."""

from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.circuits.netlist import Connections, Netlist
from forerun.features.circuits.longest_path import CombinationalLoop, TimingGraph, fmax_mhz

PORTS = ("I0", "I1", "I2")


@st.composite
def circuits(draw):
    """Registers and gates whose inputs come from cells before them; delays of two runs."""
    cells = draw(st.integers(2, 14))
    registers = [True, *draw(st.lists(st.booleans(), min_size=cells - 1, max_size=cells - 1))]
    arcs, paths = [], []
    for cell in range(cells):
        inputs = PORTS[: draw(st.integers(1, 3))]
        for port in inputs:
            # A register may take any output, a gate only those of cells before it.
            last = cells - 1 if registers[cell] else cell - 1
            if last >= 0:
                arcs.append((draw(st.integers(0, last)), "O", cell, port))
            if registers[cell]:
                paths.append((cell, port, "CLK", draw(st.integers(0, 400)), True))
            else:
                paths.append((cell, port, "O", draw(st.integers(0, 600)), False))
        if registers[cell]:
            paths.append((cell, "CLK", "O", draw(st.integers(1, 600)), False))
    delays = st.lists(
        st.tuples(st.integers(0, 3000), st.integers(0, 3000)),
        min_size=len(arcs),
        max_size=len(arcs),
    )
    return arcs, paths, np.array(draw(delays), dtype=np.float64).reshape(len(arcs), 2)


def graph_of(arcs, paths):
    return TimingGraph.of(netlist_of(arcs, paths))


def netlist_of(arcs, paths):
    source, out, sink, into = zip(*arcs, strict=True) if arcs else ((), (), (), ())
    cell, first, second, ps, setup = zip(*paths, strict=True)
    whole = np.array(cell, dtype=np.intp)
    return Netlist(
        np.zeros(1 + max((*cell, *sink), default=0), dtype=np.intp),
        Connections(np.array(source, dtype=np.intp), out, np.array(sink, dtype=np.intp), into),
        Connections(whole, first, whole, second),
        np.array(ps, dtype=np.float64),
        np.array(setup),
    )


def enumerated(arcs, paths, delays):
    """Arrival at a pin by following every way back, in plain recursion."""

    @cache
    def arrival(cell, port):
        ways = [
            arrival(a, p) + delays[i]
            for i, (a, p, b, q) in enumerate(arcs)
            if (b, q) == (cell, port)
        ]
        for own, first, second, ps, setup in paths:
            if own == cell and second == port and not setup:
                ways.append(ps if first == "CLK" else arrival(cell, first) + ps)
        return max(ways, default=-np.inf)

    return arrival


@given(circuits(), st.randoms(use_true_random=False))
def test_each_clock_has_the_paths_between_its_own_registers(circuit, random):
    """As in a circuit that has the times of the registers of this clock alone."""
    arcs, paths, delays = circuit
    of_cell = {cell: random.choice(["a", "b", "c"]) for cell, *_ in paths}
    clocks = [of_cell[cell] if "CLK" in ports else "" for cell, *ports, _, _ in paths]
    given_netlist, net_ps = netlist_of(arcs, paths), delays[:, :1]
    found = TimingGraph.of_clocks(given_netlist, clocks)
    assert found.keys() == set(clocks) - {""}
    for clock, (graph, own) in found.items():
        alone = TimingGraph.of(
            netlist_of(
                arcs, [p for p, name in zip(paths, clocks, strict=True) if name in {"", clock}]
            )
        )
        assert graph.period_ps(net_ps[own]).tolist() == alone.period_ps(net_ps).tolist()
        critical = own[graph.critical_arcs(net_ps[own, 0])].tolist() if len(own) else []
        assert critical == alone.critical_arcs(net_ps[:, 0])
        before, after = alone.through_ps(net_ps[:, 0])
        assert own.tolist() == np.flatnonzero(np.isfinite(before + after)).tolist()


@given(circuits())
def test_arrivals_and_periods_are_those_of_all_paths(circuit):
    arcs, paths, delays = circuit
    graph = graph_of(arcs, paths)
    found, period = graph.arrivals_ps(delays), graph.period_ps(delays)
    for run in range(2):
        arrival = enumerated(arcs, paths, delays[:, run].tolist())
        assert found[:, run].tolist() == [arrival(*pin) for pin in graph.pins]
        ends = [arrival(cell, port) + ps for cell, port, _, ps, setup in paths if setup]
        assert period[run] == max(0.0, *ends)
        critical = graph.critical_arcs(delays[:, run])
        for one, next_one in pairwise(critical):
            assert arcs[one][2] == arcs[next_one][0]
        if period[run]:
            assert delays[critical, run].sum() <= period[run]
        before, after = graph.through_ps(delays[:, run])
        paths_ps = before + delays[:, run] + after
        assert paths_ps[critical].tolist() == [period[run]] * len(critical)
        assert paths_ps.max(initial=-np.inf) <= period[run]


def test_a_signal_that_depends_on_itself_is_refused():
    arcs = [(0, "O", 1, "I0"), (1, "O", 0, "I0")]
    paths = [(0, "I0", "O", 100, False), (1, "I0", "O", 100, False)]
    with pytest.raises(CombinationalLoop, match="4 pins"):
        graph_of(arcs, paths)


def test_without_registers_no_frequency_is_known():
    graph = graph_of([(0, "O", 1, "I0")], [(1, "I0", "O", 100, False)])
    delays = np.array([[250.0]])
    assert graph.period_ps(delays) == [0.0]
    frequencies = fmax_mhz(np.array([*graph.period_ps(delays), 2560.0]))
    np.testing.assert_array_equal(frequencies, [np.nan, 390.625])
    assert graph.critical_arcs(delays[:, 0]) == []
