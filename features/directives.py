"""A hardware design as numbers: what its directives make of each loop of its program.

`PARA` copies a loop's body, `TILE` blocks it, `PIPE` overlaps its iterations: `off`, `flatten`
(everything inside is unrolled) or nothing (the default: inner stages overlap). Innermost loops are
pipelined unless told otherwise. So every innermost loop has a count of sequential steps and a count
of copies of its operations; bounds on cycles and on DSP blocks follow, and a design is described by
these bounds, by the sums over its loops and by its busiest loop.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from forerun.data.workload import Design
from forerun.features.program_graph import Loop, LoopNest, loop_nest

Column = NDArray[np.float64]
Row = dict[str, float]
DSP_OF: Mapping[str, float] = {"fadd": 3.0, "fmul": 11.0, "fdiv": 0.0, "imul": 3.0}
"""DSP blocks of one operator in double precision (AMD floating-point operator guide, PG060)."""

DELAY_OF: Mapping[str, float] = {"fadd": 7.0, "fmul": 6.0, "fdiv": 30.0, "load": 2.0, "call": 20.0}
"""Clock cycles until an operator's answer is there."""

DSP_BLOCKS = 6840.0
SUM_DELAY = 5.0
"""Cycles between two iterations that add to the same floating-point number."""

LEVELS = 4
PIPES = {"off": 0.0, "": 1.0, "flatten": 2.0}


@dataclass(frozen=True, slots=True)
class Directed:
    """One loop under directives.

    Attributes:
        loop: of the program.
        copies: of its body.
        pipe: `off`, `flatten`, nothing for the default; None where no directive can stand.
        tile: block length.
        unrolled: whether a flattened loop around it unrolls it.
    """

    loop: Loop
    copies: float
    pipe: str | None
    tile: float
    unrolled: bool

    @property
    def steps(self) -> float:
        """Sequential iterations that are left."""
        return float(np.ceil(self.loop.trips / self.copies - 1e-9))


def directed_loops(design: Design) -> list[Directed]:
    """Every loop of a design's program, in the order of its nest."""
    nest, values = loop_nest(design.program), dict(design.directives)
    found: list[Directed] = []
    for loop in nest.loops:
        around = found[loop.parent] if loop.parent >= 0 else None
        unrolled = around is not None and (around.unrolled or around.pipe == "flatten")
        place = loop.places.get("PIPE")
        copies = loop.trips if unrolled else _factor(values, loop, "PARA")
        pipe = values.get(place, "off") if place else None
        found.append(
            Directed(loop, min(copies, loop.trips), pipe, _factor(values, loop, "TILE"), unrolled)
        )
    return found


def _factor(values: Mapping[str, str], loop: Loop, directive: str) -> float:
    try:
        return max(float(values.get(loop.places.get(directive, ""), "1")), 1.0)
    except ValueError:
        return 1.0


def cycles_bound(nest: LoopNest, loops: Sequence[Directed], at: int) -> float:
    """Cycles of one loop, if memory were free and each directive obeyed."""
    one = loops[at]
    inner = nest.inside(at)
    delay = sum(DELAY_OF.get(kind, 1.0) * n for kind, n in one.loop.counts.items() if n)
    if not inner or one.pipe == "flatten":
        depth = delay + sum(_chain(nest, loops, i) for i in inner)
        carried = any(loops[i].loop.carried for i in (at, *inner)) and one.loop.carried
        return depth + (one.steps - 1.0) * (SUM_DELAY if carried else 1.0)
    parts = [cycles_bound(nest, loops, i) for i in inner]
    return one.steps * ((max(parts) if one.pipe == "" else sum(parts)) + delay) + 2.0


def _chain(nest: LoopNest, loops: Sequence[Directed], at: int) -> float:
    """Depth of an unrolled loop: its operations and a tree of sums."""
    one = loops[at]
    delay = sum(DELAY_OF.get(kind, 1.0) * n for kind, n in one.loop.counts.items() if n)
    tree = DELAY_OF["fadd"] * np.log2(one.loop.trips) if one.loop.carried else 0.0
    return float(delay + tree + sum(_chain(nest, loops, i) for i in nest.inside(at)))


