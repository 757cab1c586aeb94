"""Answers about programs that share a host.

The metrics after placement are forecast from profiles (`forerun.models.colocation.host_forecast`).
The forecast starts from the current metrics, where the request gives them, and adds the candidate;
otherwise it starts from an idle host and adds all programs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isfinite, isnan, nan
from pathlib import Path
from statistics import fmean, median
from typing import Any

import numpy as np
from pydantic import ValidationError

from forerun.data.described import first_fault
from forerun.data.device import Device
from forerun.data.errors import InputError, UnanswerableQuery, why_unreadable
from forerun.data.query import Query
from forerun.data.software import Software
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import Resource, missing_metrics, unread_metrics
from forerun.models.answers.trust import trust_by
from forerun.models.artifact.sealed_folder import LoadedPredictor
from forerun.models.colocation.booster import ColocationBoost
from forerun.models.colocation.features import ColocationRows
from forerun.models.colocation.host_forecast import OWN, demand, granted
from forerun.models.colocation.slowed_class import Slowed
from forerun.models.colocation.slowing_resource import dominant, gains
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor
from forerun.models.router import predictors_in
from forerun.service.schemas.answers import LimitOut
from forerun.service.schemas.colocation import (
    ColocationIn,
    ColocationOut,
    ColocatorOut,
    HostIn,
    HostsIn,
    HostsOut,
    NowIn,
    NowOut,
    PerformanceOut,
    ProgramIn,
    ProgramOut,
    RankedHostOut,
    SlowedOut,
    WindowIn,
)


def read_profile(path: Path) -> ProgramIn:
    """Read a profile from a JSON file.

    Raises:
        InputError: the file cannot be read, or holds no profile.
    """
    try:
        return ProgramIn.model_validate_json(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {path}: {why_unreadable(error)}.") from error
    except ValidationError as error:
        why = first_fault(error, "the file")
        raise InputError(f"{path} holds no profile of a program: {why}.") from error


GUEST = Software()
GUEST_DEVICE = Device(name="guest", vendor="unknown", kind="vm")
BUSY_METRICS = ("cpu.user_share", "cpu.nice_share", "cpu.system_share", "cpu.steal_share")
IDLE_METRIC = "cpu.idle_share"
CPU_METRICS = (*BUSY_METRICS, IDLE_METRIC, "cpu.iowait_share")
TRAINING_CPUS = 2.0
"""CPUs of the guest on which all co-located runs of the training set were measured."""
MIN_UNATTRIBUTED_CPUS = 0.1
"""Fewest busy CPUs, unexplained by the residents, that count as further programs."""
MAX_UNATTRIBUTED_PER_CPU = 32
"""Upper bound on such programs per CPU, because the metrics in a request may have any value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A candidate on one host.

    Attributes:
        programs: the candidate, then the residents.
        queries: one about each of the programs.
        current: current metrics of the host; None where the request gives none.
    """

    programs: Sequence[ProgramIn]
    queries: Sequence[Query]
    current: HostWindow | None

    @property
    def is_isolated(self) -> bool:
        """Whether the candidate is alone on an idle host."""
        return len(self.programs) == 1 and self.current is None


def placements(
    candidate: ProgramIn, hosts: Sequence[HostIn], part: ColocationBoost
) -> list[Placement]:
    """The candidate on each of n hosts, whose metrics are forecast in one pass."""
    profile = profile_of(candidate)
    profiles = [[profile, *map(profile_of, host.residents)] for host in hosts]
    programs = [[candidate, *host.residents] for host in hosts]
    currents = [current_window(host) for host in hosts]
    added = [None if current is None else 1 for current in currents]
    windows = part.mixing.forecasts(
        [own[:count] for own, count in zip(profiles, added, strict=True)],
        [current or part.idle for current in currents],
        part.idle,
        [[p.threads for p in own[:count]] for own, count in zip(programs, added, strict=True)],
    )
    placed = []
    for own, own_profiles, host, current, window in zip(
        programs, profiles, hosts, currents, windows, strict=True
    ):
        shares = _granted(own, own_profiles, _cpu_shares(current), host.cpus)
        queries = [
            Query(
                Colocation(each, window, True, share, program.reference_ratio), GUEST_DEVICE, GUEST
            )
            for program, each, share in zip(own, own_profiles, shares, strict=True)
        ]
        placed.append(Placement(own, queries, current))
    return placed


def _granted(
    programs: Sequence[ProgramIn],
    profiles: Sequence[ProgramProfile],
    shares: Mapping[str, float],
    cpus: int | None,
) -> list[float]:
    """Share of its isolated CPU time that each of n programs will get on a host.

    CPU time in use that the residents do not explain is attributed to further programs.

    Args:
        programs: the candidate, then the residents.
        profiles: of these programs.
        shares: current medians of the host's CPU times by kind, CPUs.
        cpus: CPUs of the host; None where the request does not say.
    """
    demands = [demand(profile) for profile in profiles]
    threads = [program.threads for program in programs]
    explained = sum(d * n for d, n in zip(demands[1:], threads[1:], strict=True))
    unattributed = sum(shares.get(name, 0.0) for name in BUSY_METRICS) - explained
    available = float(cpus) if cpus is not None else _cpus(shares)
    most = MAX_UNATTRIBUTED_PER_CPU * ceil(available)
    count = int(min(max(ceil(unattributed - MIN_UNATTRIBUTED_CPUS), 0), most))
    others = ([unattributed / count], [count]) if count else ([], [])
    together = granted(demands + others[0], available, threads + others[1])
    # Threads of one program compete for CPUs even in isolation; neighbours do not cause that part.
    isolated = [min(1.0, available / n / d) for d, n in zip(demands, threads, strict=True)]
    return [share / alone for share, alone in zip(together.tolist(), isolated, strict=False)]


def _cpus(shares: Mapping[str, float]) -> float:
    """CPUs of a host: the sum of its CPU times where all are known, else `TRAINING_CPUS`."""
    return max(1.0, float(round(sum(shares.values())))) if IDLE_METRIC in shares else TRAINING_CPUS


def _cpu_shares(current: HostWindow | None) -> dict[str, float]:
    """Current median of each kind of CPU time, in CPUs (1 is one CPU)."""
    shares: dict[str, float] = {}
    if current is None:
        return shares
    for column, name in enumerate(current.metrics):
        if name in CPU_METRICS:
            known = [second[column] for second in current.seconds if isfinite(second[column])]
            shares |= {name: median(known)} if known else {}
    return shares


def profile_of(program: ProgramIn) -> ProgramProfile:
    """The profile of a program as predictors receive it."""
    return ProgramProfile(
        program.name,
        _medians(program.alone),
        HostWindow(),
        program.working_set_mib,
        program.cpu_share,
        program.cpu_spread,
        program.p_cpu_beside_cache,
    )


def current_window(host: HostIn) -> HostWindow | None:
    """The current metrics of a host; None where the request gives none."""
    if host.window is not None and host.window.seconds:
        return window_of(host.window)
    return _medians(host.metrics) if host.metrics else None


def _medians(metrics: Mapping[str, float]) -> HostWindow:
    return HostWindow(tuple(metrics), (tuple(metrics.values()),) if metrics else ())


def window_of(given: WindowIn) -> HostWindow:
    """The window of a request as predictors receive it; a missing value is NaN."""
    seconds = [
        tuple(nan if value is None else float(value) for value in second)
        for second in given.seconds
    ]
    return HostWindow(tuple(given.metrics), tuple(seconds) if given.metrics else ())


def colocator_of(predictor: Predictor) -> ColocationBoost:
    """The part of a predictor that answers queries about co-location.

    Raises:
        UnanswerableQuery: no part was trained for co-location.
    """
    for part in predictors_in(predictor):
        if isinstance(part, ColocationBoost) and part.levels:
            return part
    raise UnanswerableQuery(
        "No predictor in use was trained for co-location: `forerun train colocation_boost` fits "
        "one on what `forerun collect contention` measured."
    )


def colocate(request: ColocationIn, loaded: LoadedPredictor) -> ColocationOut:
    """Predict the relative speed of a candidate and of all residents on one host.

    Args:
        request: the candidate and the host.
        loaded: the predictor in use.

    Raises:
        UnanswerableQuery: no predictor in use was trained for co-location.
    """
    part = colocator_of(loaded.predictor)
    (placed,) = placements(request.candidate, [request.host], part)
    programs = placed.programs
    rows = ColocationRows.from_queries(placed.queries, part.idle)
    predictions = part.predict_rows(rows, part.metrics)
    resource_gains = gains(part, placed.queries, predictions.values)
    scaled = _with_isolated_programs_at_one([placed], predictions)
    answers = _program_answers(programs, rows, part, scaled, resource_gains)
    worst = min(answers, key=lambda own: inf if own.p_cpu is None else own.p_cpu.value)
    return ColocationOut(
        candidate=answers[0],
        residents=answers[1:],
        worst=worst.program,
        assumed=assumed(part, placed.current) + _program_notes(programs, part),
        unread_metrics=_unread([request.host], programs),
        predictor=ColocatorOut(name=part.name, version=loaded.version),
    )


def rank(request: HostsIn, loaded: LoadedPredictor) -> HostsOut:
    """Rank hosts for a candidate; all programs of all hosts are predicted in one call.

    Args:
        request: the candidate, the hosts, and the objective.
        loaded: the predictor in use.

    Returns:
        The hosts, the best first.

    Raises:
        UnanswerableQuery: no predictor in use was trained for co-location, or for this metric.
    """
    part = colocator_of(loaded.predictor)
    placed, rows = _placed(request.candidate, request.hosts, request.metric, part)
    predictions = part.predict_rows(rows, [request.metric])
    answers = _with_isolated_programs_at_one(placed, predictions)
    classes = part.slowed(rows, answers)
    values = answers.values[request.metric].tolist()
    in_domain = _in_domain(answers)
    hosts, first = [], 0
    for index, (host, each) in enumerate(zip(request.hosts, placed, strict=True)):
        last = first + len(each.programs)
        speeds = values[first:last]
        slowest = speeds.index(min(speeds))
        candidate = _performance(answers, classes, request.metric, first)
        worst = _performance(answers, classes, request.metric, first + slowest)
        scores = {"worst": speeds[slowest], "candidate": speeds[0], "mean": fmean(speeds)}
        hosts.append(
            RankedHostOut(
                name=host.name,
                index=index,
                score=scores[request.objective],
                candidate=candidate,
                worst=worst,
                worst_program=each.programs[slowest].name,
                in_domain=all(in_domain[first:last]),
            )
        )
        first = last
    hosts.sort(key=lambda host: -host.score)
    any_measured = any(each.current is not None for each in placed)
    return HostsOut(
        hosts=hosts,
        metric=request.metric,
        assumed=assumed(part, HostWindow() if any_measured else None)
        + _program_notes([request.candidate], part),
        unread_metrics=_unread(request.hosts, [p for each in placed for p in each.programs]),
        predictor=ColocatorOut(name=part.name, version=loaded.version),
    )


def slowest_programs(
    candidate: ProgramIn, hosts: Sequence[HostIn], loaded: LoadedPredictor
) -> list[tuple[float, str]]:
    """The lowest P of wall time on each of n hosts, and the name of the program that has it.

    They are those of `rank` with its usual objective, without intervals and limits.

    Args:
        candidate: the program to be placed on each host.
        hosts: the hosts.
        loaded: the predictor in use.

    Raises:
        UnanswerableQuery: no predictor in use was trained for P of wall time.
    """
    part = colocator_of(loaded.predictor)
    placed, rows = _placed(candidate, hosts, "p_wall", part)
    speeds = np.exp(part.predict_log(rows, ["p_wall"])["p_wall"]).tolist()
    slowest, first = [], 0
    for each in placed:
        last = first + len(each.programs)
        own = [1.0] if each.is_isolated else speeds[first:last]
        least = min(own)
        slowest.append((least, each.programs[own.index(least)].name))
        first = last
    return slowest


def _placed(
    candidate: ProgramIn, hosts: Sequence[HostIn], metric: str, part: ColocationBoost
) -> tuple[list[Placement], ColocationRows]:
    """The candidate on each of n hosts, with the features of all programs there.

    Raises:
        UnanswerableQuery: the predictor was not trained for the metric.
    """
    if metric not in part.metrics:
        raise UnanswerableQuery(f"The predictor in use was not trained for {metric}.")
    placed = placements(candidate, hosts, part)
    queries = [query for each in placed for query in each.queries]
    return placed, ColocationRows.from_queries(queries, part.idle)


def now(request: NowIn, loaded: LoadedPredictor) -> NowOut:
    """Predict the relative speed of a running program from current metrics of its host.

    Args:
        request: the program and a window of its host's metrics.
        loaded: the predictor in use.

    Raises:
        UnanswerableQuery: no predictor in use was trained for co-location.
    """
    part = colocator_of(loaded.predictor)
    profile, window = profile_of(request.program), window_of(request.window)
    ratio = request.program.reference_ratio
    query = Query(Colocation(profile, window, reference_ratio=ratio), GUEST_DEVICE)
    rows = ColocationRows.from_queries([query], part.idle)
    predictions = part.predict_rows(rows, part.metrics)
    resource_gains = gains(part, [query], predictions.values)
    (answer,) = _program_answers([request.program], rows, part, predictions, resource_gains)
    return NowOut(
        program=answer,
        unread_metrics=list(unread_metrics([*request.window.metrics, *request.program.alone])),
        predictor=ColocatorOut(name=part.name, version=loaded.version),
    )


def assumed(part: ColocationBoost, current: HostWindow | None) -> list[str]:
    """The assumptions behind the forecast of a host's metrics, as one sentence each.

    Args:
        part: the predictor of co-location.
        current: the metrics that the host shows now; None where the request gives none.
    """
    start = "an idle host plus every program" if current is None else "what it shows now plus"
    lines = [
        f"metrics of the host: {start}{'' if current is None else ' the candidate'}, each adding "
        "what it added to an idle host when it ran alone",
        "programs share the host's CPUs fairly; each thread needs the share of a CPU that "
        "the program used alone (a whole one without `cpu_share`)",
    ]
    if not part.mixing.pairs:
        lines.append(
            "no pair of profiled programs was measured: their loads are added with weight 1"
        )
    lines.append(f"the training runs were measured on a guest of {TRAINING_CPUS:.0f} CPUs")
    intervals = "intervals were calibrated on measured windows, not on computed ones"
    if part.ahead and current is None:
        intervals = (
            f"intervals: from {part.mixing.pairs} runs of pairs predicted before they ran together"
        )
    lines.append(intervals)
    return lines


def _unread(hosts: Sequence[HostIn], programs: Sequence[ProgramIn]) -> list[str]:
    """Names of metrics in a request that the predictor does not use."""
    given = {name for program in programs for name in program.alone}
    for host in hosts:
        given |= set(host.metrics or ()) | set(host.window.metrics if host.window else ())
    return list(unread_metrics(given))


def _program_notes(programs: Sequence[ProgramIn], part: ColocationBoost) -> list[str]:
    """Notes on programs of the training set, and on programs without metrics of an isolated run."""
    named = {
        "measured under that name, so measurements are used, not the profile alone": [
            program.name for program in programs if _is_measured(program, part)
        ],
        "has no metrics of a run alone, so it adds nothing to the host": [
            program.name for program in programs if not program.alone
        ],
    }
    return [f"{line}: {', '.join(sorted(set(names)))}" for line, names in named.items() if names]


def _is_measured(program: ProgramIn, part: ColocationBoost) -> bool:
    """Whether the training set holds co-located runs of a program of that name."""
    return any(program.name in level.programs for level in part.levels.values())


def _with_isolated_programs_at_one(
    placed: Sequence[Placement], answers: Predictions
) -> Predictions:
    """Predictions in which the relative speed of a program alone on an idle host is 1.

    Args:
        placed: the candidate on n hosts.
        answers: predictions of the programs of each host, in order.
    """
    counts = [len(each.programs) for each in placed]
    idle = np.repeat([each.is_isolated for each in placed], counts)
    scale = {m: np.where(idle, 1.0 / value, 1.0) for m, value in answers.values.items()}

    def scaled(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {metric: column * scale[metric] for metric, column in columns.items()}

    low, high = scaled(answers.low), scaled(answers.high)
    return replace(answers, values=scaled(answers.values), low=low, high=high)


def _program_answers(
    programs: Sequence[ProgramIn],
    rows: ColocationRows,
    part: ColocationBoost,
    answers: Predictions,
    resource_gains: Sequence[Mapping[Resource, float]],
) -> list[ProgramOut]:
    classes, in_domain = part.slowed(rows, answers), _in_domain(answers)
    of_hosts = [name for name in part.training_metrics if not name.startswith(OWN)]
    program_answers = []
    for row, (program, limits) in enumerate(zip(programs, answers.limits, strict=True)):
        trust = trust_by(limits)
        speeds = {m: _performance(answers, classes, m, row) for m in answers.values}
        wanted = of_hosts if rows.estimated[row] else part.training_metrics
        program_answers.append(
            ProgramOut(
                program=program.name,
                measured=_is_measured(program, part),
                p_cpu=speeds.get("p_cpu"),
                p_wall=speeds.get("p_wall"),
                dominant_resource=dominant(resource_gains[row]),
                gains=resource_gains[row],
                missing_metrics=list(missing_metrics(rows.window_statistics[row, 0], wanted)),
                in_domain=in_domain[row],
                grade=trust.grade,
                grade_reason=trust.reason,
                limits=[str(limit) for limit in limits],
                limit_details=[LimitOut.of(limit) for limit in limits],
            )
        )
    return program_answers


def _in_domain(answers: Predictions) -> list[bool]:
    """Whether each row's limits leave it inside the domain of the training set."""
    return [all(limit.in_domain for limit in limits) for limits in answers.limits]


def _performance(
    answers: Predictions, classes: Mapping[str, Sequence[Slowed | None]], metric: str, row: int
) -> PerformanceOut:
    low, high = float(answers.low[metric][row]), float(answers.high[metric][row])
    has_ends = not isnan(low)
    slowed = classes[metric][row]
    rates = slowed and SlowedOut(
        slowed=slowed.slowed,
        false_alarms=slowed.errors.false_alarms,
        misses=slowed.errors.misses,
        runs=slowed.errors.rows,
    )
    return PerformanceOut(
        value=float(answers.values[metric][row]),
        low=low if has_ends else None,
        high=high if has_ends else None,
        coverage=answers.coverage_of(metric) if has_ends else None,
        slowed=rates,
    )
