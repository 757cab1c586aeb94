"""How good the cloud instances are that answers about processors choose: Markdown tables.

`python -m forerun.training.reports.cloud_instances` draws 60 settings of `llm_cloud_runs`: a model,
a workload, and 12 instance types on which it was measured, as a plan takes a list. In half of them
the cheapest type is sought whose time between tokens, of one request at a time, is within a limit
that is drawn from the measured times; in the others the one on which a request of a saturated vLLM
server costs least. Times of a type are predicted without all runs of its microarchitecture, then
of its instance family. A choice is good where it keeps the limit by measurement and costs at most
10 % more than the best. Then the same is asked over all types that were measured.

Prices are an assumption, as none were measured: `USD_PER_VCPU`. Other choices are the one with most
virtual processors for its price, the one by times of the nearest type that is not left out (by
logarithms of cores, bandwidth and clock), one at random, and the one by measured times with the
noise of repeats, which shows what can be reached.
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
"""Begin of a microarchitecture -> price of one virtual processor for an hour."""
SETTINGS: Final = 60
TYPES: Final = 12
FEWEST: Final = 30
"""Types of a model and workload from which on settings are drawn of it."""
TOKENS: Final = 128
"""Length of the answers of `llama-bench` that are taken."""
QUANTILES: Final = (0.2, 0.9)
"""Range of the limit among the measured times that it is drawn from."""
CLOSE: Final = 1.1
REPEATS: Final = 0.05
"""Standard deviation of log times between near copies of a type, by their median deviation of 3.4 %
(README of the dataset)."""
LEFT_OUT: Final[Mapping[str, int | None]] = {"microarchitecture": None, "instance family": 5}
"""What is left out -> number of folds; None for one each."""
KINDS: Final = {"one_request": "limit", "generation": "limit", "saturation": "rate"}
"""Load or test -> what is sought."""
SEED: Final = 40


@dataclass(frozen=True, slots=True)
class Types(Columns):
    """Measured types of a model and workload.

    Attributes:
        usd_per_hour, vcpus: price and virtual processors, (n,).
        measured: seconds between tokens, or seconds of the server for each request, (n,).
        predicted, upper, nearest: as measured, by best estimates, upper ends of intervals and the
            nearest type, without each of `LEFT_OUT`, (n, 2). Intervals are as wide as those of a
            fit to all rows, whose calibration leaves families of cores and models out.
    """

    usd_per_hour: Column
    vcpus: Column
    measured: Column
    predicted: Matrix
    upper: Matrix
    nearest: Matrix


@dataclass(frozen=True)
class Setting:
    """Types to choose from: the cheapest within a limit, or for each request.

    Attributes:
        name: in words.
        types: the types.
        limit_s: most seconds between tokens; infinite where a request is to cost least.
    """

    name: str
    types: Types
    limit_s: float = np.inf

    def costs(self, seconds: Column) -> Column:
        """What is least by some times, (n,); infinite where the limit is missed."""
        if self.limit_s == np.inf:
            return self.types.usd_per_hour * seconds
        return np.where(seconds <= self.limit_s, self.types.usd_per_hour, np.inf)

    def over_best(self) -> Column:
        """Measured cost of each type over the least, (n,); infinite where the limit is missed."""
        costs = self.costs(self.types.measured)
        return np.asarray(costs / costs.min())

    def chosen(self, seconds: Column) -> int:
        """The best type by some times; the fastest where none keeps the limit."""
        return int(np.lexsort((seconds, self.costs(seconds)))[0])

    def choices(self, left_out: int, generator: np.random.Generator) -> dict[str, Column]:
        """Choice -> cost over the least of what it may take.

        Args:
            left_out: position in `LEFT_OUT`.
            generator: of the noise of repeats.
        """
        own, every = self.types, self.over_best()
        noise = np.exp(REPEATS * generator.standard_normal(len(every)))
        times = {
            "forerun, best estimates": own.predicted[:, left_out],
            "forerun, upper ends": own.upper[:, left_out],
            "nearest type": own.nearest[:, left_out],
            "measured again": own.measured * noise,
        }
        rows = {name: self.chosen(seconds) for name, seconds in times.items()}
        rows["most vCPUs for the price"] = int(
            np.lexsort((own.vcpus, own.vcpus / own.usd_per_hour))[-1]
        )
        return {name: every[[row]] for name, row in rows.items()} | {"at random": every}


def main() -> None:
    """Print how good each choice is, and the settings."""
    every = measured_types()
    lists = {f"{TYPES} types": settings(every), "all types": settings(every, whole=True)}
    for which, drawn in lists.items():
        for place, left_out in enumerate(LEFT_OUT):
            print(f"\n{left_out} left out, {which}\n")
            print("| choice | within 10 % | with a limit | kept | median cost | of a rate |")
            print("|---|---:|---:|---:|---:|---:|")
            for choice, cells in _table(drawn, place).items():
                print(f"| {choice} | {' | '.join(cells)} |")
    print("\n| setting | limit, ms | cost over the best |\n|---|---:|---:|")
    for one in lists[f"{TYPES} types"]:
        limit = "" if one.limit_s == np.inf else f"{1e3 * one.limit_s:.3g}"
        ratio = one.over_best()[one.chosen(one.types.predicted[:, 0])]
        print(f"| {one.name} | {limit} | {ratio:.2f} |")


def _table(drawn: Sequence[Setting], left_out: int) -> dict[str, list[str]]:
    """Choice -> shares of settings in which it is good: all, those with a limit, in which it keeps
    that, its median cost there, and those without.
    """
    generator = np.random.default_rng(SEED)
    found = [one.choices(left_out, generator) for one in drawn]
    limited = np.array([one.limit_s < np.inf for one in drawn])
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


def settings(every: Mapping[str, Types], *, whole: bool = False) -> list[Setting]:
    """The settings that are drawn, with and without a limit in turn.

    Args:
        every: name of a model, workload and what is sought -> types.
        whole: whether all types that were measured are to choose from.
    """
    generator = np.random.default_rng(SEED)
    found = []
    for number in range(SETTINGS):
        kind = ("limit", "rate")[number % 2]
        names = [name for name in sorted(every) if name.endswith(kind)]
        types = every[name := names[int(generator.integers(len(names)))]]
        few = types.take(generator.permutation(len(types.measured))[:TYPES])
        limit = float(np.quantile(few.measured, generator.uniform(*QUANTILES)))
        own = types if whole else few
        found.append(Setting(name, own, limit) if kind == "limit" else Setting(name, own))
    return found


def measured_types() -> dict[str, Types]:
    """Model, engine, workload and what is sought -> the types of which it was measured."""
    bundle = find("llm_cloud_runs", None)
    found: dict[str, Types] = {}
    for table, (rows, kept) in tables_of(bundle, DeviceCatalog.load()).items():
        own = np.isfinite(rows.column("tpot_ms"))
        own &= np.array([query.device.kind == "cpu" for query in rows.queries])
        rates = bundle.table(table).iloc[kept[own]].get("requests_per_s")
        rows = rows.take(own)
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
    """Model, engine, workload and what is sought of n runs, (n,); empty where nothing is."""
    names, columns = [], (rows.queries, rows.group("model"), rows.group("load"))
    for query, model, load in zip(*columns, strict=True):
        own, kind = query.deployment, KINDS.get(str(load), "")
        kind = kind if load != "generation" or own.load.output_tokens == TOKENS else ""
        lengths = f"{own.load.input_tokens:.0f} in, {own.load.output_tokens:.0f} out"
        name = f"{str(model).rpartition('/')[2]}, {own.engine.name}, {lengths}, {kind}"
        names.append(name if kind else "")
    return np.array(names)


def _types(rows: Measurements, measured: Column, names: Names) -> Types:
    """The types of n runs with these seconds, (n,), and their predictions."""
    devices = [query.device for query in rows.queries]
    families = np.array([re.sub(r"\d+", "", device.title) for device in devices])
    saturated = _is_saturated(rows)

    def seconds(predictor: ProcessorLlmLatency, held: Mask) -> tuple[Column, Column]:
        """By best estimates, and by upper ends of intervals."""
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
    """Measured seconds of the nearest type that is in another group, (n,)."""
    facts = [(d.compute_units, d.memory_bandwidth_gbs, d.boost_clock_mhz) for d in devices]
    logs, found = np.log(np.array(facts, dtype=np.float64)), np.full(len(devices), np.nan)
    for name, places in rows_by(names.tolist()).items():
        if name:
            far = np.abs(logs[places][:, None] - logs[places][None]).sum(axis=2)
            far[groups[places][:, None] == groups[places][None]] = np.inf
            found[places] = measured[places][far.argmin(axis=1)]
    return found


def _usd_per_vcpu(device: Device) -> float:
    own = device.architecture or ""
    return next(usd for start, usd in USD_PER_VCPU.items() if own.startswith(start))


if __name__ == "__main__":
    main()
