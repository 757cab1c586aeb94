"""How good are the cloud instances that processor predictions choose? Printed as Markdown tables.

`python -m forerun.training.reports.cloud_instances` draws 60 settings from `llm_cloud_runs`. A
setting is a model, a workload, and 12 instance types on which it was measured. In half of the
settings, the goal is the cheapest type whose time between tokens (one request at a time) is within
a limit drawn from the measured times; in the others, it is the type with the lowest cost per
request of a saturated vLLM server. Times on a type are predicted without any run on its
microarchitecture, then without any run on its instance family. A choice is good if its measured
time keeps the limit and its cost is at most 10 % above the best. The same is repeated with all
measured types to choose from.

Prices were not measured but assumed: `USD_PER_VCPU`. Alternative choices: the type with the most
virtual processors for its price; the type chosen by the times of the nearest type that is not held
out (by logarithms of cores, bandwidth and clock); a random type; and the type chosen by measured
times with the noise of repeats, which shows what is achievable.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from forerun.data.bundle import find
from forerun.data.cloud_instances import virtual_processors
from forerun.data.columns import Column, Columns, Mask, Matrix, Names, rows_by
from forerun.data.device import Device, DeviceCatalog
from forerun.data.measurements import Measurements
from forerun.models.conformal import out_of_fold
from forerun.models.llm_serving.processor_latency import ProcessorLlmLatency
from forerun.training.protocols.language_models.llm_cloud_runs import tables_of

USD_PER_VCPU: Final = {"zen": 0.045, "neoverse": 0.04, "cortex": 0.04, "": 0.05}
"""Prefix of a microarchitecture -> price of one virtual processor in USD per hour."""
SETTINGS: Final = 60
TYPES: Final = 12
FEWEST: Final = 30
"""Fewest measured types of a model and workload that settings are drawn from."""
TOKENS: Final = 128
"""Output length of the `llama-bench` runs that are used."""
QUANTILES: Final = (0.2, 0.9)
"""Quantiles of the measured times between which the limit is drawn."""
CLOSE: Final = 1.1
REPEATS: Final = 0.05
"""Standard deviation of log times between near copies of a type, derived from their median
deviation of 3.4 % (README of the dataset)."""
LEFT_OUT: Final[Mapping[str, int | None]] = {"microarchitecture": None, "instance family": 5}
"""What is held out -> number of folds; None for one fold per value."""
KINDS: Final = {"one_request": "limit", "generation": "limit", "saturation": "rate"}
"""Load or test -> the goal."""
SEED: Final = 40


@dataclass(frozen=True, slots=True)
class Types(Columns):
    """Measured types of a model and workload.

    Attributes:
        usd_per_hour, vcpus: price and number of virtual processors, (n,).
        measured: seconds between tokens, or server seconds per request, (n,).
        predicted, upper, nearest: the same quantity by best estimates, upper ends of intervals and
            the nearest type, with each of `LEFT_OUT` held out, (n, 2). The widths of the intervals
            come from a fit to all rows, whose calibration holds out core families and models.
    """

    usd_per_hour: Column
    vcpus: Column
    measured: Column
    predicted: Matrix
    upper: Matrix
    nearest: Matrix


@dataclass(frozen=True)
class Setting:
    """Types to choose from, for the lowest price within a limit or the lowest cost per request.

    Attributes:
        name: description.
        types: the types.
        limit_s: largest allowed seconds between tokens; infinite if cost per request is the goal.
    """

    name: str
    types: Types
    limit_s: float = np.inf

    def costs(self, seconds: Column) -> Column:
        """The objective for the given times, (n,); infinite where the limit is missed."""
        if self.limit_s == np.inf:
            return self.types.usd_per_hour * seconds
        return np.where(seconds <= self.limit_s, self.types.usd_per_hour, np.inf)

    def over_best(self) -> Column:
        """Measured objective of each type over the best, (n,); infinite if the limit is missed."""
        costs = self.costs(self.types.measured)
        return np.asarray(costs / costs.min())

    def chosen(self, seconds: Column) -> int:
        """The best type for the given times; the fastest if none keeps the limit."""
        return int(np.lexsort((seconds, self.costs(seconds)))[0])

    def choices(self, left_out: int, generator: np.random.Generator) -> dict[str, Column]:
        """Choice -> objective over the best, of each type that it may take.

        Args:
            left_out: position in `LEFT_OUT`.
            generator: source of the noise of repeats.
        """
        types, all_over_best = self.types, self.over_best()
        noise = np.exp(REPEATS * generator.standard_normal(len(all_over_best)))
        times = {
            "forerun, best estimates": types.predicted[:, left_out],
            "forerun, upper ends": types.upper[:, left_out],
            "nearest type": types.nearest[:, left_out],
            "measured again": types.measured * noise,
        }
        rows = {name: self.chosen(seconds) for name, seconds in times.items()}
        rows["most vCPUs for the price"] = int(
            np.lexsort((types.vcpus, types.vcpus / types.usd_per_hour))[-1]
        )
        return {name: all_over_best[[row]] for name, row in rows.items()} | {
            "at random": all_over_best
        }


def main() -> None:
    """Print how good each choice is, and the settings."""
    types_by_name = measured_types()
    lists = {
        f"{TYPES} types": settings(types_by_name),
        "all types": settings(types_by_name, whole=True),
    }
    for which, drawn in lists.items():
        for place, left_out in enumerate(LEFT_OUT):
            print(f"\n{left_out} left out, {which}\n")
            print("| choice | within 10 % | with a limit | kept | median cost | of a rate |")
            print("|---|---:|---:|---:|---:|---:|")
            for choice, cells in _table(drawn, place).items():
                print(f"| {choice} | {' | '.join(cells)} |")
    print("\n| setting | limit, ms | cost over the best |\n|---|---:|---:|")
    for setting in lists[f"{TYPES} types"]:
        limit = "" if setting.limit_s == np.inf else f"{1e3 * setting.limit_s:.3g}"
        ratio = setting.over_best()[setting.chosen(setting.types.predicted[:, 0])]
        print(f"| {setting.name} | {limit} | {ratio:.2f} |")


def _table(drawn: Sequence[Setting], left_out: int) -> dict[str, list[str]]:
    """Choice -> share of settings in which it is good, overall and with a limit; share in which it
    keeps the limit and its median cost there; share in which it is good without a limit.
    """
    generator = np.random.default_rng(SEED)
    found = [setting.choices(left_out, generator) for setting in drawn]
    limited = np.array([setting.limit_s < np.inf for setting in drawn])
    cells = {}
    for choice in found[0]:
        ratios = [own[choice] for own in found]
        good, kept = (np.array([np.mean(own <= most) for own in ratios]) for most in (CLOSE, 1e9))
        shares = (good, good[limited], kept[limited], good[~limited])
        whole, of_limit, keeps, of_rate = (f"{100 * own.mean():.0f} %" for own in shares)
        costs = np.concatenate([own for own, is_own in zip(ratios, limited, strict=True) if is_own])
        median = f"{np.median(costs[np.isfinite(costs)]):.2f}"
        cells[choice] = [whole, of_limit, keeps, median, of_rate]
    return cells


def settings(types_by_name: Mapping[str, Types], *, whole: bool = False) -> list[Setting]:
    """Random settings, alternating between both goals.

    Args:
        types_by_name: name of a model, workload and goal -> types.
        whole: whether all measured types are available instead of `TYPES` of them.
    """
    generator = np.random.default_rng(SEED)
    found = []
    for number in range(SETTINGS):
        kind = ("limit", "rate")[number % 2]
        names = [name for name in sorted(types_by_name) if name.endswith(kind)]
        types = types_by_name[name := names[int(generator.integers(len(names)))]]
        few = types.take(generator.permutation(len(types.measured))[:TYPES])
        limit = float(np.quantile(few.measured, generator.uniform(*QUANTILES)))
        offered = types if whole else few
        found.append(Setting(name, offered, limit) if kind == "limit" else Setting(name, offered))
    return found


def measured_types() -> dict[str, Types]:
    """Model, engine, workload and goal -> the types on which they were measured."""
    bundle = find("llm_cloud_runs", None)
    found: dict[str, Types] = {}
    for table, (rows, kept) in tables_of(bundle, DeviceCatalog.load()).items():
        usable = np.isfinite(rows.column("tpot_ms"))
        usable &= np.array([query.device.kind == "cpu" for query in rows.queries])
        rates = bundle.table(table).iloc[kept[usable]].get("requests_per_s")
        rows = rows.take(usable)
        seconds = rows.column("tpot_ms") / 1e3
        if rates is not None:
            seconds = np.where(_is_saturated(rows), 1.0 / rates.to_numpy(), seconds)
        names = _names(rows)
        types = _types(rows, seconds, names)
        for name, places in rows_by(names.tolist()).items():
            if name and len(places) >= FEWEST:
                found[name] = types.take(places)
    return found


def _is_saturated(rows: Measurements) -> Mask:
    return np.asarray(rows.group("load") == "saturation")


def _names(rows: Measurements) -> Names:
    """Model, engine, workload and goal of n runs, (n,); "" for runs that are not used."""
    names, columns = [], (rows.queries, rows.group("model"), rows.group("load"))
    for query, model, load in zip(*columns, strict=True):
        deployment, kind = query.deployment, KINDS.get(str(load), "")
        kind = kind if load != "generation" or deployment.load.output_tokens == TOKENS else ""
        lengths = f"{deployment.load.input_tokens:.0f} in, {deployment.load.output_tokens:.0f} out"
        name = f"{str(model).rpartition('/')[2]}, {deployment.engine.name}, {lengths}, {kind}"
        names.append(name if kind else "")
    return np.array(names)


def _types(rows: Measurements, measured: Column, names: Names) -> Types:
    """The types of n runs with the given seconds, (n,), and their predictions."""
    devices = [query.device for query in rows.queries]
    families = np.array([re.sub(r"\d+", "", device.title) for device in devices])
    saturated = _is_saturated(rows)

    def seconds(predictor: ProcessorLlmLatency, held: Mask) -> tuple[Column, Column]:
        """Seconds by best estimates, and by upper ends of intervals."""
        found = predictor.predict([rows.queries[row] for row in np.flatnonzero(held).tolist()])
        high, low = found.high or found.values, found.low or found.values
        value, upper = (
            np.where(saturated[held], 1.0 / rates["requests_per_s"], times["tpot_ms"] / 1e3)
            for times, rates in ((found.values, found.values), (high, low))
        )
        return value, upper

    plain = ProcessorLlmLatency(calibrated=False)
    value, upper = seconds(ProcessorLlmLatency().fit(rows), np.ones(len(rows), dtype=np.bool_))
    each = [
        (
            out_of_fold(groups, lambda held: seconds(plain.fit(rows.take(~held)), held)[0],
                        folds=folds)[0],
            _nearest(devices, measured, names, groups),
        )
        for groups, folds in zip((rows.group("processor"), families), LEFT_OUT.values(),
                                 strict=True)
    ]  # fmt: skip
    predicted, near = map(np.column_stack, zip(*each, strict=True))
    vcpus = np.array([virtual_processors(device) or np.nan for device in devices])
    usd = vcpus * np.array([_usd_per_vcpu(device) for device in devices])
    return Types(usd, vcpus, measured, predicted, predicted * (upper / value)[:, None], near)


def _nearest(devices: Sequence[Device], measured: Column, names: Names, groups: Names) -> Column:
    """Measured seconds of the nearest type in another group, (n,)."""
    facts = [(d.compute_units, d.memory_bandwidth_gbs, d.boost_clock_mhz) for d in devices]
    logs, found = np.log(np.array(facts, dtype=np.float64)), np.full(len(devices), np.nan)
    for name, places in rows_by(names.tolist()).items():
        if name:
            far = np.abs(logs[places][:, None] - logs[places][None]).sum(axis=2)
            far[groups[places][:, None] == groups[places][None]] = np.inf
            found[places] = measured[places][far.argmin(axis=1)]
    return found


def _usd_per_vcpu(device: Device) -> float:
    architecture = device.architecture or ""
    return next(usd for start, usd in USD_PER_VCPU.items() if architecture.startswith(start))


if __name__ == "__main__":
    main()
