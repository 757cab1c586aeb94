"""Finds decomposed root-mean-square norms, which 16-bit models run in 32 bits.

Hugging Face's modules copy the input to 32 bits, square, average and scale it, and convert the
result back before applying the weight (`LlamaRMSNorm` and similar classes).
"""

from collections.abc import Mapping
from typing import NamedTuple

from forerun.data.graph import OperatorGraph


class NormChain(NamedTuple):
    """Operators of one norm.

    Attributes:
        first: the square, which reads the copy of the input in 32 bits.
        last: the product of that copy and the root, whose result is converted back.
    """

    first: int
    last: int


_LONGEST = 8


def norm_chains(graph: OperatorGraph) -> tuple[NormChain, ...]:
    """Norms of a graph: square, mean, sum with a constant, root, product with the input."""
    ops, found = graph.operators, []
    for last, op in enumerate(ops):
        if op.attributes.get("function") != "mul" or len(op.inputs) != 2:
            continue
        root = next((i for i in op.inputs if ops[i].attributes.get("function") == "rsqrt"), None)
        if root is None:
            continue
        source = next(i for i in op.inputs if i != root)
        at, steps = root, 0
        while len(ops[at].inputs) == 1 and ops[at].inputs[0] != source and steps < _LONGEST:
            at, steps = ops[at].inputs[0], steps + 1
        if ops[at].inputs == (source,) and ops[at].attributes.get("function") in ("pow", "mul"):
            found.append(NormChain(at, last))
    return tuple(found)


def in_full_precision(chains: tuple[NormChain, ...], graph: OperatorGraph) -> Mapping[int, float]:
    """Position -> bytes per element of the results inside a norm."""
    # Position of a result -> end of the last norm that contains it.
    ends: dict[int, int] = {}
    for chain in chains:
        ends[chain.first] = max(chain.last, ends.get(chain.first, 0))
    for place, op in enumerate(graph.operators if ends else ()):
        end = max((ends.get(source, 0) for source in op.inputs), default=0)
        if end > place:
            ends[place] = max(end, ends.get(place, 0))
    return dict.fromkeys(ends, 4.0)
