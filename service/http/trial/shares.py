"""Which questions a candidate answers, and which it is compared on, by a hash of the question."""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

from forerun.data.workload import Kernel, Network
from forerun.service.answers.question import Question
from forerun.service.settings import Settings

BYTES: Final = 8
NOT_ABOUT_THE_RUN: Final = 3
"""Last parts of the key of a question about an operator or a network: metrics, notes, `explain`."""
Part = Literal["canary", "shadow"]


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the questions, between 0 and 1.

    Attributes:
        canary: share that the candidate answers, those of the lowest hashes.
        shadow: share that it answers as well, unseen, those of the highest hashes.
    """

    canary: float
    shadow: float

    @classmethod
    def of(cls, settings: Settings) -> "Shares":
        """The shares that the settings name."""
        return cls(settings.canary_share, settings.shadow_share)

    def __bool__(self) -> bool:
        """Whether a candidate has any part."""
        return max(self.canary, self.shadow) > 0.0

    def part(self, question: Question) -> Part | None:
        """What a candidate does about a question; the same for equal runs, in every process."""
        place = position(question)
        if place < self.canary:
            return "canary"
        return "shadow" if place >= 1.0 - self.shadow else None


def position(question: Question) -> float:
    """A number in [0, 1) that follows from the workload, the device and the set-up alone."""
    key, workload = question.key, question.query.workload
    if isinstance(workload, Kernel | Network) and isinstance(key, tuple):
        run = repr(key[:-NOT_ABOUT_THE_RUN])
    else:
        run = repr(question.query)
    digest = hashlib.sha256(run.encode()).digest()[:BYTES]
    # Of 64 bits, those that a float holds: the largest of all would be rounded to 1.
    return (int.from_bytes(digest, "big") >> 11) / 2**53
