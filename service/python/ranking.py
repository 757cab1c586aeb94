"""Rankings and sweeps: devices that meet limits, and one device at several power limits."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from forerun.models.answers.answer import BY_HOST
from forerun.service.python.answer import MAIN
from forerun.service.python.view import Answered, Estimate, Fit, View, columns_of, record_of
from forerun.service.schemas import answers as schemas

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True, slots=True)
class Ranked:
    """A device that meets the limits.

    Attributes:
        rank: 1 for the best; devices with equal objectives share a rank.
        device: name of the device.
        objective: value of the objective by which it is ranked.
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


@dataclass(frozen=True)
class Ranking(Answered):
    """Devices by an objective.

    Attributes:
        model: name of the model.
        objective: name of the objective.
        ranked: devices that meet the limits, the best first.
        excluded: name of every other device -> the reasons.
        content: the whole answer as HTTP gives it.
    """

    model: str
    objective: schemas.Objective
    ranked: tuple[Ranked, ...]
    excluded: Mapping[str, tuple[str, ...]]
    content: schemas.RankOut = field(repr=False)

    @classmethod
    def of(cls, out: Any, **own: Any) -> Self:
        """An answer in this form; its own field is `model`."""
        excluded = {left.device.name: tuple(left.reasons) for left in out.excluded}
        ranked = tuple(record_of(Ranked, each) for each in out.ranked)
        return super().of(out, ranked=ranked, excluded=excluded, **own)

    @property
    def best(self) -> Ranked | None:
        """The first device; None where no device meets the limits."""
        return self.ranked[0] if self.ranked else None

    def __iter__(self) -> Iterator[Ranked]:
        return iter(self.ranked)

    def __len__(self) -> int:
        return len(self.ranked)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per ranked device."""
        for row in self.ranked:
            place = {"rank": row.rank, "device": row.device}
            figures = columns_of({"objective": row.objective, **row.metrics})
            yield {**place, **figures, "fits": None if row.fits is None else row.fits.fits}

    def view(self) -> View:
        """One row per ranked device, then the others with their reasons."""
        interval = self.content.ranked[0].interval_heading if self.content.ranked else "interval"
        others = [name for name in MAIN if name != self.objective]
        headings = ("", "device", self.objective, interval, *others, "fits")
        rows = []
        for row in self.ranked:
            metrics = (row.metrics.get(name) for name in others)
            texts = [own.graded() if own else "not known" for own in metrics]
            fit = row.fits.word() if row.fits is not None else "not known"
            aim = row.metrics.get(self.objective)
            first = aim.graded() if aim else row.objective.text()
            range_text = row.objective.interval_text()
            rows.append([f"{row.rank:>3}", row.device, first, range_text, *texts, fit])
        lines = [] if rows else ["no device meets the limits"]
        if any(row.objective.coverage is None for row in self.ranked):
            lines.append(schemas.NOT_CALIBRATED)
        if len({row.rank for row in self.ranked}) < len(self.ranked):
            lines.append("equal ranks: objectives that differ by less than 1 %")
        if held := [row.device for row in self.ranked if str(BY_HOST) in row.limits]:
            lines.append(f"{BY_HOST}: {', '.join(held)}")
        if rows:
            lines.append(schemas.GRADES)
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


COLUMNS = ("latency_ms", "power_w", "energy_j", "energy_per_sample_j")


@dataclass(frozen=True, slots=True)
class Limited:
    """The workload at one power limit.

    Attributes:
        limit_w: power limit of the device.
        latency_ms, power_w, energy_j, energy_per_sample_j: estimates at that limit.
        slow_down: slowdown relative to the highest limit: 0.1 for runs that take 10 % longer.
        saving: share of the energy at the highest limit that is saved.
        on_front: whether no other limit is both faster and takes less energy.
    """

    limit_w: float
    latency_ms: Estimate
    power_w: Estimate
    energy_j: Estimate
    energy_per_sample_j: Estimate
    slow_down: float
    saving: float
    on_front: bool


@dataclass(frozen=True)
class Sweep(Answered):
    """Time, power and energy by power limit.

    Attributes:
        model: name of the model.
        device: name of the device.
        runs: one run per limit, by rising limit.
        least_energy: the limit at which a run takes the least energy.
        slow_down: slowdown allowed for `within_slow_down`, as a share of the fastest time.
        within_slow_down: the limit of least energy among those that are not slower than that.
        limits: inputs out of domain, and other limits of the answer.
        content: the whole answer as HTTP gives it.
    """

    model: str
    device: str
    runs: tuple[Limited, ...]
    least_energy: schemas.AdviceOut
    slow_down: float
    within_slow_down: schemas.AdviceOut
    limits: tuple[str, ...]
    content: schemas.SweepOut = field(repr=False)

    @classmethod
    def of(cls, out: Any, **own: Any) -> Self:
        """An answer in this form; its own field is `model`."""
        return super().of(out, runs=tuple(record_of(Limited, each) for each in out.runs), **own)

    def __iter__(self) -> Iterator[Limited]:
        return iter(self.runs)

    def __len__(self) -> int:
        return len(self.runs)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per limit."""
        for run in self.runs:
            figures = columns_of({name: getattr(run, name) for name in COLUMNS})
            rest = {name: getattr(run, name) for name in ("slow_down", "saving", "on_front")}
            yield {"limit_w": run.limit_w, **figures, **rest}

    def view(self) -> View:
        """One row per limit, then the advised limits."""
        headings = ("limit", "time", "power", "energy", "a sample", "energy, range")
        rows = [
            [
                f"{run.limit_w:,.4g} W",
                *(getattr(run, name).text() for name in COLUMNS),
                run.energy_j.interval_text(),
                f"{100 * run.slow_down:.1f} %",
                f"{100 * run.saving:.1f} %",
                "*" if run.on_front else "",
            ]
            for run in self.runs
        ]
        lines = [
            f"least energy: {self.least_energy}",
            f"at most {100 * self.slow_down:.3g} % slower: {self.within_slow_down}",
        ]
        title = f"{self.model} on {self.device}"
        return View(title, (*headings, "slower", "saved", "front"), rows, lines, self.limits)

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Draw energy over time, one point for each limit.

        Raises:
            MissingExtra: matplotlib is not installed.
        """
        from forerun.service.python.plots import front

        points = [
            (run.latency_ms.value, run.energy_j.value, f"{run.limit_w:,.4g} W", run.on_front)
            for run in self.runs
        ]
        return front(points, f"{self.model} on {self.device}", ax)
