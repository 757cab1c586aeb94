"""Ask how programs that share a host slow each other down."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any, Self

from forerun.service.answers import colocation as answers
from forerun.service.answers.colocation import read_profile
from forerun.service.python.question import first_fault
from forerun.service.python.session import session
from forerun.service.python.view import Answered, View, record_of
from forerun.service.schemas import colocation as schemas

Profile = str | PathLike[str] | Mapping[str, Any] | schemas.ProgramIn
"""A profile of a program: its file, as `forerun collect program` writes it, or its content."""


@dataclass(frozen=True, slots=True)
class RelativeSpeed:
    """Isolated time of a program over its co-located time; 1 means no slowdown.

    Attributes:
        value: best estimate; 0.5 means twice the time.
        low, high: ends of the interval; None where it is too wide to decide by.
        coverage: nominal share of measured values inside the interval.
        slowed: whether the program is slowed, where there is no interval; else None.
        false_alarms: share of held-out runs that were not slowed but called slowed; None without
            a class.
        misses: share of slowed held-out runs that were called not slowed; None without a class.
    """

    value: float
    low: float | None
    high: float | None
    coverage: float | None
    slowed: bool | None
    false_alarms: float | None
    misses: float | None

    @classmethod
    def of(cls, given: schemas.PerformanceOut | None) -> "RelativeSpeed | None":
        """The relative speed of an answer."""
        if given is None:
            return None
        names = ("slowed", "false_alarms", "misses")
        rates = {name: getattr(given.slowed, name, None) for name in names}
        return record_of(cls, given, **rates)

    def __str__(self) -> str:
        if self.low is not None and self.high is not None:
            return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"
        if self.slowed is None:
            return f"{self.value:.2f}"
        word = "slowed" if self.slowed else "not slowed"
        wrong = f"false alarms {self.false_alarms:.0%}, misses {self.misses:.0%}"
        return f"{self.value:.2f}, {word} ({wrong})"


@dataclass(frozen=True, slots=True)
class ProgramSpeed:
    """How much one program is slowed.

    Attributes:
        program: name of the program.
        p_cpu: relative speed in CPU time; None where it is not known.
        p_wall: relative speed in wall time; None where it is not known.
        dominant_resource: resource whose relief would help most; None where none would.
        grade: trust in the answer: A measured, B calibrated, C extrapolated.
        grade_reason: one sentence about the grade.
        in_domain: whether all inputs are in the training range.
        limits: limits of the answer.
    """

    program: str
    p_cpu: RelativeSpeed | None
    p_wall: RelativeSpeed | None
    dominant_resource: str | None
    grade: str
    grade_reason: str
    in_domain: bool
    limits: tuple[str, ...]

    @classmethod
    def of(cls, out: schemas.ProgramOut) -> "ProgramSpeed":
        """The program of an answer."""
        speeds = {name: RelativeSpeed.of(getattr(out, name)) for name in ("p_cpu", "p_wall")}
        return record_of(cls, out, **speeds)


@dataclass(frozen=True)
class ColocationAnswer(Answered):
    """The relative speed of every program on a host once a candidate runs there.

    Attributes:
        candidate: the program to be placed.
        residents: the programs on the host, in the order given.
        worst: name of the program with the lowest relative speed in CPU time.
        assumed: how the metrics of the host were forecast.
        content: the whole answer as HTTP gives it.
    """

    candidate: ProgramSpeed
    residents: tuple[ProgramSpeed, ...]
    worst: str
    assumed: tuple[str, ...]
    content: schemas.ColocationOut = field(repr=False)

    @classmethod
    def of(cls, out: Any, **own: Any) -> Self:
        """An answer in this form."""
        residents = tuple(map(ProgramSpeed.of, out.residents))
        return super().of(out, candidate=ProgramSpeed.of(out.candidate), residents=residents, **own)

    @property
    def programs(self) -> tuple[ProgramSpeed, ...]:
        """The candidate and the residents."""
        return (self.candidate, *self.residents)

    def records(self) -> Iterator[Mapping[str, Any]]:
        """One row per program."""
        for program in self.programs:
            row: dict[str, Any] = {"program": program.program}
            for name, speed in (("p_cpu", program.p_cpu), ("p_wall", program.p_wall)):
                row |= {name: speed and speed.value, f"{name}_low": speed and speed.low}
                row |= {
                    f"{name}_high": speed and speed.high,
                    f"{name}_slowed": speed and speed.slowed,
                }
            yield row | {"dominant_resource": program.dominant_resource, "grade": program.grade}

    def view(self) -> View:
        """One row per program."""
        headings = ("program", "P, CPU time", "P, by the wall", "decides", "trust", "why")
        rows = [
            [
                p.program,
                _text(p.p_cpu),
                _text(p.p_wall),
                p.dominant_resource or "",
                p.grade,
                p.grade_reason,
            ]
            for p in self.programs
        ]
        limits = dict.fromkeys(limit for program in self.programs for limit in program.limits)
        title = f"{self.candidate.program} next to {len(self.residents)} programs"
        return View(title, headings, rows, self.assumed, tuple(limits))


def colocate(
    candidate: Profile,
    *,
    residents: Sequence[Profile] = (),
    cpus: int | None = None,
    metrics: Mapping[str, float] | None = None,
) -> ColocationAnswer:
    """Predict the relative speed of every program on a host: isolated over co-located time.

    Args:
        candidate: profile of the program to be placed: its file, or its content.
        residents: profiles of the programs on the host.
        cpus: CPUs that all programs share; those of the training set when None.
        metrics: medians of the host's current metrics; None for an idle host with its residents.

    Raises:
        InputError: a profile cannot be read, or a value is not valid.
        UnanswerableQuery: no predictor in use was trained for co-location.
    """
    with first_fault():
        programs = [_profile(each) for each in (candidate, *residents)]
        given = None if metrics is None else dict(metrics)
        host = schemas.HostIn(residents=programs[1:], cpus=cpus, metrics=given)
        asked = schemas.ColocationIn(candidate=programs[0], host=host)
    return ColocationAnswer.of(answers.colocate(asked, session().in_use.loaded))


def _profile(given: Profile) -> schemas.ProgramIn:
    if isinstance(given, schemas.ProgramIn):
        return given
    if isinstance(given, Mapping):
        return schemas.ProgramIn.model_validate(dict(given))
    return read_profile(Path(given))


def _text(speed: RelativeSpeed | None) -> str:
    return "" if speed is None else str(speed)
