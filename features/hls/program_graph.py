"""Loops of a program graph: their nesting, trip counts and operations per iteration.

A loop is a basic block that a later block jumps back to (Aho et al.: natural loops). Its trip count
follows from the comparison in that block, the store before it and the step at its end. A bound that
is another loop's variable is replaced by that variable's mean, so that triangular nests get their
mean trip count.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from forerun.data.program import ProgramGraph
from forerun.features.hls.instructions import NAN, Instructions

UNKNOWN_TRIPS = 8.0
"""Assumed trips of a loop whose bound is read from memory, such as a sparse matrix's row."""

_PLACE = re.compile(r"auto\{(\w+)\}")
_DIRECTIVE = re.compile(r"__(PARA|PIPE|TILE)__")


@dataclass(frozen=True)
class Loop:
    """One loop of a program.

    Attributes:
        parent: position of the enclosing loop; -1 for an outermost one.
        depth: number of enclosing loops.
        trips: mean iterations per entry.
        entered: mean entries per run of the program.
        counts: operations per iteration outside inner loops, by kind.
        places: `PARA`, `PIPE`, `TILE` -> name of the directive's slot, where it has one.
        reduction: whether a directive declares it a reduction.
        carried: whether an iteration adds to a floating-point number that the previous one wrote.
        reached: elements of each array that it accesses in one run of the program.
    """

    parent: int
    depth: int
    trips: float
    entered: float
    counts: Mapping[str, int]
    places: Mapping[str, str] = field(default_factory=dict)
    reduction: bool = False
    carried: bool = False
    reached: Mapping[str, float] = field(default_factory=dict)


Index = tuple[int, ...]
"""Positions of the loops whose variables an index of an array depends on."""

Dimension = tuple[Index, ...]
"""The distinct indices of one array dimension, over all accesses."""


@dataclass(frozen=True)
class LoopNest:
    """Loops of a program, outer before inner.

    Attributes:
        loops: all loops.
        wide: share of floating-point operations in double precision.
        arrays: dimensions of each array that loops index.
    """

    loops: tuple[Loop, ...]
    wide: float
    arrays: tuple[tuple[Dimension, ...], ...] = ()

    def inside(self, parent: int) -> list[int]:
        """Positions of the loops directly inside one; of outermost loops for -1."""
        return [i for i, loop in enumerate(self.loops) if loop.parent == parent]

    def around(self, position: int) -> list[int]:
        """Positions of a loop and its enclosing loops, innermost first."""
        chain = []
        while position >= 0:
            chain.append(position)
            position = self.loops[position].parent
        return chain


@lru_cache(maxsize=256)
def loop_nest(program: ProgramGraph) -> LoopNest:
    """The loops of a program, cached by its content."""
    return _Reader(program).nest()


