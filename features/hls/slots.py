"""Slots of a program for directives, and the values that they take."""

import re
from collections.abc import Mapping, Sequence

from forerun.data.errors import BadDesign, in_field
from forerun.data.program import ProgramGraph
from forerun.features.hls.directives import PIPES

_SLOT = re.compile(r"auto\{(\w+)\}")
LARGEST_FACTOR = 2**31


def slots_of(program: ProgramGraph) -> tuple[str, ...]:
    """Names of the slots of a program, such as `__PIPE__L0`, sorted."""
    found = (_SLOT.search(text) for text in program.full_texts)
    return tuple(sorted({match[1] for match in found if match}))


def check_directives(program: ProgramGraph, directives: Mapping[str, str]) -> None:
    """Refuse directives that the program has no slot for, and values that a slot does not take.

    Raises:
        BadDesign: the message names the slots, or the values; `field` is the slot.
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
