"""Requests and answers about programs that share a host."""

from typing import Annotated, Any, Literal

from pydantic import FailFast, Field, StringConstraints, model_validator

from forerun.data.described import Described
from forerun.features.host_windows import Resource
from forerun.models.colocation.slowed_class import SLOWED_BELOW, WIDEST_RATIO
from forerun.models.limit import Grade
from forerun.service.schemas.answers import LimitedAnswerOut
from forerun.service.schemas.fields import Number, Strict, example

MOST_METRICS = 400
MOST_SECONDS = 3_600
MOST_RESIDENTS = 64
MOST_HOSTS = 1_000
MOST_PROGRAMS = 5_000
MOST_THREADS = 1_024
MOST_RANKED_THREADS = 200_000
LONGEST_NAME = 200

Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
ContentionMetric = Literal["p_cpu", "p_wall"]
UNREAD = "metrics in the request that no predictor uses, such as misspelt ones"
EXAMPLE_ALONE: dict[str, Any] = example("metrics_alone")
EXAMPLE_WINDOW: dict[str, Any] = example("window")


Second = Annotated[list[Number | None], FailFast(), Field(max_length=MOST_METRICS)]
"""The first wrong number ends the validation, because a list of a million errors helps nobody."""


class WindowIn(Strict):
    """Metrics of a host, sampled once per second."""

    metrics: Annotated[list[Name], Field(max_length=MOST_METRICS)] = Field(
        examples=[EXAMPLE_WINDOW["metrics"]]
    )
    """names of metrics as `forerun collect window` prints them; unknown ones are listed in
    `unread_metrics`"""
    seconds: Annotated[list[Second], FailFast()] = Field(
        max_length=MOST_SECONDS, examples=[EXAMPLE_WINDOW["seconds"]]
    )
    """one list per second with one value per metric; null where it was not read"""

    @model_validator(mode="after")
    def _is_a_table(self) -> "WindowIn":
        """Every second has one value per metric, and metrics are unique."""
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError("a metric comes twice")
        if any(len(second) != len(self.metrics) for second in self.seconds):
            raise ValueError("every second needs as many values as there are metrics")
        return self


class ProgramIn(Strict):
    """A program and its profile from isolated runs."""

    name: Name
    """name of the program; it identifies earlier measurements of the same program"""
    alone: Annotated[dict[Name, Number], Field(max_length=MOST_METRICS)] = Field(
        default_factory=dict, examples=[EXAMPLE_ALONE]
    )
    """metrics of the host while the program ran alone, as medians over the run"""
    working_set_mib: Annotated[float, Field(ge=0, le=1e9)] | None = None
    """memory that the program accesses repeatedly, MiB"""
    cpu_share: Annotated[float, Field(ge=0, le=1)] | None = None
    """CPU time over wall time of the program when it runs alone"""
    cpu_spread: Annotated[float, Field(ge=0, le=100)] | None = None
    """spread of its isolated CPU times: median of |log(time / median time)|"""
    threads: Annotated[int, Field(ge=1, le=MOST_THREADS)] = 1
    """threads that the program keeps busy; each is assumed to behave as the profiled program did on
    one CPU, and its isolated run has all CPUs of the host"""
    reference_ratio: Annotated[float, Field(ge=0.02, le=50)] | None = None
    """CPU time of the isolated runs that P refers to, over the program's usual isolated CPU time; 1
    when absent"""
    p_cpu_beside_cache: Annotated[float, Field(ge=0.02, le=50)] | None = None
    """isolated CPU time over CPU time next to one load that fills the caches from another CPU
    (`stress-ng --cache 1`), which measures the program's sensitivity"""


class HostIn(Strict):
    """A host with its resident programs."""

    name: Name = "host"
    """name of the host in the answer"""
    residents: list[ProgramIn] = Field(default_factory=list, max_length=MOST_RESIDENTS)
    """programs that run on the host"""
    window: WindowIn | None = None
    """current metrics of the host while its residents run"""
    metrics: Annotated[dict[Name, Number], Field(max_length=MOST_METRICS)] | None = None
    """medians of the current metrics, in place of a window"""
    cpus: Annotated[int, Field(ge=1, le=4_096)] | None = None
    """CPUs that all programs share; when absent, the sum of the host's CPU metrics if
    `cpu.idle_share` is among them, else 2, as in the training runs"""


class ColocationIn(Strict):
    """A program to be placed on a host."""

    candidate: ProgramIn
    """the program to be placed"""
    host: HostIn
    """the host on which it would run"""


