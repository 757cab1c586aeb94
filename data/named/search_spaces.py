"""Convert names of choices in architecture search spaces to the numbers of `Architecture`.

NAS-Bench-201 writes a cell as `|nor_conv_3x3~0|+|none~0|skip_connect~1|+|...|`: for each of three
nodes, the operation on the edge from every earlier node.
"""

import re
from collections.abc import Sequence
from typing import Final, Literal, get_args

from forerun.data.errors import BadArchitecture
from forerun.data.workload import Architecture

Nb201Operation = Literal["none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3", "avg_pool_3x3"]
"""Operation on an edge of a NAS-Bench-201 cell; its number is its position here."""

FbnetBlock = Literal[
    "k3_e1", "k3_e1_g2", "k3_e3", "k3_e6", "k5_e1", "k5_e1_g2", "k5_e3", "k5_e6", "skip"
]
"""Block of an FBNet: kernel size, expansion, groups; its number is its position here."""

NB201_EDGES: Final = 6
FBNET_LAYERS: Final = 22
OFA_BLOCKS: Final = 20
OFA_STAGES: Final = 5
_EDGE: Final = re.compile(r"([a-z0-9_]+)~(\d)")
_NODES: Final = (0, 0, 1, 0, 1, 2)
"""Start node of each edge, in the order of a cell's text."""


def nb201_operations(cell: str) -> tuple[str, ...]:
    """Names of the six operations of a cell written as text, in the order of its edges.

    Raises:
        BadArchitecture: the text is not a cell.
    """
    edges = _EDGE.findall(cell)
    starts = tuple(int(start) for _, start in edges)
    nodes = [part for part in cell.strip().split("+") if part]
    if starts != _NODES or len(nodes) != len(set(_NODES)):
        example = "|nor_conv_3x3~0|+|none~0|skip_connect~1|+|none~0|none~1|avg_pool_3x3~2|"
        raise BadArchitecture(f"{cell!r:.120} is not a NAS-Bench-201 cell; one is {example}.")
    return tuple(name for name, _ in edges)


def nb201(operations: Sequence[str]) -> Architecture:
    """The cell with these six operations, on the edges 0-1, 0-2, 1-2, 0-3, 1-3, 2-3.

    Raises:
        BadArchitecture: there are not six, or one is not in `Nb201Operation`.
    """
    codes = _numbers("operations of a NAS-Bench-201 cell", operations, get_args(Nb201Operation))
    return Architecture("nb201", _of_length("operations", codes, NB201_EDGES))


def fbnet(blocks: Sequence[str]) -> Architecture:
    """The FBNet with these 22 blocks.

    Raises:
        BadArchitecture: there are not 22, or one is not in `FbnetBlock`.
    """
    codes = _numbers("blocks of an FBNet", blocks, get_args(FbnetBlock))
    return Architecture("fbnet", _of_length("blocks", codes, FBNET_LAYERS))


def ofa(
    kernel_sizes: Sequence[int], expansions: Sequence[int], depths: Sequence[int], image_size: int
) -> Architecture:
    """The OFA-MobileNetV3 with four possible blocks in each of five stages.

    Args:
        kernel_sizes: kernel sizes of the 20 blocks; those beyond a stage's depth have no effect.
        expansions: expansions of the 20 blocks.
        depths: number of blocks of each of the five stages.
        image_size: height and width of the input, pixels.

    Raises:
        BadArchitecture: a list has the wrong length.
    """
    parts = (
        *_of_length("kernel_sizes", kernel_sizes, OFA_BLOCKS),
        *_of_length("expansions", expansions, OFA_BLOCKS),
        *_of_length("depths", depths, OFA_STAGES),
    )
    return Architecture("ofa", (*parts, image_size))


def _numbers(what: str, names: Sequence[str], known: Sequence[str]) -> tuple[int, ...]:
    unknown = [name for name in names if name not in known]
    if unknown:
        raise BadArchitecture(f"{unknown[0]!r:.80} is not one of the {what}: {', '.join(known)}.")
    return tuple(known.index(name) for name in names)


def _of_length(field: str, numbers: Sequence[int], count: int) -> tuple[int, ...]:
    if len(numbers) != count:
        raise BadArchitecture(f"{field} has {len(numbers)} entries, not {count}.")
    return tuple(numbers)
