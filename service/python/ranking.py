"""A ranking: devices that meet limits, the best first, and why the others are left out."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from forerun.service.python.answer import MAIN, NOT_CALIBRATED, Fit
from forerun.service.python.estimate import Estimate, estimates_of
from forerun.service.python.view import View, Viewed
from forerun.service.schemas.answers import Objective, RankedOut, RankOut

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Ranked:
    """A device that meets the limits.

    Attributes:
        rank: 1 for the best; devices with equal objectives share a rank.
        device: name of the device.
        objective: the objective by which it is ranked.
        overlaps_best: whether its interval overlaps that of the best device.
        metrics: metric -> estimate.
        fits: whether the memory is sufficient; None where not known.
        margins: limited metric -> limit minus the compared value.
        in_domain: whether every metric is in its domain.
        limits: inputs out of domain, and other limits of the answer.
    """

    rank: int
    device: str
    objective: Estimate
    overlaps_best: bool
    metrics: Mapping[str, Estimate]
    fits: Fit | None
    margins: Mapping[str, float]
    in_domain: bool
    limits: tuple[str, ...]

    @classmethod
    def of(cls, row: RankedOut) -> "Ranked":
        """The device of an answer."""
        return cls(
            row.rank,
            row.device.name,
            Estimate.of(row.objective),
            row.overlaps_best,
            estimates_of(row.metrics),
            Fit.of(row.fits) if row.fits else None,
            dict(row.margins),
            row.in_domain,
            tuple(row.limits),
        )


@dataclass(frozen=True)
class Ranking(Viewed):
    """Devices by an objective.

    Attributes:
        model: name of the model.
        objective: name of the objective.
        ranked: devices that meet the limits, the best first.
        excluded: name of every other device -> the reasons.
        content: the whole answer as HTTP gives it.
    """

    model: str
    objective: Objective
    ranked: tuple[Ranked, ...]
    excluded: Mapping[str, tuple[str, ...]]
    content: RankOut = field(repr=False)

    @classmethod
    def of(cls, model: str, out: RankOut) -> "Ranking":
        """The ranking of an answer."""
        excluded = {left.device.name: tuple(left.reasons) for left in out.excluded}
        return cls(model, out.objective, tuple(map(Ranked.of, out.ranked)), excluded, out)

    @property
    def best(self) -> Ranked | None:
        """The first device; None where no device meets the limits."""
        return self.ranked[0] if self.ranked else None

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self.ranked)

    def __len__(self) -> int:
        return len(self.ranked)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain dictionaries and lists, with the fields of POST /v1/rank."""
        return self.content.model_dump(mode="json")

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per ranked device."""
        for row in self.ranked:
            record: dict[str, Any] = {"rank": row.rank, "device": row.device}
            record |= row.objective.record("objective")
            for name, estimate in row.metrics.items():
                record |= estimate.record(name)
            yield record | {"fits": row.fits.fits if row.fits else None}

    def view(self) -> View:
        """One row per ranked device, then the others with their reasons."""
        headings = ("", "device", self.objective, "interval", *MAIN, "fits")
        rows = []
        for row in self.ranked:
            metrics = (row.metrics.get(name) for name in MAIN)
            texts = [estimate.text() if estimate else "not known" for estimate in metrics]
            fit = row.fits.word() if row.fits else "not known"
            aim = row.objective
            rows.append([str(row.rank), row.device, aim.text(), aim.interval_text(), *texts, fit])
        lines = [] if rows else ["no device meets the limits"]
        if any(row.objective.coverage is None for row in self.ranked):
            lines.append(NOT_CALIBRATED)
        lines += [f"left out: {name}: {'; '.join(why)}" for name, why in self.excluded.items()]
        return View(f"{self.model} by {self.objective}", headings, rows, lines)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the objective by device, as bars with intervals.

        Raises:
            InputError: no device meets the limits.
            MissingExtra: matplotlib is not installed.
        """
        from forerun.service.python.plots import intervals

        aims = {row.device: row.objective for row in self.ranked}
        return intervals(aims, self.objective, self.model, {}, ax)
