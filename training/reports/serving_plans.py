"""How good are the layouts that serving plans recommend? Printed as a Markdown table.

`python -m forerun.training.reports.serving_plans` takes all settings of `aiconfigurator_serving`
with several measured layouts. A setting is a model, a device, an engine with its release, a number
format and request lengths. For each setting, a limit on the time per token is drawn from the
measured times that at least two layouts keep. The recommended layout has the highest predicted rate
of tokens per second and device within the limit, over the measured numbers of requests in flight;
the predictor is fitted without all runs of the model on the device. The measured rate of this
layout within the limit is compared with that of the best layout. So are the choices of
AIConfigurator, from its stored answers, and of two rules: the most and the fewest tensor-parallel
devices. The better of the first two layouts is what measuring both would find. The last line shows
how much of the error the layouts of a setting have in common.
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
"""Share of the best rate from which a layout counts as equally good."""
QUANTILES: Final = (0.2, 0.9)
"""Quantiles of the measured times between which the limit is drawn."""
SEED: Final = 40
TIMES: Final = ("tpot_ms", "ttft_ms")
CHOICES: Final = (
    *("forerun", "better of its first two", "AIConfigurator", "better of these first two"),
    *("most tensor", "fewest devices"),
)


@dataclass(frozen=True)
class Setting:
    """Several layouts of one model, device, engine, format and request lengths.

    Attributes:
        name: description.
        rows: positions of its runs.
        pools: layout of each run.
        limit_ms: largest allowed time per token.
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
    predicted = left_out(runs, sorted({row for setting in drawn for row in setting.rows}))
    shares = [shares_of(setting, runs, predicted, peer) for setting in drawn]
    print(f"| setting | limit, ms | layouts | {' | '.join(CHOICES)} |")
    print(f"|---|---:|---:|{'---:|' * len(CHOICES)}")
    for setting, found in zip(drawn, shares, strict=True):
        cells = " | ".join("-" if np.isnan(share) else f"{100 * share:.0f} %" for share in found)
        print(f"| {setting.name} | {setting.limit_ms:.1f} | {len(set(setting.pools))} | {cells} |")
    print("\nShare of the best measured rate that each choice reached.\n")
    for name, column in zip(CHOICES, np.array(shares).T, strict=True):
        known = column[~np.isnan(column)]
        print(
            f"- {name}: within 5 % of the best in {100 * np.mean(known >= CLOSE):.0f} % of "
            f"{len(known)} settings, {100 * np.mean(known):.0f} % of the best rate on average"
        )
    between, within = deviations(drawn, runs, predicted["tpot_ms"])
    print(
        "\nLog errors of the time per token: standard deviation "
        f"{between:.2f} between settings, {within:.2f} between layouts of a setting"
    )


def deviations(
    drawn: Sequence[Setting], runs: Measurements, predicted: Column
) -> tuple[float, float]:
    """Standard deviation of log errors between settings and between layouts of a setting."""
    errors = np.log(predicted / runs.column("tpot_ms"))
    means, around = [], []
    for setting in drawn:
        setting_errors, pools = (
            errors[setting.rows],
            np.array([hash(pool) for pool in setting.pools]),
        )
        means.append(setting_errors.mean())
        around += [
            setting_errors[pools == pool].mean() - setting_errors.mean()
            for pool in np.unique(pools)
        ]
    return float(np.std(means)), float(np.std(around))


def settings(runs: Measurements) -> list[Setting]:
    """Settings in which at least two layouts keep the limit."""
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
    """Times of runs from fits without all runs of their model on their device; else NaN."""
    found = {metric: np.full(len(runs), np.nan) for metric in TIMES}
    models, devices = runs.group("model"), runs.group("device")
    for (model, device), places in rows_by([(models[row], devices[row]) for row in rows]).items():
        held, group = (models == model) & (devices == device), [rows[place] for place in places]
        fitted = LlmLatency(calibrated=False).fit(runs.take(~held))
        values = fitted.predict([runs.queries[row] for row in group]).values
        for metric in TIMES:
            found[metric][group] = values[metric]
    return found


def shares_of(
    setting: Setting,
    runs: Measurements,
    predicted: Mapping[str, Column],
    peer: Mapping[str, Column],
) -> list[float]:
    """Share of the best measured rate that each of `CHOICES` reaches; NaN without an answer."""
    measured = best_rates(setting, runs, {metric: runs.column(metric) for metric in TIMES})
    pools = sorted(
        set(setting.pools), key=lambda predicted: (predicted.parallelism.tensor, predicted.devices)
    )
    fewest = min(pools, key=lambda pool: (pool.devices, pool.parallelism.tensor))
    ranked = [_ranked(setting, runs, times) for times in (predicted, peer)]
    chosen = [own[:number] for own in ranked for number in (1, 2)]
    return [
        max((measured.get(pool, 0.0) for pool in own), default=np.nan) / max(measured.values())
        for own in (*chosen, pools[-1:], [fewest])
    ]


def best_rates(
    setting: Setting, runs: Measurements, times: Mapping[str, Column]
) -> dict[Pool, float]:
    """Highest rate of tokens per second and device, for each layout that keeps the limit."""
    found: dict[Pool, float] = {}
    for row, pool in zip(setting.rows, setting.pools, strict=True):
        load = runs.queries[row].deployment.load
        tpot, ttft = (float(times[metric][row]) for metric in TIMES)
        if tpot <= setting.limit_ms:
            latency_s = (ttft + tpot * max(load.output_tokens - 1.0, 0.0)) / 1e3
            rate = (load.concurrency or 0.0) * load.output_tokens / latency_s / pool.devices
            found[pool] = max(rate, found.get(pool, 0.0))
    return found


def _ranked(setting: Setting, runs: Measurements, times: Mapping[str, Column]) -> list[Pool]:
    """Layouts by the rate within the limit by these times, then others by the time per token.

    Empty if a layout has no time.
    """
    tpot = dict[Pool, float]()
    for row, pool in zip(setting.rows, setting.pools, strict=True):
        tpot[pool] = min(tpot.get(pool, np.inf), np.nan_to_num(times["tpot_ms"][row], nan=np.inf))
    if np.inf in tpot.values():
        return []
    rates = best_rates(setting, runs, times)
    return sorted(tpot, key=lambda pool: (-rates.get(pool, 0.0), tpot[pool]))


def _setting(query: Query, model: str) -> str:
    deployment = query.deployment
    form = deployment.model.formats.of_layer(len(deployment.model.layers) - 1).experts
    lengths = f"{deployment.load.input_tokens:.0f} in, {deployment.load.output_tokens:.0f} out"
    return (
        f"{model.rpartition('/')[2]} {form}, {query.device.name}, {deployment.engine.name} "
        f"{deployment.engine.version}, {lengths}"
    )


if __name__ == "__main__":
    main()
