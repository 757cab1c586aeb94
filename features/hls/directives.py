"""Directives of a hardware design by loop, and features that describe their effect.

`PARA` copies a loop's body, `TILE` blocks it, `PIPE` overlaps its iterations: `off`, `flatten`
(everything inside is unrolled) or empty (the default: inner stages overlap). Innermost loops are
pipelined unless a directive disables it. Every innermost loop thus has a number of sequential steps
and a number of copies of its operations, which bound cycles and DSP blocks. A design is described
by these bounds, by sums over its loops and by its busiest loop. Directives are values of the slots
of a program, each of which accepts certain values (`check_directives`).
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from forerun.data.errors import BadDesign, in_field
from forerun.data.program import ProgramGraph
from forerun.data.workload import Design
from forerun.features.hls.instructions import KINDS
from forerun.features.hls.program_graph import Loop, LoopNest, loop_nest

_SLOT = re.compile(r"__(PARA|PIPE|TILE)__(\w+)")
NEUTRAL: Final[Mapping[str, str]] = {"PARA": "1", "PIPE": "off", "TILE": "1"}
"""Kind of directive -> the value without effect, which absent directives have."""
_WORDS: Final[Mapping[str, str]] = {"PARA": "parallel", "PIPE": "pipeline", "TILE": "tile"}


def directives_by_loop(design: Design) -> dict[str, dict[str, str]]:
    """Loop, as slots name it -> slot -> value; only values that have an effect."""
    found: dict[str, dict[str, str]] = {}
    for slot, value in sorted(dict(design.directives).items()):
        match = _SLOT.fullmatch(slot)
        kind, loop = match.groups() if match else ("", slot)
        if value != NEUTRAL.get(kind):
            found.setdefault(loop, {})[slot] = value
    return found


def only_on(design: Design, loops: Collection[str]) -> Design:
    """The design with only the directives on these loops.

    Args:
        design: any design.
        loops: names as in `directives_by_loop`.
    """
    by_loop = directives_by_loop(design)
    kept = {slot: value for loop in loops for slot, value in by_loop[loop].items()}
    neutral = {slot: _neutral(slot) for slot in dict(design.directives)}
    return replace(design, directives=tuple(sorted({**neutral, **kept}.items())))


def loop_label(loop: str, directives: Mapping[str, str]) -> str:
    """The loop with its directives in words, such as `loop L0: pipeline flatten, parallel 4`."""
    words = []
    for slot, value in directives.items():
        match = _SLOT.fullmatch(slot)
        words.append(f"{_WORDS[match[1]] if match else slot} {value or 'on'}")
    return f"loop {loop}: {', '.join(words)}"


def _neutral(slot: str) -> str:
    match = _SLOT.fullmatch(slot)
    return NEUTRAL[match[1]] if match else ""


Row = dict[str, float]
DSP_OF: Mapping[str, float] = {"fadd": 3.0, "fmul": 11.0, "fdiv": 0.0, "imul": 3.0}
"""DSP blocks per double-precision operator (AMD floating-point operator guide, PG060)."""

DELAY_OF: Mapping[str, float] = {"fadd": 7.0, "fmul": 6.0, "fdiv": 30.0, "load": 2.0, "call": 20.0}
"""Latency of an operator in clock cycles."""

DSP_BLOCKS = 6840.0
LEAST_SHARE = 1e-3
LEVELS = 4
PIPES = {"off": 0.0, "": 1.0, "flatten": 2.0}


@dataclass(frozen=True, slots=True)
class Directed:
    """One loop under directives.

    Attributes:
        loop: the loop of the program.
        copies: copies of its body.
        pipe: `off`, `flatten`, empty for the default; None without a slot for the directive.
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
        """Number of sequential iterations after unrolling."""
        return float(np.ceil(self.loop.trips / self.copies - 1e-9))


@lru_cache(maxsize=4096)
def directed_loops(design: Design) -> tuple[Directed, ...]:
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
    return tuple(found)


def _factor(values: Mapping[str, str], loop: Loop, directive: str) -> float:
    try:
        return max(float(values.get(loop.places.get(directive, ""), "1")), 1.0)
    except ValueError:
        return 1.0


@dataclass(frozen=True, slots=True)
class Timing:
    """Assumptions of an idealised synthesis.

    Attributes:
        depth: cycles until a pipeline's first iteration is done; None counts operators.
        carried: cycles between iterations that accumulate into one number.
        overlaps: whether a pipelined outer loop runs its inner loops in parallel.
    """

    depth: float | None
    carried: float
    overlaps: bool


TIMINGS: Mapping[str, Timing] = {
    "": Timing(None, 5.0, overlaps=True),
    "_summed": Timing(60.0, 12.0, overlaps=True),
    "_free": Timing(20.0, 1.0, overlaps=False),
}
"""Suffix of a feature -> timing: by operators, as observed on plain sums, and without latency."""


