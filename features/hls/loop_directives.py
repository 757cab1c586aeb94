"""The directives of a design by the loop that they stand on."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Final

from forerun.data.workload import Design

_SLOT = re.compile(r"__(PARA|PIPE|TILE)__(\w+)")
NEUTRAL: Final[Mapping[str, str]] = {"PARA": "1", "PIPE": "off", "TILE": "1"}
"""Kind of a directive -> its value that changes nothing, which absent ones have."""
_WORDS: Final[Mapping[str, str]] = {"PARA": "parallel", "PIPE": "pipeline", "TILE": "tile"}


def directives_by_loop(design: Design) -> dict[str, dict[str, str]]:
    """Loop, as slots name it -> slot -> value; only values that change something."""
    found: dict[str, dict[str, str]] = {}
    for slot, value in sorted(dict(design.directives).items()):
        match = _SLOT.fullmatch(slot)
        kind, loop = match.groups() if match else ("", slot)
        if value != NEUTRAL.get(kind):
            found.setdefault(loop, {})[slot] = value
    return found


def only_on(design: Design, loops: Collection[str]) -> Design:
    """The design with the directives on these loops alone.

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
