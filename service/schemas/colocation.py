"""What goes over HTTP about programs that share a host."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from forerun.features.host_windows import Resource
from forerun.models.colocation.slowed_class import SLOWED_BELOW, WIDEST_RATIO

MOST_METRICS = 400
MOST_SECONDS = 3_600
MOST_RESIDENTS = 64
MOST_HOSTS = 1_000
MOST_PROGRAMS = 5_000
MOST_THREADS = 1_024
MOST_RANKED_THREADS = 200_000
LONGEST_NAME = 200

Name = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e15, le=1e15)]
ContentionMetric = Literal["p_cpu", "p_wall"]
UNREAD = "metrics given that no predictor reads, misspelt ones among them"
EXAMPLE_ALONE: dict[str, float] = {
    "cpu.user_share": 1.0,
    "pressure.cpu.some_share": 0.02,
    "probe.latency_ns": 30.0,
    "probe.evicted": 0.1,
}
EXAMPLE_WINDOW: dict[str, Any] = {
    "metrics": ["cpu.user_share", "pressure.cpu.some_share", "probe.latency_ns", "probe.evicted"],
    "seconds": [[1.9, 0.3, 95.0, 0.8], [1.8, None, 110.0, 0.9]],
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class WindowIn(_Strict):
    """Metrics of a host, second by second."""

    metrics: list[Name] = Field(
        description="names, as `forerun collect window` prints them; `unread_metrics` tells others",
        max_length=MOST_METRICS,
        examples=[EXAMPLE_WINDOW["metrics"]],
    )
    seconds: list[list[Number | None]] = Field(
        description="one list a second, a value each metric; null where it was not read",
        max_length=MOST_SECONDS,
        examples=[EXAMPLE_WINDOW["seconds"]],
    )

    @model_validator(mode="after")
    def _is_a_table(self) -> "WindowIn":
        """Every second has a value for each metric, and no metric comes twice."""
        if len(set(self.metrics)) < len(self.metrics):
            raise ValueError("a metric comes twice")
        if any(len(second) != len(self.metrics) for second in self.seconds):
            raise ValueError("every second needs as many values as there are metrics")
        return self


class ProgramIn(_Strict):
    """A program, and what is known of it from runs of it alone."""

    name: Name = Field(description="key to what was measured of the same program before")
    alone: dict[Name, Number] = Field(
        default_factory=dict,
        description="metrics of the host while it ran alone: medians over the run",
        max_length=MOST_METRICS,
        examples=[EXAMPLE_ALONE],
    )
    working_set_mib: float | None = Field(
        default=None,
        ge=0,
        le=1e9,
        description="memory that it goes through again and again, MiB",
    )
    cpu_share: float | None = Field(
        default=None, ge=0, le=1, description="its CPU time over its wall time, alone"
    )
    cpu_spread: float | None = Field(
        default=None,
        ge=0,
        le=100,
        description="how its CPU times alone scatter: median of |log(time / median time)|",
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=MOST_THREADS,
        description="threads that it keeps busy, each taken to be as the program was on one CPU; "
        "alone means with as many CPUs as the host has",
    )
    reference_ratio: float | None = Field(
        default=None,
        ge=0.02,
        le=50,
        description="CPU time of the runs alone that P refers to, over its usual CPU time alone; "
        "1 when absent",
    )
    p_cpu_beside_cache: float | None = Field(
        default=None,
        ge=0.02,
        le=50,
        description="its CPU time alone over that beside one load that fills the caches from "
        "another CPU (`stress-ng --cache 1`): how sensitive it is",
    )


class HostIn(_Strict):
    """A host with what runs on it."""

    name: Name = Field(default="host", description="what the answer calls it")
    residents: list[ProgramIn] = Field(
        default_factory=list, description="programs that run there", max_length=MOST_RESIDENTS
    )
    window: WindowIn | None = Field(
        default=None, description="metrics of the host now, beside its residents"
    )
    metrics: dict[Name, Number] | None = Field(
        default=None,
        description="the same as medians, in place of a window",
        max_length=MOST_METRICS,
    )
    cpus: int | None = Field(
        default=None,
        ge=1,
        le=4_096,
        description="CPUs that all programs share; when absent those that its metrics add up to "
        "(`cpu.idle_share` among them), else 2, as on the guest that taught",
    )


class ColocationIn(_Strict):
    """A program that is to come to a host."""

    candidate: ProgramIn = Field(description="the program")
    host: HostIn = Field(description="where it would run")


class HostsIn(_Strict):
    """A program, and hosts that it could come to."""

    candidate: ProgramIn = Field(description="the program")
    hosts: list[HostIn] = Field(description="hosts", min_length=1, max_length=MOST_HOSTS)
    metric: ContentionMetric = Field(
        default="p_wall", description="wall time, in which programs wait for CPUs, or CPU time"
    )
    objective: Literal["worst", "candidate", "mean"] = Field(
        default="worst",
        description="which P the best host has most of: the least of all programs there, the "
        "candidate's, or the mean",
    )

    @model_validator(mode="after")
    def _is_answered_at_once(self) -> "HostsIn":
        """All programs of all hosts are answered in one call."""
        threads = sum(one.threads for host in self.hosts for one in host.residents)
        if threads + self.candidate.threads * len(self.hosts) > MOST_RANKED_THREADS:
            raise ValueError(
                f"more than {MOST_RANKED_THREADS:,} threads; rank fewer hosts at a time"
            )
        if sum(1 + len(host.residents) for host in self.hosts) > MOST_PROGRAMS:
            raise ValueError(f"more than {MOST_PROGRAMS:,} programs; rank fewer hosts at a time")
        return self


class NowIn(_Strict):
    """A program beside neighbours, and what its host shows."""

    program: ProgramIn = Field(description="the program")
    window: WindowIn = Field(description="metrics of its host while it runs there, of any length")


class SlowedOut(BaseModel):
    """A class in place of an interval too wide to decide by, and how often it was wrong."""

    slowed: bool = Field(description=f"whether P is below {SLOWED_BELOW}")
    false_alarms: float = Field(
        description="share of the held-out runs that were not slowed which this class called slowed"
    )
    misses: float = Field(
        description="share of the slowed held-out runs which this class called not slowed"
    )
    runs: int = Field(description="held-out runs that both shares were measured on")


class PerformanceOut(BaseModel):
    """P: time alone over time beside neighbours."""

    value: float = Field(description="1 is undisturbed, 0.5 takes twice as long; over 1 is legal")
    low: float | None = Field(
        description="lower end of the interval; null where its ends are more than a factor of "
        f"{WIDEST_RATIO} apart, which decides nothing"
    )
    high: float | None = Field(description="upper end of the interval; null likewise")
    coverage: float | None = Field(description="share of truths that the interval is meant to hold")
    slowed: SlowedOut | None = Field(
        description="whether the program is slowed, where there is no interval; else null"
    )


class ProgramOut(BaseModel):
    """What a program pays."""

    program: str = Field(description="name")
    measured: bool = Field(
        description="whether a program of that name was measured beside neighbours; then that "
        "answers, more than the profile"
    )
    p_cpu: PerformanceOut | None = Field(description="P of CPU time")
    p_wall: PerformanceOut | None = Field(description="P of wall time")
    dominant_resource: Resource | None = Field(
        description="whose relief would help most; null where none would"
    )
    gains: dict[Resource, float] = Field(
        description="by how much P would rise with one resource as it is alone"
    )
    missing_metrics: list[str] = Field(
        description="metrics that training had and this question has not"
    )
    in_domain: bool = Field(description="false where anything left the training range")
    limits: list[str] = Field(description="what the answer assumes or leaves out, a line each")


class ColocatorOut(BaseModel):
    """Who answered."""

    name: str = Field(description="predictor")
    version: str = Field(description="hash of the predictors in use")


class ColocationOut(BaseModel):
    """What everyone on the host pays once the candidate is there."""

    candidate: ProgramOut = Field(description="the program that is to come")
    residents: list[ProgramOut] = Field(description="those that are there, in order")
    worst: str = Field(description="name of the program with the least P of CPU time")
    assumed: list[str] = Field(description="how the host's metrics were put together")
    unread_metrics: list[str] = Field(description=UNREAD)
    predictor: ColocatorOut = Field(description="who answered")


class RankedHostOut(BaseModel):
    """One host."""

    name: str = Field(description="host")
    index: int = Field(description="its place in the question, from 0")
    score: float = Field(description="of the objective; hosts are in the order of it")
    candidate: PerformanceOut = Field(description="P of the candidate there")
    worst: PerformanceOut = Field(description="least P of all programs there")
    worst_program: str = Field(description="whose that is")
    in_domain: bool = Field(description="false where anything there left the training range")


class HostsOut(BaseModel):
    """Hosts, the best first."""

    hosts: list[RankedHostOut] = Field(description="by score, the best first")
    metric: ContentionMetric = Field(description="which P")
    assumed: list[str] = Field(description="how the hosts' metrics were put together")
    unread_metrics: list[str] = Field(description=UNREAD)
    predictor: ColocatorOut = Field(description="who answered")


class NowOut(BaseModel):
    """What a program pays now."""

    program: ProgramOut = Field(description="the program")
    unread_metrics: list[str] = Field(description=UNREAD)
    predictor: ColocatorOut = Field(description="who answered")