class _Reader:
    """Finds the loops of a program, then analyses the blocks of each."""

    def __init__(self, program: ProgramGraph) -> None:
        self._program = program
        self._code = Instructions(_lines(program))
        self._after = _successors(program)
        self._bodies = _natural_loops(self._after)
        self._heads = sorted(self._bodies, key=lambda head: (-len(self._bodies[head]), head))
        self._trips: dict[int, float] = {}
        self._variable: dict[int, tuple[str, float]] = {}
        for head in self._heads:
            self._read_range(head)

    def nest(self) -> LoopNest:
        """All loops, outer before inner; a program without loops counts as one that runs once."""
        if not self._heads:
            counts = self._code.counts(sorted(self._code.blocks))
            return LoopNest((Loop(-1, 0, 1.0, 1.0, counts),), self._code.wide)
        loops: list[Loop] = []
        for number, head in enumerate(self._heads):
            loops.append(self._loop(head, self._parent(number), loops))
        return LoopNest(tuple(loops), self._code.wide, self._arrays())

    def _loop(self, head: int, parent: int, loops: Sequence[Loop]) -> Loop:
        blocks = self._own(head)
        outer = loops[parent] if parent >= 0 else None
        places, reduction = _places(self._program, head)
        counter = self._variable.get(head, ("", NAN))[0]
        return Loop(
            parent=parent,
            depth=outer.depth + 1 if outer else 0,
            trips=self._trips[head],
            entered=outer.entered * outer.trips if outer else 1.0,
            counts=self._code.counts(blocks),
            places=places,
            reduction=reduction,
            carried=any(counter not in names for _, names in self._code.sums(blocks)),
            reached=self._reached(head, blocks),
        )

    def _own(self, head: int) -> list[int]:
        """Blocks of a loop outside its inner loops."""
        inner = [b for h, b in self._bodies.items() if h != head and b < self._bodies[head]]
        return sorted(self._bodies[head] - frozenset().union(*inner))

    def _arrays(self) -> tuple[tuple[Dimension, ...], ...]:
        """Dimensions of each array, with the loops that index them."""
        found: dict[str, dict[int, dict[Index, None]]] = {}
        for head in self._heads:
            loops = {self._variable[h][0]: self._heads.index(h) for h in self._around(head)}
            lines = (line for block in self._own(head) for line in self._code.blocks.get(block, ()))
            for name, indices in filter(None, map(self._code.indexed, lines)):
                for place, variables in enumerate(indices):
                    index = tuple(sorted(loops[v] for v in variables if v in loops))
                    if index:
                        found.setdefault(name, {}).setdefault(place, {})[index] = None
        arrays = (tuple(tuple(found[name][at]) for at in sorted(found[name])) for name in found)
        return tuple(arrays)

    def _parent(self, number: int) -> int:
        head = self._heads[number]
        around = [i for i in range(number) if head in self._bodies[self._heads[i]]]
        return min(around, key=lambda i: len(self._bodies[self._heads[i]]), default=-1)

    def _around(self, head: int) -> list[int]:
        """Heads of the loops around a block, including its own, outer before inner."""
        return [h for h in self._heads if head in self._bodies[h] and h in self._variable]

    def _reached(self, head: int, blocks: Sequence[int]) -> dict[str, float]:
        trips = {self._variable[h][0]: self._trips[h] for h in self._around(head)}
        found: dict[str, float] = {}
        for line in (line for block in blocks for line in self._code.blocks.get(block, ())):
            place = self._code.accessed(line)
            if place is not None:
                elements = 1.0
                for name in place[1]:
                    elements *= trips.get(name, 1.0)
                found[place[0]] = max(found.get(place[0], 0.0), elements)
        return found

    def _read_range(self, head: int) -> None:
        """Set a loop's trip count and its variable's mean; outer loops must come first."""
        self._trips[head] = UNKNOWN_TRIPS
        compared = self._code.compared(head)
        if compared is None:
            return
        variable, predicate, operand = compared
        start = self._start(head, variable)
        end = self._code.value(operand, self._means(head))
        end += {"sle": 1.0, "ule": 1.0, "sge": -1.0, "uge": -1.0}.get(predicate, 0.0)
        body = self._bodies[head]
        stored = [v for b in body for v, place in self._code.stores(b) if place == variable]
        steps = [abs(s) for s in map(self._code.step, stored) if s]
        trips = abs(end - start) / (steps[0] if steps else 1.0)
        if trips == trips:
            self._trips[head] = max(trips, 1.0)
        self._variable[head] = variable, (start + end - 1.0) / 2.0

    def _start(self, head: int, variable: str) -> float:
        before = [b for b, n in self._after.items() if head in n and b not in self._bodies[head]]
        stored = [v for b in before for v, place in self._code.stores(b) if place == variable]
        return self._code.value(stored[-1], self._means(head)) if stored else NAN

    def _means(self, head: int) -> dict[str, float]:
        return dict(self._variable[h] for h in self._around(head))


def _lines(program: ProgramGraph) -> dict[int, list[str]]:
    """Instructions of each block, in order."""
    found: dict[int, list[str]] = {}
    for kind, text, block in zip(program.types, program.full_texts, program.blocks, strict=True):
        if kind == 0 and text:
            found.setdefault(block, []).append(text)
    return found


def _successors(program: ProgramGraph) -> dict[int, set[int]]:
    """Block -> blocks of the same function that it jumps to."""
    types, blocks, functions = program.types, program.blocks, program.functions
    after: dict[int, set[int]] = {b: set() for b, t in zip(blocks, types, strict=True) if t == 0}
    for one, other, flow, _ in program.edges:
        if flow != 0 or types[one] != 0 or types[other] != 0:
            continue
        if functions[one] == functions[other] and blocks[one] != blocks[other]:
            after[blocks[one]].add(blocks[other])
    return after


def _natural_loops(after: Mapping[int, set[int]]) -> dict[int, frozenset[int]]:
    """Head -> blocks of its loop: those that reach a back jump without passing the head."""
    before: dict[int, set[int]] = {block: set() for block in after}
    for block, nexts in after.items():
        for other in nexts:
            before[other].add(block)
    dominators = _dominators(before)
    found: dict[int, set[int]] = {}
    for block, nexts in after.items():
        for head in nexts & dominators[block]:
            body, rest = found.setdefault(head, {head}), [block]
            while rest:
                member = rest.pop()
                if member not in body:
                    body.add(member)
                    rest.extend(before[member])
    return {head: frozenset(body) for head, body in found.items()}


def _dominators(before: Mapping[int, set[int]]) -> dict[int, set[int]]:
    """Block -> its dominators, the blocks that every path to it passes."""
    dominators = {b: set(before) if before[b] else {b} for b in before}
    changed = True
    while changed:
        changed = False
        for block in sorted(before):
            if before[block]:
                through = set.intersection(*(dominators[b] for b in before[block])) | {block}
                if through != dominators[block]:
                    dominators[block], changed = through, True
    return dominators


def _places(program: ProgramGraph, head: int) -> tuple[dict[str, str], bool]:
    """Slots for directives at a loop's head, and whether one declares it a reduction."""
    places, reduction = {}, False
    for kind, text, block in zip(program.types, program.full_texts, program.blocks, strict=True):
        place = _PLACE.search(text) if kind == 3 and block == head else None
        directive = _DIRECTIVE.match(place[1]) if place else None
        if place and directive:
            places[directive[1]] = place[1]
            reduction |= "reduction" in text
    return places, reduction
