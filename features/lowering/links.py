"""Data edges between launched kernels."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from forerun.features.deadline import check, watched
from forerun.features.lowering.kernel_kinds import KERNEL_CODE
from forerun.features.lowering.kernels import Launch

Edges = NDArray[np.intp]

_CASTS = frozenset(KERNEL_CODE[name] for name in ("cast", "cast_weight", "cast_input"))


def links(
    sources: Sequence[Sequence[int]], launches: Sequence[Launch], members: Sequence[Sequence[int]]
) -> Edges:
    """Edges between the launches of one lowering, each once.

    Launches of one operator form a chain, and its casts lead into the first of them. Operators that
    are never launched pass on their operands.

    Args:
        sources: positions of each operator's producers, earlier ones.
        launches: kernels.
        members: positions of the operators that each kernel runs.

    Returns:
        (2, e) positions of writer and reader among the launches.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    casts: list[tuple[int, int]] = []
    edges: dict[tuple[int, int], None] = {}
    for place, operators in enumerate(watched(members)):
        if launches[place].kind in _CASTS:
            casts.append((place, operators[0]))
            continue
        for i in operators:
            if i in last:
                edges[last[i], place] = None
            first.setdefault(i, place)
            last[i] = place
    edges.update(((place, first[i]), None) for place, i in casts if i in first)
    written: list[tuple[int, ...]] = []
    for i, producers in enumerate(sources):
        check()
        read = tuple(dict.fromkeys(w for j in producers for w in written[j]))
        if i in first:
            edges.update(((w, first[i]), None) for w in read if w != first[i])
        written.append((last[i],) if i in last else read)
    return np.array(list(edges), dtype=np.intp).reshape(-1, 2).T
