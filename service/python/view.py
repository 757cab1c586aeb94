"""An estimate, and how results are shown: as a text table, HTML in a notebook, a data frame."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from html import escape
from io import StringIO
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar, overload

from pydantic import BaseModel, ConfigDict

from forerun.data.lazy import pd
from forerun.data.metrics import metric
from forerun.service.schemas.answers import DeviceOut, FitsOut, IntervalOut, LimitOut

if TYPE_CHECKING:
    from rich.table import Table

Record = TypeVar("Record")


def record_of(kind: type[Record], answered: BaseModel, **own: Any) -> Record:
    """A record with the fields of an answer, where `own` does not say otherwise.

    Estimates, limits and the device take the form that they have in Python.
    """
    names = [own.name for own in fields(kind)]  # type: ignore[arg-type]
    found: dict[str, Any] = {name: getattr(answered, name, None) for name in names}
    for name, value in found.items():
        if isinstance(value, IntervalOut):
            found[name] = Estimate.of(value)
        elif isinstance(value, FitsOut):
            found[name] = Fit.model_construct(**vars(value))
        elif isinstance(value, DeviceOut):
            found[name] = value.name
        elif name == "metrics":
            found[name] = estimates_of(value)
        elif isinstance(value, list):
            found[name] = tuple(value)
    return kind(**{**found, **own})


class Estimate(IntervalOut):
    """A predicted value with its prediction interval.

    Attributes:
        value: best estimate, in `unit`.
        low, high: ends of the prediction interval, in `unit`; None without one.
        coverage: calibrated share of measured values in the interval; None where not calibrated.
        unit: unit of value and ends, such as ms, MiB, W or J.
        p95: value that 95 % of runs stay below, in `unit`; calibrated memory metrics only.
        in_domain: whether all inputs are in the training range; None where that is not known.
        grade: trust in the value: A measured on this device, B calibrated, C extrapolated; None
            where it is not graded.
        grade_reason: one sentence about the grade.
    """

    model_config = ConfigDict(frozen=True)

    p95: float | None = None
    in_domain: bool | None = None
    grade: str | None = None
    grade_reason: str | None = None

    @classmethod
    def of(cls, answered: IntervalOut) -> "Estimate":
        """The estimate of an answer."""
        return cls.model_construct(**vars(answered))

    def graded(self) -> str:
        """The value with its unit and grade."""
        return f"{self.text()} {self.grade or ''}".rstrip()

    def record(self, name: str) -> Mapping[str, Any]:
        """Columns of a data frame: value, ends, coverage and grade; names begin with `name`."""
        columns = ("low", "high", "coverage", "grade")
        return {name: self.value, **{f"{name}_{own}": getattr(self, own) for own in columns}}


class Fit(FitsOut):
    """Whether a workload fits a device's memory; true where the safe answer is yes.

    Attributes:
        fits: whether the upper end of the interval fits, which is the safe answer.
        fits_at_value: whether the best estimate fits.
        usable_mib: part of the memory on the spec sheet that runs can use.
        needed_mib: upper end of the interval of the peak memory.
        headroom_mib: usable minus needed memory; negative where memory is short.
        risk: how often a run takes more than the upper end, in words.
    """

    model_config = ConfigDict(frozen=True)

    def __bool__(self) -> bool:
        return self.fits


class HasMetrics(Protocol):
    """What has estimates by metric."""

    @property
    def metrics(self) -> Mapping[str, Estimate]:
        """Metric -> estimate."""


class Predicted:
    """A metric of an answer as an attribute; None where it is not known.

    Args:
        meaning: what it is, with its unit.
    """

    def __init__(self, meaning: str) -> None:
        self.__doc__ = f"{meaning}; None where it is not known."

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, answer: None, owner: type) -> Self: ...
    @overload
    def __get__(self, answer: HasMetrics, owner: type) -> Estimate | None: ...
    def __get__(self, answer: HasMetrics | None, owner: type) -> Self | Estimate | None:
        return self if answer is None else answer.metrics.get(self._name)


def estimates_of(answered: Mapping[str, IntervalOut | None]) -> dict[str, Estimate]:
    """The known estimates of an answer: metric -> estimate."""
    return {name: Estimate.of(given) for name, given in answered.items() if given is not None}


def columns_of(metrics: Mapping[str, Estimate]) -> dict[str, Any]:
    """Columns of the row of an answer: those of each metric, by its name."""
    return {own: value for name in metrics for own, value in metrics[name].record(name).items()}


def estimate_row(label: str, own: Estimate | None, why: str = "") -> list[str]:
    """The cells of an estimate: label, value, interval, grade, reason; `why` where it is None."""
    if own is None:
        return [label, "not known", "", "", why]
    return [label, own.text(), own.interval_text(), own.grade or "", own.grade_reason or ""]


def text_of(name: str, value: float | None) -> str:
    """A value of a metric with its unit, `not known` when it is None."""
    return metric(name).text(value)


WIDTH = 10_000
"""Of the text table, in characters; no cell is cut."""
REASONS = ("why", "why not")
"""Headings of columns of sentences."""
STYLE = (
    ".forerun{font:13px system-ui,sans-serif;color:inherit}"
    ".forerun table{border-collapse:collapse;margin:.4em 0}"
    ".forerun caption{text-align:left;font-weight:600;padding:.2em 0}"
    ".forerun th,.forerun td{padding:.2em .8em;text-align:right;background:none;"
    "border-bottom:1px solid rgba(128,128,128,.35)}"
    ".forerun th:first-child,.forerun td:first-child,.forerun .why{text-align:left}"
    ".forerun p{margin:.2em 0;opacity:.8}"
)
"""Colours are those of the page, so that the table can be read on a light and a dark one."""


@dataclass(frozen=True, slots=True)
class View:
    """A table with a title and with sentences below it.

    Attributes:
        title: what the table is about.
        headings: one heading per column; the first column and that of reasons are left-aligned.
        rows: one text per column.
        lines: sentences below the table.
        limits: limits of the answer, which a notebook unfolds; as text only their number is given.
    """

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    lines: Sequence[str] = ()
    limits: Sequence[str] = ()

    def table(self) -> "Table":
        """The rows as a table for a console."""
        from rich.text import Text

        from forerun.service.python.fitted_table import FittedTable

        table = FittedTable(self.headings, (*self.headings[:1], *REASONS))
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table

    def text(self) -> str:
        """The view as plain text, without a line break at its end."""
        from rich.console import Console

        written = StringIO()
        Console(file=written, width=WIDTH, highlight=False, color_system=None).print(self.table())
        shown = [line.rstrip() for line in written.getvalue().splitlines()] if self.rows else []
        return "\n".join([self.title, *shown, *self.lines, *self._count()])

    def html(self) -> str:
        """The view as HTML, in the colours of the page; all text is escaped."""
        classes = [' class="why"' if heading in REASONS else "" for heading in self.headings]
        marked = zip(classes, self.headings, strict=True)
        head = "".join(f'<th scope="col"{of}>{escape(heading)}</th>' for of, heading in marked)
        body = "".join(f"<tr>{''.join(map(_cell, classes, row))}</tr>" for row in self.rows)
        below = "".join(f"<p>{escape(line)}</p>" for line in self.lines)
        listed = "".join(f"<li>{escape(limit)}</li>" for limit in self.limits)
        summary = f"limits of the answer: {len(self.limits)}"
        if listed:
            below += f"<details><summary>{summary}</summary><ul>{listed}</ul></details>"
        return (
            f'<div class="forerun"><style>{STYLE}</style><table><caption>{escape(self.title)}'
            f"</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}</div>"
        )

    def _count(self) -> list[str]:
        count = len(self.limits)
        return [f"limits of the answer: {count}, which `.limits` lists"] if count else []


def _cell(attributes: str, text: str) -> str:
    return f"<td{attributes}>{escape(text)}</td>"


class Viewed(ABC):
    """A result that prints as a table and that a notebook shows as HTML."""

    __slots__ = ()

    @abstractmethod
    def view(self) -> View:
        """The result as a table with sentences below it."""

    @abstractmethod
    def records(self) -> Iterator[Mapping[str, Any]]:
        """One mapping for each row of `to_pandas`, with units in the names."""

    def to_pandas(self) -> "pd.DataFrame":
        """The result as a data frame, with units in the names of its columns."""
        return pd.DataFrame(list(self.records()))

    def __str__(self) -> str:
        return self.view().text()

    def _repr_html_(self) -> str:
        return self.view().html()


class Answered(Viewed):
    """A result that holds the whole answer as HTTP gives it."""

    __slots__ = ()
    content: BaseModel

    @classmethod
    def of(cls, out: Any, **own: Any) -> Self:
        """An answer in this form.

        Args:
            out: the answer as HTTP gives it.
            own: fields that it does not have.
        """
        return record_of(cls, out, content=out, **own)

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain dictionaries and lists, with the fields that it has over HTTP."""
        return self.content.model_dump(mode="json")


def refusals(limits: Iterable[LimitOut]) -> list[str]:
    """A line for each reason why a workload cannot run as asked."""
    return [f"it cannot run as asked: {own.message}" for own in limits if own.severity == "refusal"]
