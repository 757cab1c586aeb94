"""Frequencies, critical paths and resources of a circuit, from its netlist."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from forerun.data.circuits.assembly import Assembly, assembled
from forerun.data.circuits.netlist import CELL_KINDS, CellKind, Netlist
from forerun.data.circuits.yosys import NetlistIn, packed_cells
from forerun.data.errors import UnanswerableQuery
from forerun.data.named.synthesis import HX8K
from forerun.features.circuits.longest_path import MHZ_PS
from forerun.features.deadline import check
from forerun.models.answers.evidence import distinct
from forerun.models.answers.served_models import InUse
from forerun.models.answers.trust import trust_by
from forerun.models.circuits.netlist_boost import NetlistBoost, TimedPaths
from forerun.models.limit import Limit
from forerun.models.predictor import Predictor
from forerun.models.router import predictors_in
from forerun.service.answers.answer import graded, predictor_out
from forerun.service.schemas.answers import DeviceOut, LimitOut
from forerun.service.schemas.circuits import CircuitOut, ClockOut, PathStepOut, ResourceOut

METRIC: Final = "fmax_mhz"
AVAILABLE: Final[dict[CellKind, tuple[str, int]]] = {
    "logic": ("logic_cells", 7680),
    "memory": ("memories", 32),
    "port": ("ports", 206),
    "global": ("globals", 8),
}
"""Kind of cell -> name of the resource, and its number on an HX8K in the package ct256."""
OF_FAMILIES: Final = Limit(
    "the interval was calibrated on families of designs that were held out, over placements with "
    "five seeds",
    METRIC,
    severity="transfer",
)
SEVERAL_CLOCKS: Final = Limit(
    "the circuit has several clocks; all circuits of the training set have one, and paths between "
    "clocks do not count",
    METRIC,
)
NO_PATH: Final = "no register of this clock feeds another"


def timing_of(given: NetlistIn, in_use: InUse) -> CircuitOut:
    """The timing of a circuit after placing and routing on an HX8K, and its resources.

    A circuit that does not fit has no frequency.

    Raises:
        BadNetlist: it is not mapped to iCE40.
        CombinationalLoop: a signal depends on itself without a register between.
        UnanswerableQuery: no predictor in use was trained on circuits.
    """
    part = _part_of(in_use.loaded.predictor)
    assembly = assembled(packed_cells(given))
    resources = _resources(assembly.netlist)
    names = sorted(set(assembly.clocks) - {""})
    limits = [*([SEVERAL_CLOCKS] if len(names) > 1 else []), OF_FAMILIES]
    too_few = _too_few(resources)
    if too_few is None:
        clocks = _clocks(assembly, names, part, limits)
    else:
        limits = [too_few]
        clocks = [_without_frequency(name, str(too_few)) for name in names]
    limits = distinct(limits)
    return CircuitOut(
        clocks=clocks,
        resources=resources,
        fits=too_few is None,
        in_domain=all(limit.severity in {"note", "transfer"} for limit in limits),
        limits=[str(limit) for limit in limits],
        limit_details=[LimitOut.of(limit) for limit in limits],
        device=DeviceOut(name=HX8K.name, origin=HX8K.origin),
        predictor=predictor_out(in_use, 0),
    )


def _resources(netlist: Netlist) -> dict[str, ResourceOut]:
    used = np.bincount(netlist.kinds, minlength=len(CELL_KINDS)).tolist()
    return {
        name: ResourceOut(used=used[CELL_KINDS.index(kind)], available=available)
        for kind, (name, available) in AVAILABLE.items()
    }


def _too_few(resources: Mapping[str, ResourceOut]) -> Limit | None:
    """That the FPGA has too few cells of some kinds; None where it has enough."""
    missing = [
        f"{own.used:,} of {own.available:,} {name.replace('_', ' ')}"
        for name, own in resources.items()
        if own.used > own.available
    ]
    if not missing:
        return None
    return Limit(f"it does not fit: it takes {', '.join(missing)}", METRIC, severity="refusal")


def _without_frequency(name: str, why: str) -> ClockOut:
    return ClockOut(clock=name, fmax_mhz=None, missing=why, critical_path=[], breakdown_ps={})


def _clocks(
    assembly: Assembly, names: Sequence[str], part: NetlistBoost, limits: list[Limit]
) -> list[ClockOut]:
    """Each clock with its frequency, the slowest first; further limits are added to `limits`."""
    timed = part.timed(assembly.netlist, assembly.clocks)
    predictions = part.predict_clocks([timed[name] for name in names])
    common, clocks = tuple(limits), []
    for name, prediction in zip(names, predictions, strict=True):
        check()
        limits += prediction.limits
        estimate = prediction.estimates.get(METRIC)
        if estimate is None or not np.isfinite(estimate.value):
            clocks.append(_without_frequency(name, prediction.withheld.get(METRIC, NO_PATH)))
            continue
        steps, breakdown = _path(assembly, timed[name])
        breakdown["placement"] = MHZ_PS / estimate.value - sum(breakdown.values())
        trust = trust_by([*prediction.limits, *common])
        clocks.append(
            ClockOut(
                clock=name,
                fmax_mhz=graded(METRIC, estimate, trust),
                missing=None,
                critical_path=steps,
                breakdown_ps=breakdown,
            )
        )
    return sorted(clocks, key=lambda own: np.inf if own.fmax_mhz is None else own.fmax_mhz.value)


def _part_of(predictor: Predictor) -> NetlistBoost:
    """The part of a predictor that answers queries about circuits.

    Raises:
        UnanswerableQuery: no part was trained on circuits.
    """
    for part in predictors_in(predictor):
        if isinstance(part, NetlistBoost) and part.delays is not None:
            return part
    raise UnanswerableQuery(
        "No predictor in use was trained on circuits: `forerun train netlist_boost` fits one."
    )


def _path(assembly: Assembly, paths: TimedPaths) -> tuple[list[PathStepOut], dict[str, float]]:
    """The connections of the longest path, and the parts of its time."""
    graph, net_ps, arcs = paths.graph, paths.net_ps, assembly.netlist.arcs
    arrivals = graph.arrivals_ps(net_ps[:, None])[:, 0]
    at = {pin: float(arrival) for pin, arrival in zip(graph.pins, arrivals, strict=True)}
    steps, reached = [], 0.0
    for own in paths.critical:
        arc, connection = paths.arcs[own], float(net_ps[own])
        arrival = at[int(arcs.sink[arc]), arcs.sink_port[arc]]
        steps.append(
            PathStepOut(
                source=f"{assembly.names[arcs.source[arc]]}.{arcs.source_port[arc]}",
                sink=f"{assembly.names[arcs.sink[arc]]}.{arcs.sink_port[arc]}",
                cell_ps=arrival - connection - reached,
                connection_ps=connection,
                arrival_ps=arrival,
            )
        )
        reached = arrival
    period = float(graph.period_ps(net_ps[:, None])[0])
    return steps, {
        "cells": sum(step.cell_ps for step in steps),
        "connections": sum(step.connection_ps for step in steps),
        "setup": period - reached,
    }