def leaf_row(nest: LoopNest, loops: Sequence[Directed], at: int) -> Row:
    """Numbers of one innermost loop and the loops around it, copies and steps as logarithms."""
    chain = [loops[i] for i in nest.around(at)]
    flat = [one for one in chain if one.unrolled or one.pipe == "flatten"]
    counts = chain[0].loop.counts
    scale = max(nest.wide, 0.3)
    dsp = scale * sum(DSP_OF.get(kind, 0.0) * n for kind, n in counts.items()) / DSP_BLOCKS
    row = {
        "steps": sum(np.log2(one.steps) for one in chain),
        "copies": sum(np.log2(one.copies) for one in chain),
        "near_copies": np.log2(chain[0].copies) + sum(np.log2(o.copies) for o in flat[1:]),
        "work": np.log2(chain[0].loop.entered * chain[0].loop.trips),
        "operations": float(sum(counts.values())),
        "dsp": dsp,
        "carried": float(chain[0].loop.carried),
        "reduction": float(chain[0].loop.reduction),
        "flat": float(len(flat)),
    }
    for level in range(LEVELS):
        one = chain[level] if level < len(chain) else None
        row[f"copies_{level}"] = np.log2(one.copies) if one and not one.unrolled else -1.0
        row[f"trips_{level}"] = np.log2(one.loop.trips) if one else -1.0
        row[f"pipe_{level}"] = -1.0 if one is None or one.pipe is None else PIPES[one.pipe]
        row[f"tile_{level}"] = np.log2(one.tile) if one else -1.0
        row[f"ragged_{level}"] = one.steps * one.copies / one.loop.trips - 1.0 if one else -1.0
    return row


def design_row(design: Design) -> Row:
    """Named features of a design; logarithms to base 2."""
    nest, loops = loop_nest(design.program), directed_loops(design)
    leaves = [leaf_row(nest, loops, at) for at in range(len(loops)) if not nest.inside(at)]
    outer = [cycles_bound(nest, loops, at) for at in nest.inside(-1)]
    copies = np.array([leaf["copies"] for leaf in leaves])
    near = np.array([leaf["near_copies"] for leaf in leaves])
    dsp = np.array([leaf["dsp"] for leaf in leaves])
    steps = np.array([leaf["steps"] for leaf in leaves])
    busiest = leaves[int(np.argmax(steps))]
    widest = leaves[int(np.argmax(dsp * 2.0**near))]
    row = {
        "log_cycles": float(np.log2(sum(outer))),
        "log_longest": float(np.log2(max(outer))),
        "log_steps": float(np.log2(np.sum(2.0**steps))),
        "dsp_all": _log_share(np.sum(dsp * 2.0**copies)),
        "dsp_near": _log_share(np.sum(dsp * 2.0**near)),
        "dsp_widest": _log_share(np.max(dsp * 2.0**near)),
        "copies_most": float(copies.max()),
        "copies_sum": float(np.log2(np.sum(2.0**copies))),
        "leaves": float(len(leaves)),
        **_whole(nest, loops),
    }
    row.update({f"busiest_{name}": float(value) for name, value in busiest.items()})
    row.update({f"widest_{name}": float(value) for name, value in widest.items()})
    return row


def _whole(nest: LoopNest, loops: Sequence[Directed]) -> Row:
    """Sums over all loops, and what the program alone says."""
    work = [one.loop.entered * one.loop.trips for one in loops]
    total = {
        kind: sum(one.loop.counts[kind] * w for one, w in zip(loops, work, strict=True))
        for kind in loops[0].loop.counts
    }
    static = {kind: sum(one.loop.counts[kind] for one in loops) for kind in total}
    reached: dict[str, float] = {}
    for one in loops:
        for name, elements in one.loop.reached.items():
            reached[name] = max(reached.get(name, 0.0), elements)
    pipes = [one.pipe for one in loops if not one.unrolled]
    row = {f"total_{kind}": float(np.log2(1.0 + n)) for kind, n in total.items()}
    row.update({f"static_{kind}": float(n) for kind, n in static.items()})
    row.update({f"pipes_{name or 'on'}": float(pipes.count(name)) for name in PIPES})
    row["unrolled"] = float(sum(one.unrolled for one in loops))
    row["para"] = float(sum(np.log2(one.copies) for one in loops if not one.unrolled))
    row["para_outer"] = float(
        sum(np.log2(o.copies) for i, o in enumerate(loops) if not o.unrolled and nest.inside(i))
    )
    row["tiles"] = float(sum(np.log2(one.tile) for one in loops if not one.unrolled))
    row["elements"] = float(np.log2(1.0 + sum(reached.values())))
    row["arrays"] = float(len(reached))
    row["wide"], row["loops"] = nest.wide, float(len(loops))
    row["depth"] = float(max(one.loop.depth for one in loops))
    return row


def _log_share(share: float) -> float:
    return float(np.log2(share + 1e-3))




def coordinates(design: Design) -> Column:
    """Place of a design among those of its program.

    Returns:
        (5 x loops,): log2 of copies, log2 of tile, and three flags for the kind of pipeline, zero
        where a flattened loop around makes the directive idle.
    """
    loops = directed_loops(design)
    row = np.zeros(5 * len(loops))
    for at, one in enumerate(loops):
        if not one.unrolled:
            pipe = [float(one.pipe == name) for name in PIPES]
            row[5 * at : 5 * at + 5] = [np.log2(one.copies), np.log2(one.tile), *pipe]
    return row
