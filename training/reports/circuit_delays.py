"""Errors of the delays and arrivals of placed circuits, by design: a Markdown table.

`python -m forerun.training.reports.circuit_delays` fits `PlacedBoost` on the training rows of each
fold of `circuit_fpga` and compares it with the placer's own estimate, and with `NetlistBoost`,
which knows no places. Carries, clocks and global networks are left out of the delays, because no
router chooses their way. Errors of arrivals are those of each design by itself: pooled over
designs, a few with long paths would hide the others.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from forerun.data.bundle import find
from forerun.data.circuits.netlist import Circuit
from forerun.data.columns import Column
from forerun.data.device import DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.features.circuits.connections import fixed_connections
from forerun.features.circuits.longest_path import TimingGraph
from forerun.models.circuits.netlist_boost import NetlistBoost
from forerun.models.circuits.placed_boost import PlacedBoost
from forerun.training.protocols.circuits.circuit_fpga import (
    CircuitFpgaProtocols,
    circuit_measurements,
    circuit_of,
    estimated_ps,
)

HEADER: Final = (
    "| protocol | predictor | connections | MAE, ps | R2 | MAE of a design, median and worst | "
    "R2 of arrivals of a design, median and worst |",
    "| --- | --- | ---: | ---: | ---: | ---: | ---: |",
)


def main() -> None:
    """Print the table."""
    sys.stdout.write("\n".join((*HEADER, *lines())) + "\n")


def lines() -> Iterator[str]:
    """Lines of the table, three for each protocol; folds are pooled."""
    bundle = find("circuit_fpga", None)
    measured, _ = circuit_measurements(bundle)
    routed = dict(zip(_keys(measured), map(circuit_of, measured.queries), strict=True))
    found: dict[tuple[str, str], dict[str, list[tuple[Circuit, Column]]]] = {}
    for fold in CircuitFpgaProtocols().folds(bundle, DeviceCatalog.load()):
        fitted = PlacedBoost(calibrated=False).fit(fold.train)
        train = list(map(circuit_of, fold.train.queries))
        structure = NetlistBoost(calibrated=False).fit(fold.train)
        task = fold.tasks[0]
        asked, keys = list(map(circuit_of, task.held_out.queries)), _keys(task.held_out)
        for name, delays in {
            "nextpnr": estimated_ps(train, asked),
            fitted.name: [fitted.net_ps(own) for own in asked],
            structure.name: [structure.net_ps(own.netlist) for own in asked],
        }.items():
            own = found.setdefault((fold.protocol, name), {})
            for (design, seed), net_ps in zip(keys, delays, strict=True):
                own.setdefault(design, []).append((routed[design, seed], net_ps))
    for (protocol, name), by_design in found.items():
        yield line(protocol, name, by_design)


def line(
    protocol: str, name: str, by_design: Mapping[str, Sequence[tuple[Circuit, Column]]]
) -> str:
    """One line of the table.

    Args:
        protocol: name of the protocol.
        name: name of the predictor.
        by_design: design -> its routed circuits and the predicted delays of their connections.
    """
    measured, predicted, sizes, arrivals = [], [], [], []
    for pairs in by_design.values():
        netlist = pairs[0][0].netlist
        free = ~fixed_connections(netlist.arcs, netlist.kinds)
        true = np.column_stack([_routed_ps(circuit) for circuit, _ in pairs])
        own = np.column_stack([net_ps for _, net_ps in pairs])
        measured.append(true[free].ravel())
        predicted.append(own[free].ravel())
        sizes.append(float(np.abs(true - own)[free].mean()))
        graph = TimingGraph.of(netlist)
        ends = graph.arrivals_ps(true), graph.arrivals_ps(own)
        known = np.isfinite(ends[0])
        arrivals.append(r2(ends[0][known], ends[1][known]))
    whole, guessed = np.concatenate(measured), np.concatenate(predicted)
    cells = (
        protocol,
        f"`{name}`",
        f"{len(whole):,}",
        f"{np.abs(whole - guessed).mean():.1f}",
        f"{r2(whole, guessed):.3f}",
        f"{np.median(sizes):.1f}, {max(sizes):.1f}",
        f"{np.median(arrivals):.4f}, {min(arrivals):.3f}",
    )
    return f"| {' | '.join(cells)} |"


def _keys(measured: Measurements) -> list[tuple[str, str]]:
    """Design and seed of each circuit."""
    designs, seeds = (measured.groups[name].tolist() for name in ("design", "seed"))
    return list(zip(designs, seeds, strict=True))


def _routed_ps(circuit: Circuit) -> Column:
    assert circuit.routed_ps is not None
    return circuit.routed_ps


def r2(measured: Column, predicted: Column) -> float:
    """Share of the variance of measured values that predictions explain."""
    residual = float(((measured - predicted) ** 2).sum())
    return 1.0 - residual / float(((measured - measured.mean()) ** 2).sum())


if __name__ == "__main__":
    main()
