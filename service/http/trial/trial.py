"""A candidate on trial: it answers a share of the questions, and others unseen to be compared."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import BoundedSemaphore
from typing import Final

from forerun.data.errors import InputError
from forerun.models.artifact.loading import LoadedPredictor
from forerun.service.adaptation.predictor_in_use import Adaptation
from forerun.service.answers.answer import answers_to
from forerun.service.answers.question import Question
from forerun.service.http.telemetry import Telemetry
from forerun.service.http.trial.shares import Shares
from forerun.service.log import log
from forerun.service.schemas.answers import PredictionOut
from forerun.service.schemas.trial import DifferenceOut, TrialOut

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
