"""A program as a graph: instructions, variables, constants and slots for hardware directives."""

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property


@dataclass(frozen=True)
class ProgramGraph:
    """n nodes and m edges of one program, in the form of ProGraML, without the program's name.

    Attributes:
        types: n values: 0 instruction, 1 variable, 2 constant, 3 slot of a directive.
        texts: short text of each node.
        full_texts: full text of each node, such as `#pragma ACCEL PIPELINE auto{__PIPE__L0}`.
        edges: (from, to, flow, position); flow 0 control, 1 data, 2 call, 3 directive.
        blocks: basic block of each node; for a directive, the head of its loop.
        functions: function of each node.
    """

    types: tuple[int, ...]
    texts: tuple[str, ...]
    full_texts: tuple[str, ...]
    edges: tuple[tuple[int, int, int, int], ...]
    blocks: tuple[int, ...]
    functions: tuple[int, ...]

    @cached_property
    def digest(self) -> str:
        """Content hash, 64 hexadecimal digits."""
        content = [self.types, self.texts, self.full_texts, self.edges, self.blocks, self.functions]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def __hash__(self) -> int:
        return hash(self.digest)
