"""A candidate on trial: it answers a share of the questions, and others unseen to be compared."""

import hashlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import BoundedSemaphore
from typing import Final, Literal

from forerun.data.errors import InputError
from forerun.data.level import USUAL
from forerun.data.workload import Kernel, Network
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.service.adaptation.predictor_in_use import Adaptation
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import Question
from forerun.service.http.telemetry import Telemetry
from forerun.service.log import log
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.listings import DifferenceOut, TrialOut
from forerun.service.settings import Settings

BYTES: Final = 8
NOT_ABOUT_THE_RUN: Final = 4
"""Last parts of the key of a question about an operator or a network: level, metrics, notes,
`explain`."""
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
        run = repr(replace(question.query, level=USUAL))
    digest = hashlib.sha256(run.encode()).digest()[:BYTES]
    # Of 64 bits, those that a float holds: the largest of all would be rounded to 1.
    return (int.from_bytes(digest, "big") >> 11) / 2**53


MOST_WAITING: Final = 64
"""Comparisons that may wait; further ones are left out and counted."""


class Trial:
    """The candidate of this process; without one, every question is the champion's.

    Args:
        shares: shares of the questions.
        telemetry: counts what is compared.

    Attributes:
        shares: the same.
        adaptation: the candidate, adapted to measurements of users; None without one.
    """

    def __init__(self, shares: Shares, telemetry: Telemetry) -> None:
        self.shares, self._telemetry = shares, telemetry
        self.adaptation: Adaptation | None = None
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="forerun-shadow")
        self._room = BoundedSemaphore(MOST_WAITING)

    @property
    def version(self) -> str | None:
        """Version of the candidate; None without one."""
        return None if self.adaptation is None else self.adaptation.base_version

    def change(self, champion: Adaptation, candidate: LoadedPredictor | None) -> None:
        """Put another candidate, or none, in place of this one.

        Args:
            champion: holds the measurements to which the candidate is adapted as well.
            candidate: the candidate.
        """
        if candidate is None:
            self.adaptation = None
        elif candidate.version != self.version:
            made = champion.with_base(candidate)
            made.current()
            self.adaptation = made

    def chosen(self, question: Question) -> Adaptation | None:
        """The candidate, where it answers this question; None where the champion does."""
        candidate = self.adaptation
        if candidate is None or self.shares.part(question) != "canary":
            return None
        return candidate

    def compare(self, question: Question, given: PredictionOut) -> None:
        """Let the candidate answer a question of the shadow share as well, on a thread of its own.

        Nothing waits for it: where too many comparisons wait, this one is left out.

        Args:
            question: the question.
            given: what the champion answered.
        """
        candidate = self.adaptation
        if candidate is None or self.shares.part(question) != "shadow":
            return
        if not self._room.acquire(blocking=False):
            self._count(candidate.base_version, "left out")
            return
        try:
            submitted = self._pool.submit(self._compared, candidate, question, given)
        except RuntimeError:  # the service ends
            return
        submitted.add_done_callback(lambda _: self._room.release())

    def close(self) -> None:
        """Compare no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def report(self) -> TrialOut | None:
        """What is known of the candidate, over all processes of the service."""
        version = self.version
        if version is None:
            return None
        read: Callable[[str], dict[tuple[str, ...], float]] = self._telemetry.values
        outcomes = {
            outcome: int(count)
            for (outcome, own), count in read("forerun_shadow_answers_total").items()
            if own == version
        }
        sums = read("forerun_shadow_difference_ratio_sum")
        counts = read("forerun_shadow_difference_ratio_count")
        return TrialOut(
            version=version,
            canary_share=self.shares.canary,
            shadow_share=self.shares.shadow,
            compared=outcomes.get("compared", 0),
            failed=outcomes.get("failed", 0),
            left_out=outcomes.get("left out", 0),
            differences={
                metric: DifferenceOut(
                    answers=int(count), mean_percent=100.0 * sums[metric, own] / count
                )
                for (metric, own), count in counts.items()
                if own == version and count
            },
        )

    def _compared(self, candidate: Adaptation, question: Question, given: PredictionOut) -> None:
        version = candidate.base_version
        try:
            (answer,) = answers_to([question], candidate.current())
        except Exception as error:  # a fault of a candidate is what the trial is to find
            log().error("the candidate failed", version=version, exc_info=error)
            self._count(version, "failed")
            return
        if isinstance(answer, InputError):
            self._count(version, "failed")
            return
        for metric, own in given.metrics.items():
            other = answer.metrics.get(metric)
            if own is not None and other is not None and own.value > 0.0:
                ratio = abs(other.value / own.value - 1.0)
                self._telemetry.differences.labels(version, metric).observe(ratio)
        self._count(version, "compared")

    def _count(self, version: str, outcome: str) -> None:
        self._telemetry.shadowed.labels(version, outcome).inc()
