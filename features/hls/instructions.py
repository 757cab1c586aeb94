"""Analyses unoptimised LLVM instructions: values, loop variables, array addresses.

In such code every scalar is in memory, so a register's value follows from the loads behind it.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property

KINDS = ("fadd", "fmul", "fdiv", "iadd", "imul", "compare", "load", "store", "call")
NAN = float("nan")
DEEPEST = 12
"""Longest chain of instructions followed; longer chains are assumed to depend on data."""

_KIND_OF = {
    **dict.fromkeys(("fadd", "fsub"), "fadd"),
    **dict.fromkeys(("fdiv", "frem"), "fdiv"),
    **dict.fromkeys(("add", "sub", "xor", "and", "or", "shl", "ashr", "lshr"), "iadd"),
    **dict.fromkeys(("icmp", "fcmp", "select"), "compare"),
    **dict.fromkeys(("sdiv", "udiv", "srem", "urem", "mul"), "imul"),
    **{kind: kind for kind in ("fmul", "load", "store", "call")},
}
_DEFINED = re.compile(r"(%[\w.]+) = (\w+)")
_STORE = re.compile(r"store (.+) (\S+), [^,]+\* (%[\w.]+)(?:,|$)")
_LOAD = re.compile(r"= load [^,]+, [^,]+\* (%[\w.]+)(?:,|$)")
_FLOAT_LOAD = re.compile(r"= load (?:double|float), ")
_COMPARE = re.compile(r"%[\w.]+ = icmp (\w+) \w+ (\S+), (\S+)")
_BINARY = re.compile(r"= (add|sub|mul)(?: nsw| nuw)* \w+ (\S+), (\S+)")
_CAST = re.compile(r"= (?:sext|zext|trunc) \w+ (\S+) to")
_ELEMENT = re.compile(r"= getelementptr (?:inbounds )?[^,]+, [^%]+\* (%[\w.]+), (.+)")
_FLOAT = re.compile(r"\b(?:fadd|fsub|fmul|fdiv) (double|float)")

Address = tuple[str, frozenset[str]]
"""An array, and the variables that its index depends on."""

Indices = tuple[str, tuple[frozenset[str], ...]]
"""An array, and the variables that each non-constant index depends on."""


class Instructions:
    """The instructions of a program, by basic block."""

    def __init__(self, blocks: Mapping[int, Sequence[str]]) -> None:
        """Store the texts of each block's instructions, in order."""
        self.blocks = blocks

    @cached_property
    def _defined(self) -> Mapping[str, str]:
        lines = (line for block in self.blocks.values() for line in block)
        return {found[1]: line for line in lines if (found := _DEFINED.match(line))}

    @cached_property
    def _stored(self) -> Mapping[str, frozenset[str]]:
        """Memory location -> operands that are ever stored there."""
        found: dict[str, set[str]] = {}
        for block in self.blocks:
            for value, place in self.stores(block):
                found.setdefault(place, set()).add(value)
        return {place: frozenset(values) for place, values in found.items()}

    def stores(self, block: int) -> Iterator[tuple[str, str]]:
        """(operand, location) of each store of a block."""
        for line in self.blocks.get(block, ()):
            found = _STORE.match(line)
            if found:
                yield found[2], found[3]

    def compared(self, block: int) -> tuple[str, str, str] | None:
        """(location of the variable, predicate, operand) of a block's first comparison of one."""
        for line in self.blocks.get(block, ()):
            found = _COMPARE.match(line)
            place = self.loaded_from(found[2]) if found else None
            if found and place is not None:
                return place, found[1], found[3]
        return None

    def loaded_from(self, register: str, depth: int = 0) -> str | None:
        """The memory location that a register was loaded from, through casts."""
        line = self._defined.get(register, "")
        loaded, cast = _LOAD.search(line), _CAST.search(line)
        if loaded:
            return loaded[1]
        return self.loaded_from(cast[1], depth + 1) if cast and depth < DEEPEST else None

    def step(self, register: str) -> float:
        """The constant that a register adds to something; 0 if it is not such a sum."""
        found = _BINARY.search(self._defined.get(register, ""))
        if found and found[1] in ("add", "sub") and re.fullmatch(r"-?\d+", found[3]):
            return float(found[3])
        return 0.0

    def value(self, operand: str, means: Mapping[str, float], depth: int = 0) -> float:
        """Mean value of an operand; NaN where it depends on data.

        Args:
            operand: a register or a constant.
            means: location of a loop's variable -> its mean.
            depth: instructions followed so far.
        """
        if re.fullmatch(r"-?\d+", operand):
            return float(operand)
        line = self._defined.get(operand, "")
        if depth > DEEPEST or not line:
            return NAN
        binary, cast, loaded = _BINARY.search(line), _CAST.search(line), _LOAD.search(line)
        if binary:
            one, other = (self.value(binary[i], means, depth + 1) for i in (2, 3))
            return {"add": one + other, "sub": one - other, "mul": one * other}[binary[1]]
        if cast:
            return self.value(cast[1], means, depth + 1)
        if not loaded:
            return NAN
        if loaded[1] in means:
            return means[loaded[1]]
        stored = self._stored.get(loaded[1], frozenset())
        return self.value(next(iter(stored)), means, depth + 1) if len(stored) == 1 else NAN

    def address(self, register: str) -> Address | None:
        """The array element that a register points to; None for a scalar's location."""
        found = self.indices(register)
        return (found[0], frozenset().union(*found[1])) if found else None

    def indices(self, register: str, depth: int = 0) -> Indices | None:
        """`address` with the variables of each index, from the first dimension to the last."""
        line = self._defined.get(register, "")
        element, loaded = _ELEMENT.search(line), _LOAD.search(line)
        if element is None or depth > DEEPEST:
            return (loaded[1], ()) if loaded and depth else None
        root, names = self.indices(element[1], depth + 1) or (element[1], ())
        for index in element[2].split(", "):
            operand = index.split(" ")[-1]
            if not operand.lstrip("-").isdigit():
                names = (*names, self._depends(operand))
        return root, names

    def _depends(self, operand: str, depth: int = 0) -> frozenset[str]:
        """Locations of the variables that an operand is computed from."""
        line = self._defined.get(operand, "")
        binary, cast, loaded = _BINARY.search(line), _CAST.search(line), _LOAD.search(line)
        if depth > DEEPEST:
            return frozenset()
        if binary:
            return self._depends(binary[2], depth + 1) | self._depends(binary[3], depth + 1)
        if cast:
            return self._depends(cast[1], depth + 1)
        if not loaded:
            return frozenset()
        stored = self._stored.get(loaded[1], frozenset())
        if len(stored) == 1 and depth < DEEPEST:
            return frozenset({loaded[1]}) | self._depends(next(iter(stored)), depth + 1)
        return frozenset({loaded[1]})

    def counts(self, blocks: Sequence[int]) -> dict[str, int]:
        """Operations by kind; only array loads and stores count, since scalars become registers."""
        counts: Counter[str] = Counter()
        for line in (line for block in blocks for line in self.blocks.get(block, ())):
            found = _DEFINED.match(line)
            kind = _KIND_OF.get(found[2] if found else line.split(" ", 1)[0])
            if kind in ("load", "store") and self.accessed(line) is None:
                continue
            if kind is not None:
                counts[kind] += 1
        return {kind: counts[kind] for kind in KINDS}

    def accessed(self, line: str) -> Address | None:
        """The array element that a load or store accesses; None for scalars and other lines."""
        place = _place(line)
        return self.address(place) if place is not None else None

    def indexed(self, line: str) -> Indices | None:
        """`accessed` with the variables of each index."""
        place = _place(line)
        return self.indices(place) if place is not None else None

    def sums(self, blocks: Sequence[int]) -> Iterator[Address]:
        """Floating-point locations that these blocks both read and write; scalars have no index."""
        lines = [line for block in blocks for line in self.blocks.get(block, ())]
        read = {self._touched(line) for line in lines if _FLOAT_LOAD.search(line)}
        written = {self._touched(line) for line in lines if _STORE.match(line)}
        yield from (place for place in read & written if place is not None)

    def _touched(self, line: str) -> Address | None:
        place = _place(line)
        if place is None:
            return None
        return self.address(place) or (place, frozenset())

    @property
    def wide(self) -> float:
        """Share of floating-point instructions in double precision; 0 if there are none."""
        lines = (line for block in self.blocks.values() for line in block)
        types = [found[1] for line in lines if (found := _FLOAT.search(line))]
        return types.count("double") / len(types) if types else 0.0


def _place(line: str) -> str | None:
    """The register or scalar that a load reads from or a store writes to."""
    found, stored = _LOAD.search(line), _STORE.match(line)
    return found[1] if found else stored[3] if stored else None
