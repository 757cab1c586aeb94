"""The datasheet of a collection: what was measured, its noise, and what was not available."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from forerun.data.collectors.interference.cache_probe import effective_mib

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = """\
- `runs`: `repeat` of the pair, `order` in the session, `started_at` (UTC); `ambient_share` of all
  CPUs busy just before; `others_share` used by neither victim nor neighbour during the work;
  `units` of work, the same in every run of a victim; `cpu_s`, `wall_s`, `run_delay_s`, switches and
  faults of the victim while it worked; `neighbour_cpu_s`, and `on_share`, the share of the work in
  which a neighbour was not stopped; `reference_*_s`, the median of the five nearest isolated runs
  of the victim in the session; `p_cpu`, `p_wall`: reference over actual, which may exceed 1.
- `samples`: readings on a fixed clock. `phase` is `inside` where the whole interval lies in the
  work; `second` since the work began; `gap` where readings are missing. Counters are growth a
  second (`_per_s`; `_share` where they count seconds), gauges the value at the interval's end,
  `task.*` the victim's own, `probe.*` medians of the probe's ticks.
- `probe`: each tick of the cache probe.

The raw counters of each reading stay in the collection's folder (`journal/cumulative.parquet`).

Outcomes, never features: every column of `runs` but those of the plan. The number of `inside` rows
of a run, and rates of counts that are fixed for a run, give away its duration: cut runs to equal
length.
"""


def document(sessions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Content of `sources.json`, by session: machine, plan, sources, cache curves."""
    return {"sessions": [dict(row) for row in sessions]}


def noise(runs: "pd.DataFrame") -> "pd.DataFrame":
    """Coefficient of variation of each victim's isolated runs.

    Args:
        runs: the table.

    Returns:
        Rows `victim`, `isolated` (runs), `cpu_s`, `wall_s` (medians), `cv_cpu`, `cv_wall` of the
        times, `cv_p_cpu`, `cv_p_wall` of P, which is what is left after the nearest-runs reference.
    """
    import pandas as pd

    alone = runs[(runs["neighbour"] == "none") & (runs["status"] == "ok")]
    rows = []
    for name, of_victim in alone.groupby("victim", sort=False):
        row: dict[str, Any] = {"victim": name, "isolated": len(of_victim)}
        row |= {kind: float(of_victim[kind].median()) for kind in ("cpu_s", "wall_s")}
        for kind in ("cpu", "wall"):
            row[f"cv_{kind}"] = _variation(of_victim[f"{kind}_s"])
            row[f"cv_p_{kind}"] = _variation(of_victim[f"p_{kind}"])
        rows.append(row)
    return pd.DataFrame(rows).sort_values("victim", ignore_index=True) if rows else pd.DataFrame()


def datasheet(tables: Mapping[str, "pd.DataFrame"], sessions: Sequence[Mapping[str, Any]]) -> str:
    """Text of the collection's README.md."""
    runs = tables["runs"]
    fine = runs[runs["status"] == "ok"]
    parts = [
        "# contention: fixed work co-located with neighbours, measured from inside a guest",
        f"{len(runs):,} runs ({len(runs) - len(fine):,} failed) of {runs['victim'].nunique()} "
        f"victims, {len(sessions)} sessions, made by `forerun collect contention`.",
        "## Machine\n" + _machine(sessions),
        "## What measuring costs\n" + _costs(tables, sessions),
        "## Tables\n"
        + "".join(f"{name}: {len(rows):,} rows. " for name, rows in tables.items())
        + "\n\n"
        + COLUMNS,
        "## Noise floor\nIsolated runs: coefficient of variation of their times and of P.\n\n"
        + _table(noise(runs)),
        "## Ambient load\n" + _ambient(runs),
        "## Effect of neighbours\nMedian P.\n\n" + _effects(fine),
        "## Not available\n" + _missing(sessions),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _variation(values: "pd.Series[float]") -> float:
    known = values.dropna()
    return float(known.std() / known.mean()) if len(known) > 1 else float("nan")


def _machine(sessions: Sequence[Mapping[str, Any]]) -> str:
    if not sessions:
        return "not reported"
    last = sessions[-1]
    lines = [f"- {key}: {value}" for key, value in last["machine"].items()]
    lines.append(f"- neighbours by: {last['stress_ng'] or 'loads of neighbours.c, no stress-ng'}")
    for state, curve in last["llc"].items():
        size = effective_mib(curve)
        load = "alone" if state == "none" else f"co-located with {state}"
        lines.append(f"- effective last-level cache {load}: {size or 'not measured'} MiB")
    return "\n".join(lines)


def _costs(tables: Mapping[str, "pd.DataFrame"], sessions: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for name, column, what in (
        ("samples", "cost_ms", "a reading of all sources"),
        ("probe", "cpu_ms", "a tick of the probe"),
    ):
        known = tables[name][column].dropna()
        if len(known):
            lines.append(f"- {what}: {known.median():.2f} ms of one CPU")
    slower = [row["probe_slowdown"] for row in sessions if row.get("probe_slowdown")]
    if slower:
        times = ", ".join(f"{ratio:.3f}" for ratio in slower)
        lines.append(
            f"- chase4 takes {times} times as long co-located with the probe, as all runs are"
        )
    return "\n".join(lines) or "not reported"


def _ambient(runs: "pd.DataFrame") -> str:
    lines = []
    for column, what in (
        ("ambient_share", "busy before a run"),
        ("others_share", "used by others during the work"),
    ):
        known = runs[column].dropna()
        if len(known):
            low, middle, high = np.percentile(known, (10, 50, 90))
            lines.append(f"- share of all CPUs {what}: {middle:.3f} ({low:.3f} to {high:.3f})")
    return "\n".join(lines)


def _effects(fine: "pd.DataFrame") -> str:
    keys = ["neighbour", "intensity", "placement", "mode"]
    columns = ["p_cpu", "p_wall"]
    colocated = fine[fine["neighbour"] != "none"]
    if not len(colocated):
        return "no run with a neighbour"
    table = colocated.groupby(keys)[columns].median().reset_index()
    table["runs"] = colocated.groupby(keys).size().to_numpy()
    return _table(table)


def _missing(sessions: Sequence[Mapping[str, Any]]) -> str:
    lines = {
        f"- {name}: {source.get('reason', 'not reported')}"
        for session in sessions
        for name, source in session["sources"].items()
        if not source["available"]
    }
    return "\n".join(sorted(lines)) or "nothing"


def _table(frame: "pd.DataFrame") -> str:
    if not len(frame):
        return "none"

    def cell(value: Any) -> str:
        return f"{value:.3f}" if isinstance(value, float) else str(value)

    head = "| " + " | ".join(map(str, frame.columns)) + " |"
    rule = "|" + "---|" * len(frame.columns)
    rows = ["| " + " | ".join(map(cell, row)) + " |" for row in frame.itertuples(index=False)]
    return "\n".join([head, rule, *rows])
