"""Flag and count doubtful rows: duplicates, impossible values, throttled groups.

Nothing is dropped here. `row_weights` turns findings into lower weights for doubtful rows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from forerun.data.facts import facts_of
from forerun.data.lazy import pd

Column = NDArray[np.float64]
Group = tuple[str, str, str]

NOISY_SPREAD = 0.1
"""Interquartile range of repeats over their median at which a row gets half the weight."""

FLAGS: Final[Mapping[str, float]] = facts_of(__file__)["flags"]
"""Flag -> weight of a row that carries it.

`duplicate`: an earlier row has the same query and result; `unmeasured`: it has no time;
`impossible`: a time, power or energy that is not positive, or faster than the hardware;
`over_power`: above 1.3 times the design power; `energy_gap`: energy and power x time differ by more
than 20 %; `shifted`: its group runs far slower than comparable groups, as under a power or thermal
limit; `folded`: almost nothing was executed; `rounded`: its time is a small number of whole steps,
so it has noise of known size; `conflict`: rows of the same query, or two figures of one row, differ
by more than a factor of 2.
"""

FASTER = 1.1
OVER_POWER = 1.3
ENERGY_GAP = 0.2
GROUP_ROWS = 30
GROUP_DEVICES = 4
SHIFT_Z = -3.5
SHIFT_RATIO = 0.6
SCALE_FLOOR = 0.15
"""Lower bound for the spread of log utilisation between groups, so that very similar peers do not
cause flags."""


@dataclass(frozen=True)
class Quantities:
    """Inputs of the checks, n values each; None where a table lacks a column, NaN where a row does.

    Attributes:
        time_ms: measured time.
        bound_ms: lower bound of the time on the hardware.
        power_w, tdp_w: measured power and design power.
        energy_j: measured energy.
        utilisation: bound over time, for rows where launch overhead does not dominate.
    """

    time_ms: Column | None = None
    bound_ms: Column | None = None
    power_w: Column | None = None
    tdp_w: Column | None = None
    energy_j: Column | None = None
    utilisation: Column | None = None


Finding = tuple[int, str, str]


def _flagged(where: NDArray[np.bool_], flag: str, why: str | Sequence[str]) -> list[Finding]:
    """A flag on each of the given rows, with one reason for all or one for each."""
    rows = np.flatnonzero(where).tolist()
    reasons = [why] * len(rows) if isinstance(why, str) else why
    return [(row, flag, reason) for row, reason in zip(rows, reasons, strict=True)]


def _table(found: Sequence[Finding]) -> "pd.DataFrame":
    frame = pd.DataFrame(found, columns=["row", "flag", "why"])
    frame = frame.astype({"row": "int64", "flag": "str", "why": "str"})
    return frame.sort_values("row", kind="stable", ignore_index=True)


def check(
    frame: "pd.DataFrame",
    quantities: Quantities,
    *,
    same: Sequence[str] = (),
    groups: tuple[str, str, str] | None = None,
) -> "pd.DataFrame":
    """Findings about a table's rows.

    Args:
        frame: n rows.
        quantities: measured values and their bounds.
        same: columns that make two rows duplicates if all are equal.
        groups: columns of device, operator class and part (such as a campaign or split) whose
            utilisation is compared; needs `quantities.utilisation`.

    Returns:
        One row per finding: `row` (position in the table), `flag` (a key of `FLAGS`), `why`.
    """
    found: list[Finding] = []
    if same:
        repeated = frame.duplicated(list(same)).to_numpy()
        found += _flagged(repeated, "duplicate", "an earlier row is the same")
    if quantities.time_ms is not None:
        found += _flagged(np.isnan(quantities.time_ms), "unmeasured", "it has no time")
    for name in ("time_ms", "power_w", "energy_j"):
        values = getattr(quantities, name)
        if values is not None:
            found += _flagged(values <= 0, "impossible", f"{name} is not positive")
    found += _bounded(quantities)
    if groups is not None and quantities.utilisation is not None:
        found += _shifted(frame, groups, quantities.utilisation)
    return _table(found)


def with_findings(
    findings: "pd.DataFrame", where: NDArray[np.bool_], flag: str, why: str | Sequence[str]
) -> "pd.DataFrame":
    """Findings of `check` with another flag on some rows, with one reason or one for each row."""
    both = pd.concat([findings, _table(_flagged(where, flag, why))], ignore_index=True)
    return both.sort_values("row", kind="stable", ignore_index=True)


def counts(findings: "pd.DataFrame") -> dict[str, int]:
    """Flag -> number of rows that carry it."""
    counted = findings.drop_duplicates(["row", "flag"])["flag"].value_counts()
    return {flag: int(counted.get(flag, 0)) for flag in FLAGS}


def row_weights(findings: "pd.DataFrame", rows: int) -> Column:
    """Weight of each of a table's rows: 1, or the product of its flags' weights.

    Args:
        findings: findings, as `check` returns them.
        rows: number of rows of the table.
    """
    weights = np.ones(rows)
    for flag, weight in FLAGS.items():
        flagged = findings.loc[findings["flag"] == flag, "row"].unique()
        weights[np.asarray(flagged, dtype=np.int64)] *= weight
    return weights


def _bounded(q: Quantities) -> list[Finding]:
    """Violated bounds; comparisons with NaN are False, so missing values are not flagged."""
    found: list[Finding] = []
    if q.time_ms is not None and q.bound_ms is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = q.bound_ms / q.time_ms
        fast = (q.time_ms > 0) & (ratio > FASTER)
        why = [f"{r:.2f} times as fast as the hardware can be" for r in ratio[fast]]
        found += _flagged(fast, "impossible", why)
    if q.power_w is not None and q.tdp_w is not None:
        over = q.power_w > OVER_POWER * q.tdp_w
        why = [
            f"{p:.0f} W where {t:.0f} W is the design power"
            for p, t in zip(q.power_w[over], q.tdp_w[over], strict=True)
        ]
        found += _flagged(over, "over_power", why)
    if q.power_w is not None and q.energy_j is not None and q.time_ms is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            gap = np.abs(q.power_w * q.time_ms / 1e3 - q.energy_j) / q.energy_j
        apart = (q.energy_j > 0) & (gap > ENERGY_GAP)
        why = [f"energy is {g:.0%} away from power x time" for g in gap[apart]]
        found += _flagged(apart, "energy_gap", why)
    return found


def _shifted(
    frame: "pd.DataFrame", groups: tuple[str, str, str], utilisation: Column
) -> list[Finding]:
    found: list[Finding] = []
    device, op_class, part = groups
    keys = frame[list(groups)].astype(str)
    for (d, c, p), ratio in shifted_groups(keys, utilisation).items():
        group = (keys[device] == d) & (keys[op_class] == c) & (keys[part] == p)
        why = f"{d} {c} ({p}) runs at {ratio:.2f} of what its peers suggest"
        found += _flagged(group.to_numpy(), "shifted", why)
    return found


def shifted_groups(keys: "pd.DataFrame", utilisation: Column) -> dict[Group, float]:
    """Groups whose utilisation is far below that of comparable groups.

    Medians of log utilisation are compared in two ways: with the same device and class in another
    part, corrected by that difference on other devices; and with the same class and part on other
    devices, corrected by this device's difference elsewhere. Either comparison flags a group whose
    robust z-score (Iglewicz and Hoaglin 1993) is below -3.5 and whose ratio is below 0.6.

    Args:
        keys: n rows of three columns: device, operator class, part.
        utilisation: n shares; NaN and non-positive ones are ignored.

    Returns:
        (device, class, part) -> ratio to the value expected from the peers.
    """
    kept = np.isfinite(utilisation) & (utilisation > 0)
    table = keys[kept].set_axis(["device", "class", "part"], axis=1)
    table["level"] = np.log(utilisation[kept])
    grouped = table.groupby(["device", "class", "part"])["level"].agg(["median", "size"])
    level = grouped.loc[grouped["size"] >= GROUP_ROWS, "median"]
    wide = level.unstack("device")
    accused = _against_other_classes(wide)
    for key, gap in _against_other_parts(wide).items():
        accused[key] = min(gap, accused.get(key, gap))
    return {key: float(np.exp(gap)) for key, gap in accused.items()}


def _against_other_parts(wide: "pd.DataFrame") -> dict[Group, float]:
    """Groups far below the same device's other parts, corrected by that step on other devices."""
    found: dict[Group, float] = {}
    for c, p in wide.index:
        others = [key for key in wide.index if key[0] == c and key[1] != p]
        steps = (wide.loc[(c, p)] - wide.loc[others].median()).dropna()
        if len(steps) < GROUP_DEVICES:
            continue
        for device in steps.index:
            peers = steps.drop(device)
            gap = float(steps[device] - peers.median())
            if _is_far_below(gap, peers.to_numpy(dtype=np.float64)):
                found[str(device), str(c), str(p)] = gap
    return found