def cycles_bound(nest: LoopNest, loops: Sequence[Directed], at: int, timing: Timing) -> float:
    """Cycles of one loop with free memory accesses and all directives applied."""
    directed, inner = loops[at], nest.inside(at)
    if not inner or directed.pipe == "flatten":
        fill = _fill(nest, loops, at) if timing.depth is None else timing.depth
        fill += 8.0 * np.log2(directed.copies)
        apart = timing.carried if directed.loop.carried else 1.0
        return float(fill + (directed.steps - 1.0) * apart)
    parts = [cycles_bound(nest, loops, i, timing) for i in inner]
    together = timing.overlaps and directed.pipe == ""
    return directed.steps * ((max(parts) if together else sum(parts)) + 5.0)


def _fill(nest: LoopNest, loops: Sequence[Directed], at: int) -> float:
    """Depth of a pipeline: its operators in sequence, and an adder tree for each unrolled sum."""
    directed = loops[at]
    delay = sum(DELAY_OF.get(kind, 1.0) * n for kind, n in directed.loop.counts.items() if n)
    tree = (
        DELAY_OF["fadd"] * np.log2(directed.loop.trips)
        if directed.loop.carried and directed.unrolled
        else 0.0
    )
    return float(delay + tree + sum(_fill(nest, loops, i) for i in nest.inside(at)))


def leaf_row(nest: LoopNest, loops: Sequence[Directed], at: int) -> Row:
    """Features of one innermost loop and the loops around it, copies and steps as logarithms."""
    chain = [loops[i] for i in nest.around(at)]
    flat = [directed for directed in chain if directed.unrolled or directed.pipe == "flatten"]
    counts = chain[0].loop.counts
    scale = max(nest.wide, 0.3)
    dsp = scale * sum(DSP_OF.get(kind, 0.0) * n for kind, n in counts.items()) / DSP_BLOCKS
    row = {
        "steps": sum(np.log2(directed.steps) for directed in chain),
        "copies": sum(np.log2(directed.copies) for directed in chain),
        "near_copies": np.log2(chain[0].copies) + sum(np.log2(o.copies) for o in flat[1:]),
        "work": np.log2(chain[0].loop.entered * chain[0].loop.trips),
        "operations": float(sum(counts.values())),
        "dsp": dsp,
        "carried": float(chain[0].loop.carried),
        "reduction": float(chain[0].loop.reduction),
        "flat": float(len(flat)),
    }
    for level in range(LEVELS):
        directed = chain[level] if level < len(chain) else None
        row[f"copies_{level}"] = (
            np.log2(directed.copies) if directed and not directed.unrolled else -1.0
        )
        row[f"trips_{level}"] = np.log2(directed.loop.trips) if directed else -1.0
        row[f"pipe_{level}"] = (
            -1.0 if directed is None or directed.pipe is None else PIPES[directed.pipe]
        )
        row[f"tile_{level}"] = np.log2(directed.tile) if directed else -1.0
        row[f"ragged_{level}"] = (
            directed.steps * directed.copies / directed.loop.trips - 1.0 if directed else -1.0
        )
    return row


@lru_cache(maxsize=50_000)
def design_row(design: Design) -> tuple[float, ...]:
    """Features of a design in the order of `DESIGN_FEATURES`; logarithms are to base 2."""
    row = _row(loop_nest(design.program), directed_loops(design))
    return tuple(row[name] for name in DESIGN_FEATURES)


def _row(nest: LoopNest, loops: Sequence[Directed]) -> Row:
    leaves = [leaf_row(nest, loops, at) for at in range(len(loops)) if not nest.inside(at)]
    copies = np.array([leaf["copies"] for leaf in leaves])
    near = np.array([leaf["near_copies"] for leaf in leaves])
    dsp = np.array([leaf["dsp"] for leaf in leaves])
    steps = np.array([leaf["steps"] for leaf in leaves])
    row = {
        "log_steps": float(np.log2(np.sum(2.0**steps))),
        "dsp_all": log_share(np.sum(dsp * 2.0**copies)),
        "dsp_near": log_share(np.sum(dsp * 2.0**near)),
        "dsp_widest": log_share(np.max(dsp * 2.0**near)),
        "copies_most": float(copies.max()),
        "copies_sum": float(np.log2(np.sum(2.0**copies))),
        "leaves": float(len(leaves)),
        **_whole(nest, loops),
    }
    for suffix, timing in TIMINGS.items():
        outer = [cycles_bound(nest, loops, at, timing) for at in nest.inside(-1)]
        row[f"log_cycles{suffix}"] = float(np.log2(sum(outer)))
        row[f"log_longest{suffix}"] = float(np.log2(max(outer)))
    busiest = leaves[int(np.argmax(steps))]
    widest = leaves[int(np.argmax(dsp * 2.0**near))]
    row.update({f"busiest_{name}": float(value) for name, value in busiest.items()})
    row.update({f"widest_{name}": float(value) for name, value in widest.items()})
    return row


