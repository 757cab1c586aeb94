"""How good the layouts are that plans of serving recommend: a Markdown table.

`python -m forerun.training.reports.serving_plans` takes settings of `aiconfigurator_serving` of
which several layouts were measured: a model, a device, an engine with its release, a number format
and lengths. Of each setting, a limit of the time per token is drawn from the measured ones that two
layouts keep at least. The recommended layout is the one that is predicted to write most tokens a
second and device within the limit, over the numbers of requests in flight that were measured; the
predictor is fitted without all runs of the model on the device. What it reached within the limit by
measurement is compared with the best of all layouts. So are the choices of AIConfigurator, by its
stored answers, and of two rules: the most and the fewest tensor-parallel devices. How much of the
error layouts of a setting share is printed last.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd

from forerun.data.bundle import find
from forerun.data.columns import Column, rows_by
from forerun.data.datasets.language_models.aiconfigurator_serving import RUNS
from forerun.data.device import DeviceCatalog
from forerun.data.language_models.deployment import Pool
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.models.llm_serving import LlmLatency
from forerun.training.protocols.language_models.aiconfigurator_serving import serving_runs

STORED: Final = Path("docs") / "results" / "aiconfigurator.csv"
CLOSE: Final = 0.95
"""Share of the best rate from which on a layout is as good."""
QUANTILES: Final = (0.2, 0.9)
"""Range of the limit among the measured times that it is drawn from."""
SEED: Final = 40
TIMES: Final = ("tpot_ms", "ttft_ms")
CHOICES: Final = ("forerun", "AIConfigurator", "most tensor", "fewest devices")


@dataclass(frozen=True)
class Setting:
    """Several layouts of one model, device, engine, format and lengths.

    Attributes:
        name: in words.
        rows: positions of its runs.
        pools: layout of each of them.
        limit_ms: most time per token.
    """

    name: str
    rows: Sequence[int]
    pools: Sequence[Pool]
    limit_ms: float


def main() -> None:
    """Print a line for each setting, and the shares."""
    table = find("aiconfigurator_serving", None).table(RUNS)
    runs, kept = serving_runs(table, DeviceCatalog.load())
    names = table["id"].to_numpy(dtype=np.str_)[kept]
    stored = pd.read_csv(STORED).set_index("id").reindex(names)
    peer = {metric: stored[metric].to_numpy() for metric in TIMES}
    drawn = settings(runs)
    own = left_out(runs, sorted({row for one in drawn for row in one.rows}))
    shares = [shares_of(one, runs, own, peer) for one in drawn]
    print(f"| setting | limit, ms | layouts | {' | '.join(CHOICES)} |")
    print(f"|---|---:|---:|{'---:|' * len(CHOICES)}")
    for one, found in zip(drawn, shares, strict=True):
        cells = " | ".join("-" if np.isnan(share) else f"{100 * share:.0f} %" for share in found)
        print(f"| {one.name} | {one.limit_ms:.1f} | {len(set(one.pools))} | {cells} |")
    print("\nShare of the best measured rate that each choice reached.\n")
    for name, column in zip(CHOICES, np.array(shares).T, strict=True):
        known = column[~np.isnan(column)]
        print(
            f"- {name}: within 5 % of the best in {100 * np.mean(known >= CLOSE):.0f} % of "
            f"{len(known)} settings, {100 * np.mean(known):.0f} % of the best rate on average"
        )
    between, within = deviations(drawn, runs, own["tpot_ms"])
    print(
        "\nLog errors of the time per token: standard deviation "
        f"{between:.2f} between settings, {within:.2f} between layouts of a setting"
    )


def deviations(
    drawn: Sequence[Setting], runs: Measurements, predicted: Column
) -> tuple[float, float]:
    """Standard deviations of mean log errors: between settings, and of layouts around those."""
    errors = np.log(predicted / runs.column("tpot_ms"))
    means, around = [], []
    for one in drawn:
        own, pools = errors[one.rows], np.array([hash(pool) for pool in one.pools])
        means.append(own.mean())
        around += [own[pools == pool].mean() - own.mean() for pool in np.unique(pools)]
    return float(np.std(means)), float(np.std(around))


def settings(runs: Measurements) -> list[Setting]:
    """Settings of which two layouts keep the limit at least."""
    generator = np.random.default_rng(SEED)
    both = np.isfinite(runs.column("tpot_ms") + runs.column("ttft_ms"))
    able = np.flatnonzero(both & (runs.groups["mode"] == "agg")).tolist()
    keys = [_setting(runs.queries[row], str(runs.groups["model"][row])) for row in able]
    found = []
    for name, places in sorted(rows_by(keys).items()):
        rows = [able[place] for place in places]
        pools = [runs.queries[row].deployment.pool for row in rows]
        least: dict[Pool, float] = {}
        for pool, tpot in zip(pools, runs.column("tpot_ms")[rows], strict=True):
            least[pool] = min(tpot, least.get(pool, np.inf))
        if len(least) < 2:
            continue
        times = runs.column("tpot_ms")[rows]
        times = times[times >= sorted(least.values())[1]]
        limit = float(np.quantile(times, generator.uniform(*QUANTILES)))
        found.append(Setting(name, rows, pools, limit))
    return found


def left_out(runs: Measurements, rows: Sequence[int]) -> Mapping[str, Column]:
    """Times of runs by fits without all runs of their model on their device; NaN of others."""
    found = {metric: np.full(len(runs), np.nan) for metric in TIMES}
    models, devices = runs.group("model"), runs.group("device")
    for (model, device), places in rows_by([(models[row], devices[row]) for row in rows]).items():
        held, own = (models == model) & (devices == device), [rows[place] for place in places]
        fitted = LlmLatency(calibrated=False).fit(runs.take(~held))
        values = fitted.predict([runs.queries[row] for row in own]).values
        for metric in TIMES:
            found[metric][own] = values[metric]
    return found


def shares_of(
    setting: Setting, runs: Measurements, own: Mapping[str, Column], peer: Mapping[str, Column]
) -> list[float]:
    """Share of the best measured rate of each of `CHOICES`; NaN where it answers no layout."""
    measured = best_rates(setting, runs, {metric: runs.column(metric) for metric in TIMES})
    pools = sorted(set(setting.pools), key=lambda own: (own.parallelism.tensor, own.devices))
    fewest = min(pools, key=lambda pool: (pool.devices, pool.parallelism.tensor))
    chosen = [_choice(setting, runs, times) for times in (own, peer)]
    reached = [
        np.nan if pool is None else measured.get(pool, 0.0) for pool in (*chosen, pools[-1], fewest)
    ]
    return [rate / max(measured.values()) for rate in reached]


def best_rates(
    setting: Setting, runs: Measurements, times: Mapping[str, Column]
) -> dict[Pool, float]:
    """Most tokens a second and device of each layout that keeps the limit."""
    found: dict[Pool, float] = {}
    for row, pool in zip(setting.rows, setting.pools, strict=True):
        load = runs.queries[row].deployment.load
        tpot, ttft = (float(times[metric][row]) for metric in TIMES)
        if tpot <= setting.limit_ms:
            latency_s = (ttft + tpot * max(load.output_tokens - 1.0, 0.0)) / 1e3
            rate = (load.concurrency or 0.0) * load.output_tokens / latency_s / pool.devices
            found[pool] = max(rate, found.get(pool, 0.0))
    return found


def _choice(setting: Setting, runs: Measurements, times: Mapping[str, Column]) -> Pool | None:
    """The layout with most tokens within the limit by these times; the fastest where none keeps it.

    None where a layout has no time.
    """
    tpot = dict[Pool, float]()
    for row, pool in zip(setting.rows, setting.pools, strict=True):
        tpot[pool] = min(tpot.get(pool, np.inf), np.nan_to_num(times["tpot_ms"][row], nan=np.inf))
    if np.inf in tpot.values():
        return None
    rates = best_rates(setting, runs, times)
    return max(rates, key=lambda pool: rates[pool]) if rates else min(tpot, key=lambda p: tpot[p])


def _setting(query: Query, model: str) -> str:
    own = query.deployment
    form = own.model.formats.of_layer(len(own.model.layers) - 1).experts
    lengths = f"{own.load.input_tokens:.0f} in, {own.load.output_tokens:.0f} out"
    return (
        f"{model.rpartition('/')[2]} {form}, {query.device.name}, {own.engine.name} "
        f"{own.engine.version}, {lengths}"
    )


if __name__ == "__main__":
    main()
