"""A comparison: one model on several devices, at several batch sizes and precisions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import nan
from typing import TYPE_CHECKING, Any

from forerun.service.python.answer import Answer, grades
from forerun.service.python.estimate import text_of
from forerun.service.python.view import View, Viewed

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Unanswered = tuple[str, int, str, str]
"""Name of the device, batch size, precision, and the reason why there is no answer."""


@dataclass(frozen=True)
class Comparison(Viewed):
    """The answers of a grid of devices, batch sizes and precisions.

    Attributes:
        answers: one for each combination that can be answered.
        unanswered: the other combinations, each with its reason.
    """

    answers: tuple[Answer, ...]
    unanswered: tuple[Unanswered, ...] = ()

    def __iter__(self) -> Iterator[Answer]:
        return iter(self.answers)

    def __len__(self) -> int:
        return len(self.answers)

    def best(self, metric: str = "latency_ms", per_sample: bool = True) -> Answer | None:
        """The answer with the smallest value of a metric; None where none has the metric.

        Args:
            metric: name of the metric.
            per_sample: whether the value of a run is divided by its samples.
        """
        known = [answer for answer in self.answers if metric in answer.metrics]
        samples = {id(a): (a.batch_size or 1) if per_sample else 1 for a in known}
        return min(known, key=lambda a: a.metrics[metric].value / samples[id(a)], default=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain dictionaries and lists: the answers, and the reasons of the rest."""
        names = ("device", "batch_size", "precision", "reason")
        return {
            "answers": [answer.to_dict() for answer in self.answers],
            "unanswered": [dict(zip(names, row, strict=True)) for row in self.unanswered],
        }

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per answer."""
        for answer in self.answers:
            yield from answer.records()

    def view(self) -> View:
        """One row per answer."""
        headings = ("device", "batch", "precision", "latency", "90 % interval", "a sample")
        rows = []
        for answer in self.answers:
            latency, memory = answer.latency_ms, answer.peak_memory_mib
            energy = answer.energy_j
            each = latency.value / (answer.batch_size or 1) if latency else None
            rows.append(
                [
                    answer.device,
                    str(answer.batch_size or ""),
                    answer.precision or "",
                    latency.text() if latency else "not known",
                    latency.interval_text() if latency else "",
                    text_of("latency_ms", each),
                    memory.text() if memory else "not known",
                    answer.fits.word() if answer.fits else "not known",
                    energy.text() if energy else "not known",
                    grades(answer),
                ]
            )
        lines = [f"{d}, batch {size}, {form}: {why}" for d, size, form, why in self.unanswered]
        title = self.answers[0].model if self.answers else "no combination can be answered"
        return View(title, (*headings, "memory", "fits", "energy", "trust"), rows, lines)

    def plot(self, ax: "Axes | None" = None, metric: str = "latency_ms") -> "Axes":
        """Draw a metric as a heat map of devices over batch sizes and precisions.

        Raises:
            InputError: no answer has the metric.
            MissingExtra: matplotlib is not installed.
        """
        from forerun.service.python.plots import heat_map

        cells = {
            (a.device, _setting(a)): a.metrics[metric].value
            for a in self.answers
            if metric in a.metrics
        }
        rows = list(dict.fromkeys(answer.device for answer in self.answers))
        columns = list(dict.fromkeys(map(_setting, self.answers)))
        values = [[cells.get((row, column), nan) for column in columns] for row in rows]
        title = self.answers[0].model if self.answers else ""
        return heat_map(values, rows, columns, metric, title, ax)


def _setting(answer: Answer) -> str:
    return f"{answer.batch_size}, {answer.precision}"