def _against_other_classes(wide: "pd.DataFrame") -> dict[Group, float]:
    """Groups far below other devices, corrected by their device's other groups."""
    found: dict[Group, float] = {}
    known = wide[wide.notna().sum(axis=1) >= GROUP_DEVICES]
    residual = known.sub(known.median(axis=1), axis=0)
    rest = {key: residual.drop(index=[key]).median() for key in residual.index}
    gaps = {key: residual.loc[key] - rest[key] for key in residual.index}
    spread = np.concatenate([g.to_numpy(dtype=np.float64) for g in gaps.values()] or [[]])
    for (c, p), row in gaps.items():
        for device, gap in row.items():
            if _is_far_below(float(gap), spread[np.isfinite(spread)]):
                found[str(device), str(c), str(p)] = float(gap)
    return found


def _is_far_below(gap: float, peers: Column) -> bool:
    """Robust z-score by the median absolute deviation of the peers; False for NaN."""
    scale = max(1.4826 * float(np.median(np.abs(peers - np.median(peers)))), SCALE_FLOOR)
    return gap / scale < SHIFT_Z and bool(np.exp(gap) < SHIFT_RATIO)


def noise_weights(spread: Column) -> Column:
    """Weights of n rows by the spread of their repeats; 1 if the spread is unknown.

    Args:
        spread: (n,) interquartile range of repeats over their median.
    """
    weights: Column = 1.0 / (1.0 + (np.nan_to_num(spread) / NOISY_SPREAD) ** 2)
    return weights
