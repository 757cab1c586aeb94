"""Answers about programs that share a host."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from forerun.data.errors import UnanswerableQuery
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow
from forerun.features.host_windows import missing_metrics, unread_metrics
from forerun.models.artifact.loading import LoadedPredictor
from forerun.models.colocation.base import ColocationBase
from forerun.models.colocation.host_forecast import OWN
from forerun.models.colocation.slowed_class import Slowed
from forerun.models.colocation.slowing_resource import dominant, gains
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.service.answers.colocation_queries import (
    GUEST_DEVICE,
    TRAINING_CPUS,
    colocation_queries,
    current_window,
    forecast_window,
    profile_of,
    window_of,
)
from forerun.service.limits.trust import trust_by
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
)


def colocator_of(predictor: Predictor) -> ColocationBase:
    """The part of a predictor that answers queries about co-location.

    Raises:
        UnanswerableQuery: no part was trained for co-location.
    """
    parts = predictor.parts if isinstance(predictor, Router) else (predictor,)
    for part in parts:
        if isinstance(part, ColocationBase) and part.levels:
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
    window = forecast_window(request.candidate, request.host, part)
    programs = [request.candidate, *request.host.residents]
    queries = colocation_queries(programs, request.host, window)
    answers = _program_answers(
        programs, queries, part, _with_isolated_programs_at_one([request.host], queries, part)
    )
    worst = min(answers, key=lambda own: inf if own.p_cpu is None else own.p_cpu.value)
    return ColocationOut(
        candidate=answers[0],
        residents=answers[1:],
        worst=worst.program,
        assumed=assumed(part, current_window(request.host)) + _program_notes(programs, part),
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
    if request.metric not in part.metrics:
        raise UnanswerableQuery(f"The predictor in use was not trained for {request.metric}.")
    queries, all_programs, hosts_of_programs = [], [], []
    for index, host in enumerate(request.hosts):
        window = forecast_window(request.candidate, host, part)
        programs = [request.candidate, *host.residents]
        queries += colocation_queries(programs, host, window)
        all_programs += programs
        hosts_of_programs += [index] * len(programs)
    answers = _with_isolated_programs_at_one(request.hosts, queries, part)
    values = answers.values[request.metric]
    classes = part.slowed(queries, answers)
    host_of = np.array(hosts_of_programs)
    hosts = []
    for index, host in enumerate(request.hosts):
        rows = np.flatnonzero(host_of == index)
        speeds = values[rows]
        slowest = int(rows[int(speeds.argmin())])
        candidate = _performance(answers, classes, request.metric, int(rows[0]))
        worst = _performance(answers, classes, request.metric, slowest)
        assert candidate and worst, "relative speeds are never withheld"
        scores = {"worst": speeds.min(), "candidate": speeds[0], "mean": speeds.mean()}
        hosts.append(
            RankedHostOut(
                name=host.name,
                index=index,
                score=float(scores[request.objective]),
                candidate=candidate,
                worst=worst,
                worst_program=all_programs[slowest].name,
                in_domain=all(_in_domain(answers, int(row)) for row in rows),
            )
        )
    hosts.sort(key=lambda host: -host.score)
    any_measured = any(current_window(host) is not None for host in request.hosts)
    return HostsOut(
        hosts=hosts,
        metric=request.metric,
        assumed=assumed(part, HostWindow() if any_measured else None)
        + _program_notes([request.candidate], part),
        unread_metrics=_unread(request.hosts, all_programs),
        predictor=ColocatorOut(name=part.name, version=loaded.version),
    )


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
    (answer,) = _program_answers([request.program], [query], part, part.predict([query]))
    return NowOut(
        program=answer,
        unread_metrics=list(unread_metrics([*request.window.metrics, *request.program.alone])),
        predictor=ColocatorOut(name=part.name, version=loaded.version),
    )


def assumed(part: ColocationBase, current: HostWindow | None) -> list[str]:
    """The assumptions behind the forecast of a host's metrics, as one sentence each.

    Args:
        part: the predictor of co-location.
        current: the metrics that the host shows now; None where the request gives none.
    """
    start = "an idle host plus every program" if current is None else "what it shows now plus"
    lines = [
        f"metrics of the host: {start}{'' if current is None else ' the candidate'}, each adding "
        "what it added to an idle host when it ran alone",
        "programs share the host's CPUs fairly, each wanting the share of one that it had alone "
        "(a whole one where `cpu_share` is not given); each of its threads adds as much to it",
    ]
    if not part.mixing.pairs:
        lines.append("no pair of profiled programs was measured: weights of what adds up are 1")
    lines.append(f"the training runs were measured on a guest of {TRAINING_CPUS:.0f} CPUs")
    intervals = "intervals were calibrated on measured windows, not on ones put together"
    if part.ahead and current is None:
        intervals = f"intervals: from {part.mixing.pairs} runs of pairs asked about before they met"
    lines.append(intervals)
    return lines


def _unread(hosts: Sequence[HostIn], programs: Sequence[ProgramIn]) -> list[str]:
    """Names of metrics in a request that the predictor does not use."""
    given = {name for program in programs for name in program.alone}
    for host in hosts:
        given |= set(host.metrics or ()) | set(host.window.metrics if host.window else ())
    return list(unread_metrics(given))


def _program_notes(programs: Sequence[ProgramIn], part: ColocationBase) -> list[str]:
    """Notes on programs of the training set, and on programs without metrics of an isolated run."""
    named = {
        "measured under that name, which answers more than a profile": [
            program.name for program in programs if _is_measured(program, part)
        ],
        "came without metrics of a run alone, so it adds nothing to the host": [
            program.name for program in programs if not program.alone
        ],
    }
    return [f"{line}: {', '.join(sorted(set(names)))}" for line, names in named.items() if names]


def _is_measured(program: ProgramIn, part: ColocationBase) -> bool:
    """Whether the training set holds co-located runs of a program of that name."""
    return any(program.name in level.programs for level in part.levels.values())


def _with_isolated_programs_at_one(
    hosts: Sequence[HostIn], queries: Sequence[Query], part: ColocationBase
) -> Predictions:
    """Predictions for forecast hosts; relative speed is 1 for a program alone on an idle host.

    Args:
        hosts: n hosts; the candidate and the residents of each are queried, in order.
        queries: one query per program of each host.
        part: the predictor of co-location.
    """
    answers = part.predict(queries)
    counts = [1 + len(host.residents) for host in hosts]
    free = [not host.residents and current_window(host) is None for host in hosts]
    idle = np.repeat(free, counts)
    scale = {m: np.where(idle, 1.0 / value, 1.0) for m, value in answers.values.items()}

    def scaled(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {metric: column * scale[metric] for metric, column in columns.items()}

    low, high = scaled(answers.low), scaled(answers.high)
    return replace(answers, values=scaled(answers.values), low=low, high=high)


def _program_answers(
    programs: Sequence[ProgramIn],
    queries: Sequence[Query],
    part: ColocationBase,
    answers: Predictions,
) -> list[ProgramOut]:
    resource_gains, classes = gains(part, queries), part.slowed(queries, answers)
    program_answers = []
    for row, (program, query) in enumerate(zip(programs, queries, strict=True)):
        trust = trust_by(answers.limits[row])
        wanted = [n for n in part.training_metrics if not n.startswith(OWN)]
        run = query.colocation
        missing = missing_metrics(run.window, wanted if run.estimated else part.training_metrics)
        program_answers.append(
            ProgramOut(
                program=program.name,
                measured=_is_measured(program, part),
                p_cpu=_performance(answers, classes, "p_cpu", row),
                p_wall=_performance(answers, classes, "p_wall", row),
                dominant_resource=dominant(resource_gains[row]),
                gains=resource_gains[row],
                missing_metrics=list(missing),
                in_domain=_in_domain(answers, row),
                grade=trust.grade,
                grade_reason=trust.reason,
                limits=[str(limit) for limit in answers.limits[row]],
                limit_details=[LimitOut.of(limit) for limit in answers.limits[row]],
            )
        )
    return program_answers


def _in_domain(answers: Predictions, row: int) -> bool:
    return all(limit.in_domain for limit in answers.limits[row])


def _performance(
    answers: Predictions, classes: Mapping[str, Sequence[Slowed | None]], metric: str, row: int
) -> PerformanceOut | None:
    estimate = answers[row].estimates.get(metric)
    if estimate is None:
        return None
    slowed = classes[metric][row]
    rates = slowed and SlowedOut(
        slowed=slowed.slowed,
        false_alarms=slowed.errors.false_alarms,
        misses=slowed.errors.misses,
        runs=slowed.errors.rows,
    )
    return PerformanceOut(
        value=estimate.value,
        low=estimate.low,
        high=estimate.high,
        coverage=estimate.coverage,
        slowed=rates,
    )