def _whole(nest: LoopNest, loops: Sequence[Directed]) -> Row:
    """Sums over all loops, and features of the program without directives."""
    work = [directed.loop.entered * directed.loop.trips for directed in loops]
    total = {
        kind: sum(directed.loop.counts[kind] * w for directed, w in zip(loops, work, strict=True))
        for kind in loops[0].loop.counts
    }
    static = {kind: sum(directed.loop.counts[kind] for directed in loops) for kind in total}
    reached: dict[str, float] = {}
    for directed in loops:
        for name, elements in directed.loop.reached.items():
            reached[name] = max(reached.get(name, 0.0), elements)
    pipes = [directed.pipe for directed in loops if not directed.unrolled]
    row = {f"total_{kind}": float(np.log2(1.0 + n)) for kind, n in total.items()}
    row.update({f"static_{kind}": float(n) for kind, n in static.items()})
    row.update({f"pipes_{name or 'on'}": float(pipes.count(name)) for name in PIPES})
    row["unrolled"] = float(sum(directed.unrolled for directed in loops))
    row["para"] = float(
        sum(np.log2(directed.copies) for directed in loops if not directed.unrolled)
    )
    row["para_outer"] = float(
        sum(np.log2(o.copies) for i, o in enumerate(loops) if not o.unrolled and nest.inside(i))
    )
    row["tiles"] = float(sum(np.log2(directed.tile) for directed in loops if not directed.unrolled))
    row["elements"] = float(np.log2(1.0 + sum(reached.values())))
    row["arrays"] = float(len(reached))
    row["wide"], row["loops"] = nest.wide, float(len(loops))
    row["depth"] = float(max(directed.loop.depth for directed in loops))
    return row


def log_share(share: float) -> float:
    """Log2 of a share of the chip, offset by a thousandth."""
    return float(np.log2(share + LEAST_SHARE))


PLACE_COLUMNS = ("copies", "several", "all", "ragged", "tile", "tiled", "off", "on", "flatten")


@lru_cache(maxsize=50_000)
def coordinates(design: Design) -> tuple[float, ...]:
    """Coordinates of a design among those of its program, `PLACE_COLUMNS` for each loop.

    Returns:
        log2 of copies; flags for more than one, as many as iterations, a remainder; log2 of the
        tile and a flag; three flags for the pipeline. Zero where an enclosing flattened loop makes
        the directives ineffective. Each is weighted by the (log) share of work inside the loop.
    """
    loops = directed_loops(design)
    work = [np.log2(directed.loop.entered * directed.loop.trips) for directed in loops]
    row: list[float] = []
    for directed, amount in zip(loops, work, strict=True):
        flags = (
            directed.copies > 1,
            directed.copies >= directed.loop.trips,
            directed.steps * directed.copies > directed.loop.trips * (1 + 1e-6),
        )
        pipes = [directed.pipe == name for name in PIPES]
        values = [
            np.log2(directed.copies),
            *flags,
            np.log2(directed.tile),
            directed.tile > 1,
            *pipes,
        ]
        weight = 0.0 if directed.unrolled else amount / max(*work, 1.0)
        row += [float(value * weight) for value in values]
    return tuple(row)


def _single_loop() -> Row:
    counts = dict.fromkeys(KINDS, 1)
    loop = Loop(-1, 0, 2.0, 1.0, counts)
    return _row(LoopNest((loop,), 1.0), [Directed(loop, 1.0, "off", 1.0, unrolled=False)])


DESIGN_FEATURES: tuple[str, ...] = tuple(_single_loop())
"""Names of the features, in order."""


_SLOTS_SLOT = re.compile(r"auto\{(\w+)\}")
LARGEST_FACTOR = 2**31


def slots_of(program: ProgramGraph) -> tuple[str, ...]:
    """Names of the slots of a program, such as `__PIPE__L0`, sorted."""
    found = (_SLOTS_SLOT.search(text) for text in program.full_texts)
    return tuple(sorted({match[1] for match in found if match}))


def check_directives(program: ProgramGraph, directives: Mapping[str, str]) -> None:
    """Refuse directives without a slot in the program, and values that a slot does not accept.

    Raises:
        BadDesign: the message lists the slots, or the values; `field` is the slot.
    """
    slots = slots_of(program)
    for slot, value in directives.items():
        with in_field(slot):
            _check_directive(slot, value, slots)


def _check_directive(slot: str, value: str, slots: Sequence[str]) -> None:
    if slot not in slots:
        known = ", ".join(slots) or "none"
        raise BadDesign(f"The program has no slot {slot!r:.80}; its slots are {known}.")
    if slot.startswith("__PIPE__"):
        if value not in PIPES:
            known = ", ".join(map(repr, PIPES))
            raise BadDesign(f"{slot} is {value!r:.80}, not one of {known}.")
    elif not (value.isascii() and value.isdigit() and 1 <= int(value) <= LARGEST_FACTOR):
        raise BadDesign(f"{slot} is {value!r:.80}, not a whole number from 1.")
