"""What a page says of a question that cannot run: why, and the nearest one that can."""

from collections.abc import Iterable
from dataclasses import dataclass

from forerun.service.schemas.answers import LimitOut


@dataclass(frozen=True)
class Refused:
    """A question that cannot run.

    Attributes:
        subject: what was to run on which devices.
        why: what prevents it, with the two numbers.
        nearest: what the nearest question that can run asks; None where none is known.
        address: the address of the page that asks it.
    """

    subject: str
    why: str
    nearest: str | None = None
    address: str | None = None


def refusals(limits: Iterable[LimitOut]) -> str:
    """Why a question cannot run, in one line; empty where nothing prevents it."""
    return "; ".join(each.message for each in limits if each.severity == "refusal")
