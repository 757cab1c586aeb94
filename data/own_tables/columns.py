"""What each column of a user's table holds, by its name: a key, a metric and its unit, a setting.

Names are compared in lower case with `_` for every other character, so that `Latency (ms)` is
`latency_ms`.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from forerun.data.errors import BadTable, InputError
from forerun.data.measurement import METRIC_COLUMNS, QUERY_COLUMNS
from forerun.data.metrics import DESIGN_METRICS, SERVING_METRICS

SETTING: Final = "setting"
IGNORED: Final = "ignored"
METRIC_NAMES: Final = (
    *METRIC_COLUMNS,
    *(metric.name for metric in (*DESIGN_METRICS, *SERVING_METRICS)),
)
"""Metrics that a table may hold, in the order in which they are listed."""
KEYS: Final = (*QUERY_COLUMNS, "threads", "model", "family", "status", "repeats", "spread")
"""Columns other than metrics that have a meaning of their own."""

_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    "device": ("gpu", "device_name", "gpu_name", "accelerator", "hardware"),
    "workload": ("graph", "graph_file", "model_file", "model_path", "onnx", "onnx_file", "digest"),
    "model": ("model_name", "network", "network_name", "architecture"),
    "batch_size": ("batch", "bs", "batchsize"),
    "precision": ("dtype", "data_type"),
    "framework_version": ("torch_version",),
}
_TIME: Final = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}
_MEMORY: Final = {
    **{"mib": 1.0, "gib": 1024.0, "kib": 1 / 1024, "bytes": 2.0**-20, "b": 2.0**-20},
    **{"mb": 1e6 / 2**20, "gb": 1e9 / 2**20, "kb": 1e3 / 2**20},
}
_POWER: Final = {"w": 1.0, "watts": 1.0, "mw": 1e-3, "kw": 1e3}
_ENERGY: Final = {"j": 1.0, "mj": 1e-3, "kj": 1e3, "wh": 3600.0, "kwh": 3.6e6}
_QUANTITIES: Final[Mapping[str, tuple[tuple[str, ...], Mapping[str, float]]]] = {
    "latency_ms": (
        ("latency", "time", "duration", "elapsed", "wall_time", "execution_time", "inference_time"),
        _TIME,
    ),
    "peak_memory_mib": (("peak_memory", "memory", "max_memory", "gpu_memory", "vram"), _MEMORY),
    "allocated_memory_mib": (("allocated_memory", "memory_allocated"), _MEMORY),
    "reserved_memory_mib": (("reserved_memory", "memory_reserved"), _MEMORY),
    "power_w": (("power", "average_power", "avg_power", "mean_power", "gpu_power"), _POWER),
    "energy_j": (("energy", "total_energy"), _ENERGY),
    "utilisation": (("utilization", "gpu_utilization"), {"percent": 0.01, "pct": 0.01}),
    "samples_per_s": (("throughput", "images_per", "samples_per", "img_per"), {"s": 1.0, "sec": 1}),
}
"""Metric -> names of its quantity, and suffix of a unit -> factor to the metric's own unit."""
_WITHOUT_UNIT: Final = {
    "latency": "latency_ms",
    "power": "power_w",
    "energy": "energy_j",
    "utilization": "utilisation",
}
"""Names without a unit that are read all the same, in the unit of the metric."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What a column holds.

    Attributes:
        role: one of `KEYS` or `METRIC_NAMES`, `setting` or `ignored`.
        factor: by which its numbers are multiplied to be in the metric's unit; 1 for other roles.
    """

    role: str
    factor: float = 1.0


def meaning_of(name: str) -> Meaning | None:
    """What a column of that name holds; None where the name does not say."""
    plain = re.sub(r"[^a-z0-9]+", "_", name.strip().lower()).strip("_")
    if plain in KEYS or plain in METRIC_NAMES:
        return Meaning(plain)
    for role, synonyms in _SYNONYMS.items():
        if plain in synonyms:
            return Meaning(role)
    if plain in _WITHOUT_UNIT:
        return Meaning(_WITHOUT_UNIT[plain])
    for metric, (stems, units) in _QUANTITIES.items():
        stem, _, unit = plain.rpartition("_")
        if stem in stems and unit in units:
            return Meaning(metric, units[unit])
    return None


def given_meaning(text: str) -> Meaning:
    """The meaning that a user states, by any name that `meaning_of` knows, `setting` or `ignored`.

    Raises:
        InputError: there is no such meaning; the message lists those that there are.
    """
    if text in (SETTING, IGNORED):
        return Meaning(text)
    meaning = meaning_of(text)
    if meaning is None:
        close = difflib.get_close_matches(text.lower(), [*KEYS, *METRIC_NAMES], 3, 0.5)
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        raise InputError(
            f"A column cannot mean {text!r}. {hint}It can be {SETTING}, {IGNORED}, a metric "
            f"({', '.join(METRIC_NAMES)}) or one of {', '.join(KEYS)}; a unit follows its name, "
            "as in latency_us or memory_gib."
        )
    return meaning


def mapped(
    names: Sequence[str], given: Mapping[str, str], rest: str | None = None
) -> dict[str, Meaning | None]:
    """Column -> its meaning; None where neither its name nor the user says.

    Args:
        names: columns of the table.
        given: column -> its meaning as the user states it, which counts before its name.
        rest: `setting` or `ignored` for all columns whose names do not say; None for neither.

    Raises:
        InputError: a meaning is none, or is of a column that the table does not have.
        BadTable: two columns have the same role.
    """
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, 1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise InputError(f"--map {name}=...: no such column.{hint} It has {', '.join(names)}.")
    found: dict[str, Meaning | None] = {}
    for name in names:
        meaning = given_meaning(given[name]) if name in given else meaning_of(name)
        found[name] = meaning or (Meaning(rest) if rest else None)
    check_roles(found)
    return found


def check_roles(columns: Mapping[str, Meaning | None]) -> None:
    """Refuse two columns with the same role.

    Raises:
        BadTable: names both columns and how to choose one.
    """
    holders: dict[str, str] = {}
    for name, meaning in columns.items():
        if meaning is None or meaning.role in (SETTING, IGNORED):
            continue
        other = holders.setdefault(meaning.role, name)
        if other != name:
            raise BadTable(
                f"Columns {other!r} and {name!r} are both read as {meaning.role}: "
                f"--map '{name}={IGNORED}' leaves one out, --map '{name}={SETTING}' makes it a "
                "feature."
            )