class HostsIn(Strict):
    """A program to be placed, and the possible hosts."""

    candidate: ProgramIn
    """the program to be placed"""
    hosts: list[HostIn] = Field(min_length=1, max_length=MOST_HOSTS)
    """the possible hosts"""
    metric: ContentionMetric = "p_wall"
    """P of wall time, which includes waiting for CPUs, or P of CPU time"""
    objective: Literal["worst", "candidate", "mean"] = "worst"
    """the P to maximise: the lowest of all programs on the host, the candidate's, or the mean"""

    @model_validator(mode="after")
    def _is_answered_at_once(self) -> "HostsIn":
        """The request is small enough to be predicted in one call."""
        threads = sum(program.threads for host in self.hosts for program in host.residents)
        if threads + self.candidate.threads * len(self.hosts) > MOST_RANKED_THREADS:
            raise ValueError(
                f"more than {MOST_RANKED_THREADS:,} threads; rank fewer hosts at a time"
            )
        if sum(1 + len(host.residents) for host in self.hosts) > MOST_PROGRAMS:
            raise ValueError(f"more than {MOST_PROGRAMS:,} programs; rank fewer hosts at a time")
        return self


class NowIn(Strict):
    """A program with neighbours, and current metrics of its host."""

    program: ProgramIn
    """the program"""
    window: WindowIn
    """metrics of the host while the program runs there, over any number of seconds"""


class SlowedOut(Described):
    """A class given where the interval is too wide for a decision, with its error rates."""

    slowed: bool = Field(description=f"whether P is below {SLOWED_BELOW}")
    false_alarms: float
    """share of the held-out runs that were not slowed which this class called slowed"""
    misses: float
    """share of the slowed held-out runs which this class called not slowed"""
    runs: int
    """number of held-out runs from which both error rates were estimated"""


class PerformanceOut(Described):
    """P, the relative speed of a program: isolated time over co-located time."""

    value: float
    """1 means no slowdown, 0.5 twice the time; values over 1 occur"""
    low: float | None = Field(
        description="lower end of the interval; null where the interval is wider than a factor of "
        f"{WIDEST_RATIO}, too wide to decide by"
    )
    high: float | None
    """upper end of the interval; null where `low` is null"""
    coverage: float | None
    """nominal share of measured values inside the interval"""
    slowed: SlowedOut | None
    """whether the program is slowed, where there is no interval; else null"""


class ProgramOut(LimitedAnswerOut):
    """The slowdown of one program."""

    program: str
    """name of the program"""
    measured: bool
    """whether the training set holds co-located runs of a program of that name; then these
    determine the answer more than the profile does"""
    p_cpu: PerformanceOut | None
    """P of CPU time"""
    p_wall: PerformanceOut | None
    """P of wall time"""
    dominant_resource: Resource | None
    """resource whose relief would raise P most; null where none would"""
    gains: dict[Resource, float]
    """resource -> increase of P if that resource were as in an isolated run"""
    missing_metrics: list[str]
    """metrics that the training rows have and this request does not"""
    in_domain: bool
    """false where an input is outside the training range"""
    grade: Grade
    """A: the program was measured with neighbours; B: calibrated on programs held out; C:
    extrapolated"""
    grade_reason: str
    """the reason for the grade, one sentence"""


class ColocatorOut(Described):
    """The predictor that answered."""

    name: str
    """name of the predictor"""
    version: str
    """hash of the predictors in use"""


class ColocationOut(Described):
    """The slowdown of every program on the host once the candidate runs there."""

    candidate: ProgramOut
    """the program to be placed"""
    residents: list[ProgramOut]
    """the residents, in the order of the request"""
    worst: str
    """name of the program with the lowest P of CPU time"""
    assumed: list[str]
    """how the metrics of the host were forecast"""
    unread_metrics: list[str] = Field(description=UNREAD)
    predictor: ColocatorOut
    """the predictor that answered"""


class RankedHostOut(Described):
    """One host and its score."""

    name: str
    """name of the host"""
    index: int
    """index of the host in the request, from 0"""
    score: float
    """value of the objective, by which the hosts are sorted"""
    candidate: PerformanceOut
    """P of the candidate on this host"""
    worst: PerformanceOut
    """lowest P of all programs on this host"""
    worst_program: str
    """name of the program with that P"""
    in_domain: bool
    """false where an input is outside the training range"""


class HostsOut(Described):
    """Hosts by score."""

    hosts: list[RankedHostOut]
    """by score, the best first"""
    metric: ContentionMetric
    """the ranked kind of P"""
    assumed: list[str]
    """how the metrics of the hosts were forecast"""
    unread_metrics: list[str] = Field(description=UNREAD)
    predictor: ColocatorOut
    """the predictor that answered"""


class NowOut(Described):
    """The current slowdown of a program."""

    program: ProgramOut
    """the program and its slowdown"""
    unread_metrics: list[str] = Field(description=UNREAD)
    predictor: ColocatorOut
    """the predictor that answered"""
