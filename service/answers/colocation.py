"""Answers about programs that share a host: requests to queries, predictions to responses.

The metrics of the host after placement are forecast from profiles
(`forerun.models.colocation.host_forecast`). The forecast starts from the current metrics, where the
request gives them, and adds the candidate; otherwise it starts from an idle host and adds all
programs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from typing import Any

import numpy as np

from forerun.data.device import Device
from forerun.data.errors import UnanswerableQuery
from forerun.data.query import Query
from forerun.data.workload import Colocation, HostWindow, ProgramProfile
from forerun.features.host_windows import missing_metrics, unread_metrics
from forerun.models.artifact.loading import LoadedPredictor
from forerun.models.colocation.base import ColocationBase
from forerun.models.colocation.features import METRICS
from forerun.models.colocation.host_forecast import OWN, demand, granted
from forerun.models.colocation.slowed_class import Slowed
from forerun.models.colocation.slowing_resource import dominant, gains
from forerun.models.prediction import Predictions
from forerun.models.predictor import Predictor
from forerun.models.router import Router
from forerun.service.schemas.colocation import (
    ColocationIn,
    HostIn,
    HostsIn,
    NowIn,
    ProgramIn,
    WindowIn,
)

GUEST_DEVICE = Device(name="guest", vendor="unknown", kind="vm")
BUSY_METRICS = ("cpu.user_share", "cpu.nice_share", "cpu.system_share", "cpu.steal_share")
IDLE_METRIC = "cpu.idle_share"
FREE_METRICS = (IDLE_METRIC, "cpu.iowait_share")
TRAINING_CPUS = 2.0
"""CPUs of the guest on which all co-located runs of the training set were measured."""
MIN_UNATTRIBUTED_CPUS = 0.1
"""Fewest busy CPUs, unexplained by the residents, that count as further programs."""
MAX_UNATTRIBUTED_PER_CPU = 32
"""Upper bound on such programs per CPU, because the metrics in a request may have any value."""


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


def colocate(request: ColocationIn, loaded: LoadedPredictor) -> dict[str, Any]:
    """Predict the relative speed of a candidate and of all residents on one host.

    Args:
        request: the candidate and the host.
        loaded: the predictor in use.

    Returns:
        The fields of `ColocationOut`.

    Raises:
        UnanswerableQuery: no predictor in use was trained for co-location.
    """
    part = colocator_of(loaded.predictor)
    window = _forecast_window(request.candidate, request.host, part)
    programs = [request.candidate, *request.host.residents]
    queries = _colocation_queries(programs, request.host, window)
    answers = _program_answers(
        programs, queries, part, _with_isolated_programs_at_one([request.host], queries, part)
    )
    worst = min(answers, key=lambda answer: (answer["p_cpu"] or {"value": np.inf})["value"])
    return {
        "candidate": answers[0],
        "residents": answers[1:],
        "worst": worst["program"],
        "assumed": assumed(part, _current_window(request.host)) + _program_notes(programs, part),
        "unread_metrics": _unread([request.host], programs),
        "predictor": {"name": part.name, "version": loaded.version},
    }


def rank(request: HostsIn, loaded: LoadedPredictor) -> dict[str, Any]:
    """Rank hosts for a candidate; all programs of all hosts are predicted in one call.

    Args:
        request: the candidate, the hosts, and the objective.
        loaded: the predictor in use.

    Returns:
        The fields of `HostsOut`, the best host first.

    Raises:
        UnanswerableQuery: no predictor in use was trained for co-location, or for this metric.
    """
    part = colocator_of(loaded.predictor)
    if request.metric not in part.metrics:
        raise UnanswerableQuery(f"The predictor in use was not trained for {request.metric}.")
    queries, all_programs, hosts_of_programs = [], [], []
    for index, host in enumerate(request.hosts):
        window = _forecast_window(request.candidate, host, part)
        programs = [request.candidate, *host.residents]
        queries += _colocation_queries(programs, host, window)
        all_programs += programs
        hosts_of_programs += [index] * len(programs)
    answers = _with_isolated_programs_at_one(request.hosts, queries, part)
    values = answers.values[request.metric]
    classes = part.slowed(queries, answers)
    host_of = np.array(hosts_of_programs)
    hosts: list[dict[str, Any]] = []
    for index, host in enumerate(request.hosts):
        rows = np.flatnonzero(host_of == index)
        speeds = values[rows]
        slowest = int(rows[int(speeds.argmin())])
        scores = {"worst": speeds.min(), "candidate": speeds[0], "mean": speeds.mean()}
        hosts.append(
            {
                "name": host.name,
                "index": index,
                "score": float(scores[request.objective]),
                "candidate": _performance(answers, classes, request.metric, int(rows[0])),
                "worst": _performance(answers, classes, request.metric, slowest),
                "worst_program": all_programs[slowest].name,
                "in_domain": all(_in_domain(answers, int(row)) for row in rows),
            }
        )
    hosts.sort(key=lambda host: -host["score"])
    any_measured = any(_current_window(host) is not None for host in request.hosts)
    return {
        "hosts": hosts,
        "metric": request.metric,
        "assumed": assumed(part, HostWindow() if any_measured else None)
        + _program_notes([request.candidate], part),
        "unread_metrics": _unread(request.hosts, all_programs),
        "predictor": {"name": part.name, "version": loaded.version},
    }


def now(request: NowIn, loaded: LoadedPredictor) -> dict[str, Any]:
    """Predict the relative speed of a running program from current metrics of its host.

    Args:
        request: the program and a window of its host's metrics.
        loaded: the predictor in use.

    Returns:
        The fields of `NowOut`.

    Raises:
        UnanswerableQuery: no predictor in use was trained for co-location.
    """
    part = colocator_of(loaded.predictor)
    profile, window = _profile(request.program), _window(request.window)
    ratio = request.program.reference_ratio
    query = Query(Colocation(profile, window, reference_ratio=ratio), GUEST_DEVICE)
    (answer,) = _program_answers([request.program], [query], part, part.predict([query]))
    return {
        "program": answer,
        "unread_metrics": list(unread_metrics([*request.window.metrics, *request.program.alone])),
        "predictor": {"name": part.name, "version": loaded.version},
    }


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


def _forecast_window(candidate: ProgramIn, host: HostIn, part: ColocationBase) -> HostWindow:
    """The forecast metrics of a host once the candidate runs there."""
    current = _current_window(host)
    added = [candidate] if current is not None else [candidate, *host.residents]
    profiles = [_profile(program) for program in added]
    threads = [program.threads for program in added]
    return part.mixing.together(profiles, current or part.idle, part.idle, threads)


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
    free = [not host.residents and _current_window(host) is None for host in hosts]
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
) -> list[dict[str, Any]]:
    """The fields of `ProgramOut` for each program."""
    resource_gains, classes = gains(part, queries), part.slowed(queries, answers)
    program_answers = []
    for row, (program, query) in enumerate(zip(programs, queries, strict=True)):
        wanted = [n for n in part.training_metrics if not n.startswith(OWN)]
        run = query.colocation
        missing = missing_metrics(run.window, wanted if run.estimated else part.training_metrics)
        program_answers.append(
            {
                "program": program.name,
                "measured": _is_measured(program, part),
                **{metric: _performance(answers, classes, metric, row) for metric in METRICS},
                "dominant_resource": dominant(resource_gains[row]),
                "gains": resource_gains[row],
                "missing_metrics": list(missing),
                "in_domain": _in_domain(answers, row),
                "limits": [str(limit) for limit in answers.limits[row]],
            }
        )
    return program_answers


def _in_domain(answers: Predictions, row: int) -> bool:
    return all(limit.in_domain for limit in answers.limits[row])


def _performance(
    answers: Predictions, classes: Mapping[str, Sequence[Slowed | None]], metric: str, row: int
) -> Mapping[str, Any] | None:
    estimate = answers[row].estimates.get(metric)
    if estimate is None:
        return None
    slowed = classes[metric][row]
    ends = {"low": estimate.low, "high": estimate.high, "coverage": estimate.coverage}
    rates = slowed and {
        "slowed": slowed.slowed,
        "false_alarms": slowed.errors.false_alarms,
        "misses": slowed.errors.misses,
        "runs": slowed.errors.rows,
    }
    return {"value": estimate.value, **ends, "slowed": rates}


def _colocation_queries(
    programs: Sequence[ProgramIn], host: HostIn, window: HostWindow
) -> list[Query]:
    """Queries about the programs of a host, each with the share of CPU time that it will get.

    CPU time in use that the residents do not explain is attributed to further programs.
    """
    profiles = [_profile(program) for program in programs]
    demands = [
        [demand(profile)] * program.threads
        for profile, program in zip(profiles, programs, strict=True)
    ]
    unattributed = _busy(host) - sum(map(sum, demands[1:]))
    cpus = _cpus(host)
    count = int(
        np.clip(
            np.ceil(unattributed - MIN_UNATTRIBUTED_CPUS),
            0,
            MAX_UNATTRIBUTED_PER_CPU * np.ceil(cpus),
        )
    )
    others = [unattributed / count] * count if count else []
    shares = granted([*chain(*demands), *others], cpus)
    # Threads of one program compete for CPUs even in isolation; neighbours do not cause that part.
    isolated_shares = [float(granted(demand_of, cpus)[0]) for demand_of in demands]
    first = accumulate((program.threads for program in programs), initial=0)
    return [
        Query(
            Colocation(profile, window, True, shares[index] / isolated, program.reference_ratio),
            GUEST_DEVICE,
        )
        for program, profile, index, isolated in zip(
            programs, profiles, first, isolated_shares, strict=False
        )
    ]


def _busy(host: HostIn) -> float:
    """CPUs in use now; 0 where the request does not give the metrics."""
    return sum(_shares(host).get(name, 0.0) for name in BUSY_METRICS)


def _cpus(host: HostIn) -> float:
    """CPUs of a host: as given, else the sum of its CPU metrics, else `TRAINING_CPUS`."""
    if host.cpus is not None:
        return float(host.cpus)
    shares = _shares(host)
    return max(1.0, float(round(sum(shares.values())))) if IDLE_METRIC in shares else TRAINING_CPUS


def _shares(host: HostIn) -> dict[str, float]:
    """Current median of each kind of CPU time, in CPUs (1 is one CPU)."""
    current = _current_window(host)
    if current is None:
        return {}
    shares = {}
    for column, name in enumerate(current.metrics):
        known = [second[column] for second in current.seconds if np.isfinite(second[column])]
        if name in (*BUSY_METRICS, *FREE_METRICS) and known:
            shares[name] = float(np.median(known))
    return shares


def _profile(program: ProgramIn) -> ProgramProfile:
    return ProgramProfile(
        program.name,
        _medians(program.alone),
        HostWindow(),
        program.working_set_mib,
        program.cpu_share,
        program.cpu_spread,
        program.p_cpu_beside_cache,
    )


def _current_window(host: HostIn) -> HostWindow | None:
    """The current metrics of a host; None where the request gives none."""
    if host.window is not None and host.window.seconds:
        return _window(host.window)
    return _medians(host.metrics) if host.metrics else None


def _medians(metrics: Mapping[str, float]) -> HostWindow:
    return HostWindow(tuple(metrics), (tuple(metrics.values()),) if metrics else ())


def _window(given: WindowIn) -> HostWindow:
    seconds = [
        tuple(np.nan if value is None else float(value) for value in second)
        for second in given.seconds
    ]
    return HostWindow(tuple(given.metrics), tuple(seconds) if given.metrics else ())
