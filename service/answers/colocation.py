"""Questions about programs that share a host, from schemas to the predictor and back.

A host that is to be is put together from profiles (`forerun.models.colocation.host_forecast`): from
what it shows now where that is given, plus the candidate; else from an idle host plus all programs.
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
from forerun.models.colocation.features import METRICS, colocation_of
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

GUEST = Device(name="guest", vendor="unknown", kind="vm")
BUSY = ("cpu.user_share", "cpu.nice_share", "cpu.system_share", "cpu.steal_share")
IDLE = "cpu.idle_share"
FREE = (IDLE, "cpu.iowait_share")
CPUS_TAUGHT = 2.0
LEAST_OTHERS = 0.1
"""CPUs in use beside residents from which on somebody else runs there."""
MOST_OTHERS = 32
"""Of them on each CPU: what a host is said to show may be anything."""


def colocator_of(predictor: Predictor) -> ColocationBase:
    """The part that answers about co-location.

    Raises:
        UnanswerableQuery: none does.
    """
    parts = predictor.parts if isinstance(predictor, Router) else (predictor,)
    for part in parts:
        if isinstance(part, ColocationBase) and part.levels:
            return part
    raise UnanswerableQuery(
        "No predictor in use was taught co-location: `forerun train colocation_boost` fits one on "
        "what `forerun collect contention` measured."
    )


def colocate(asked: ColocationIn, loaded: LoadedPredictor) -> dict[str, Any]:
    """The fields of `ColocationOut`.

    Raises:
        UnanswerableQuery: no predictor in use was taught co-location.
    """
    part = colocator_of(loaded.predictor)
    window = _together(asked.candidate, asked.host, part)
    programs = [asked.candidate, *asked.host.residents]
    queries = _coming(programs, asked.host, window)
    answers = _told(programs, queries, part, _alone_by_definition([asked.host], queries, part))
    worst = min(answers, key=lambda one: (one["p_cpu"] or {"value": np.inf})["value"])
    return {
        "candidate": answers[0],
        "residents": answers[1:],
        "worst": worst["program"],
        "assumed": assumed(part, _shown(asked.host)) + _of_programs(programs, part),
        "unread_metrics": _unread([asked.host], programs),
        "predictor": {"name": part.name, "version": loaded.version},
    }


def rank(asked: HostsIn, loaded: LoadedPredictor) -> dict[str, Any]:
    """The fields of `HostsOut`; all programs of all hosts are answered in one call.

    Raises:
        UnanswerableQuery: no predictor in use was taught co-location, or not this metric.
    """
    part = colocator_of(loaded.predictor)
    if asked.metric not in part.metrics:
        raise UnanswerableQuery(f"The predictor in use was not taught {asked.metric}.")
    queries, everyone, owners = [], [], []
    for place, host in enumerate(asked.hosts):
        window = _together(asked.candidate, host, part)
        programs = [asked.candidate, *host.residents]
        queries += _coming(programs, host, window)
        everyone += programs
        owners += [place] * len(programs)
    answers = _alone_by_definition(asked.hosts, queries, part)
    values = answers.values[asked.metric]
    classes = part.slowed(queries, answers)
    place_of = np.array(owners)
    found: list[dict[str, Any]] = []
    for place, host in enumerate(asked.hosts):
        rows = np.flatnonzero(place_of == place)
        mine = values[rows]
        least = int(rows[int(mine.argmin())])
        scores = {"worst": mine.min(), "candidate": mine[0], "mean": mine.mean()}
        found.append(
            {
                "name": host.name,
                "index": place,
                "score": float(scores[asked.objective]),
                "candidate": _performance(answers, classes, asked.metric, int(rows[0])),
                "worst": _performance(answers, classes, asked.metric, least),
                "worst_program": everyone[least].name,
                "in_domain": not any(answers.limits[int(row)] for row in rows),
            }
        )
    found.sort(key=lambda one: -one["score"])
    shown = any(_shown(host) is not None for host in asked.hosts)
    return {
        "hosts": found,
        "metric": asked.metric,
        "assumed": assumed(part, HostWindow() if shown else None)
        + _of_programs([asked.candidate], part),
        "unread_metrics": _unread(asked.hosts, everyone),
        "predictor": {"name": part.name, "version": loaded.version},
    }


def now(asked: NowIn, loaded: LoadedPredictor) -> dict[str, Any]:
    """The fields of `NowOut`.

    Raises:
        UnanswerableQuery: no predictor in use was taught co-location.
    """
    part = colocator_of(loaded.predictor)
    profile, window = _profile(asked.program), _window(asked.window)
    ratio = asked.program.reference_ratio
    query = Query(Colocation(profile, window, reference_ratio=ratio), GUEST)
    (answer,) = _told([asked.program], [query], part, part.predict([query]))
    return {
        "program": answer,
        "unread_metrics": list(unread_metrics([*asked.window.metrics, *asked.program.alone])),
        "predictor": {"name": part.name, "version": loaded.version},
    }


def assumed(part: ColocationBase, shown: HostWindow | None) -> list[str]:
    """How a host that is to be was put together, a line each."""
    start = "an idle host plus every program" if shown is None else "what it shows now plus"
    lines = [
        f"metrics of the host: {start}{'' if shown is None else ' the candidate'}, each adding "
        "what it added to an idle host when it ran alone",
        "programs share the host's CPUs fairly, each wanting the share of one that it had alone "
        "(a whole one where `cpu_share` is not given); each of its threads adds as much to it",
    ]
    if not part.mixing.pairs:
        lines.append("no pair of profiled programs was measured: weights of what adds up are 1")
    lines.append(f"what taught was measured on a guest of {CPUS_TAUGHT:.0f} CPUs")
    told = "intervals were calibrated on measured windows, not on ones put together"
    if part.ahead and shown is None:
        told = f"intervals: from {part.mixing.pairs} runs of pairs asked about before they met"
    lines.append(told)
    return lines


def _unread(hosts: Sequence[HostIn], programs: Sequence[ProgramIn]) -> list[str]:
    """Names of metrics in a question that nothing reads."""
    given = {name for program in programs for name in program.alone}
    for host in hosts:
        given |= set(host.metrics or ()) | set(host.window.metrics if host.window else ())
    return list(unread_metrics(given))


def _together(candidate: ProgramIn, host: HostIn, part: ColocationBase) -> HostWindow:
    shown = _shown(host)
    coming = [candidate] if shown is not None else [candidate, *host.residents]
    profiles, threads = [_profile(one) for one in coming], [one.threads for one in coming]
    return part.mixing.together(profiles, shown or part.idle, part.idle, threads)


def _of_programs(programs: Sequence[ProgramIn], part: ColocationBase) -> list[str]:
    """Lines for programs whose name was measured before, and for those without metrics."""
    named = {
        "measured under that name, which answers more than a profile": [
            one.name for one in programs if _is_measured(one, part)
        ],
        "came without metrics of a run alone, so it adds nothing to the host": [
            one.name for one in programs if not one.alone
        ],
    }
    return [f"{line}: {', '.join(sorted(set(names)))}" for line, names in named.items() if names]


def _is_measured(program: ProgramIn, part: ColocationBase) -> bool:
    return any(program.name in one.programs for one in part.levels.values())


def _alone_by_definition(
    hosts: Sequence[HostIn], queries: Sequence[Query], part: ColocationBase
) -> Predictions:
    """Answers about hosts put together; P of a program that comes to an idle one is 1.

    Args:
        hosts: whose candidate and residents are asked about, in order.
        queries: one for each of them.
        part: answers.
    """
    answers = part.predict(queries)
    counts = [1 + len(host.residents) for host in hosts]
    free = [not host.residents and _shown(host) is None for host in hosts]
    idle = np.repeat(free, counts)
    scale = {m: np.where(idle, 1.0 / value, 1.0) for m, value in answers.values.items()}

    def scaled(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {metric: column * scale[metric] for metric, column in columns.items()}

    low, high = scaled(answers.low), scaled(answers.high)
    return replace(answers, values=scaled(answers.values), low=low, high=high)


def _told(
    programs: Sequence[ProgramIn],
    queries: Sequence[Query],
    part: ColocationBase,
    answers: Predictions,
) -> list[dict[str, Any]]:
    found, classes = gains(part, queries), part.slowed(queries, answers)
    told = []
    for row, (program, query) in enumerate(zip(programs, queries, strict=True)):
        wanted = [n for n in part.training_metrics if not n.startswith(OWN)]
        asked = colocation_of(query)
        lost = missing_metrics(asked.window, wanted if asked.estimated else part.training_metrics)
        told.append(
            {
                "program": program.name,
                "measured": _is_measured(program, part),
                **{metric: _performance(answers, classes, metric, row) for metric in METRICS},
                "dominant_resource": dominant(found[row]),
                "gains": found[row],
                "missing_metrics": list(lost),
                "in_domain": not answers.limits[row],
                "limits": list(answers.limits[row]),
            }
        )
    return told


def _performance(
    answers: Predictions, classes: Mapping[str, Sequence[Slowed | None]], metric: str, row: int
) -> Mapping[str, Any] | None:
    estimate = answers[row].estimates.get(metric)
    if estimate is None:
        return None
    one = classes[metric][row]
    ends = {"low": estimate.low, "high": estimate.high, "coverage": estimate.coverage}
    rates = one and {
        "slowed": one.slowed,
        "false_alarms": one.errors.false_alarms,
        "misses": one.errors.misses,
        "runs": one.errors.rows,
    }
    return {"value": estimate.value, **ends, "slowed": rates}


def _coming(programs: Sequence[ProgramIn], host: HostIn, window: HostWindow) -> list[Query]:
    """Questions about programs of a host put together, each with the CPU time that it will get.

    What keeps the host busy now and is none of its residents counts as programs of its own.
    """
    profiles = [_profile(program) for program in programs]
    wants = [[demand(one)] * p.threads for one, p in zip(profiles, programs, strict=True)]
    others = _busy(host) - sum(map(sum, wants[1:]))
    cpus = _cpus(host)
    count = int(np.clip(np.ceil(others - LEAST_OTHERS), 0, MOST_OTHERS * np.ceil(cpus)))
    everyone = [*chain(*wants), *([others / count] * count if count else [])]
    shares = granted(everyone, cpus)
    # What threads of a program wait for each other with nobody beside it is no neighbour's doing.
    alone = [float(granted(mine, cpus)[0]) for mine in wants]
    first = accumulate((program.threads for program in programs), initial=0)
    return [
        Query(
            Colocation(profile, window, True, shares[place] / own, program.reference_ratio), GUEST
        )
        for program, profile, place, own in zip(programs, profiles, first, alone, strict=False)
    ]


def _busy(host: HostIn) -> float:
    """CPUs in use now; 0 where that is not shown."""
    return sum(_shares(host).get(name, 0.0) for name in BUSY)


def _cpus(host: HostIn) -> float:
    """CPUs that programs share there: as told, else as shown, else as on the guest that taught."""
    if host.cpus is not None:
        return float(host.cpus)
    shares = _shares(host)
    return max(1.0, float(round(sum(shares.values())))) if IDLE in shares else CPUS_TAUGHT


def _shares(host: HostIn) -> dict[str, float]:
    """Median share of each kind of CPU time that a host shows now, of one CPU."""
    shown = _shown(host)
    if shown is None:
        return {}
    found = {}
    for column, name in enumerate(shown.metrics):
        known = [one[column] for one in shown.seconds if np.isfinite(one[column])]
        if name in (*BUSY, *FREE) and known:
            found[name] = float(np.median(known))
    return found


def _profile(program: ProgramIn) -> ProgramProfile:
    alone = _medians(program.alone)
    size, share = program.working_set_mib, program.cpu_share
    spread, beside = program.cpu_spread, program.p_cpu_beside_cache
    return ProgramProfile(program.name, alone, HostWindow(), size, share, spread, beside)


def _shown(host: HostIn) -> HostWindow | None:
    """What a host shows now; None where nothing is given."""
    if host.window is not None and host.window.seconds:
        return _window(host.window)
    return _medians(host.metrics) if host.metrics else None


def _medians(metrics: Mapping[str, float]) -> HostWindow:
    return HostWindow(tuple(metrics), (tuple(metrics.values()),) if metrics else ())


def _window(given: WindowIn) -> HostWindow:
    seconds = [tuple(np.nan if v is None else float(v) for v in one) for one in given.seconds]
    return HostWindow(tuple(given.metrics), tuple(seconds) if given.metrics else ())
