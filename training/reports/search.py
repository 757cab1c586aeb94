"""How near a search comes to the best of all candidates: a Markdown table.

`python -m forerun.training.reports.search FOLDER [TABLE ...]` takes tables in which every candidate
was measured from the reference bundles of `archgym`, `hlsyn`, `nas_latency` and `zeus_powercap` in
a folder: `Search`, random order and Optuna's TPE (Bergstra et al. 2011; extra `tune`) measure
candidates until they have had 20, 50 and 100 of them. TPE proposes one at a time, and gets the
candidate that is nearest to its proposal, as most combinations are in no table; `Search` is asked
for five at a time. Where nothing that was measured keeps the limits, the median of what does counts
as found.
"""

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.bundle import Bundle
from forerun.data.columns import Column, Mask, finite_log
from forerun.data.lazy import pd
from forerun.models.own_tables.search import Search

AFTER: Final = (20, 50, 100)
SEEDS: Final = 10
BATCH: Final = 5
FEWEST: Final = 400
"""Labelled designs from which on a program is a table."""
FULL: Final = 0.8
"""Share of each resource of the chip that a design may take."""
LATENCY_SHARE: Final = 0.3
"""Share of the networks that keep the limit of their latency."""
CELLS: Final = ("pixel3", "raspi4", "titan_rtx_32")
JOBS: Final = ("deepspeech2", "ncf", "shufflenetv2")


@dataclass(frozen=True)
class Table:
    """Candidates that were all measured.

    Attributes:
        name: of the table.
        settings: settings of n candidates.
        losses: what is minimised, positive, shape (n,).
        limited: metric -> measured values, shape (n,), and the limit.
    """

    name: str
    settings: Sequence[Mapping[str, Any]]
    losses: Column
    limited: Mapping[str, tuple[Column, float]]

    @property
    def allowed(self) -> Mask:
        """Whether candidates keep all limits, shape (n,)."""
        kept = [values <= most for values, most in self.limited.values()]
        return np.array(np.all([np.ones(len(self.losses), dtype=np.bool_), *kept], axis=0))

    def values(self, at: int) -> dict[str, float]:
        """What was measured of one candidate."""
        limited = {name: float(values[at]) for name, (values, _) in self.limited.items()}
        return {"loss": float(self.losses[at]), **limited}

    def regrets(self, order: Sequence[int]) -> list[float]:
        """Least loss within the limits of the first candidates over that of all, minus 1."""
        allowed = self.allowed
        best, middle = self.losses[allowed].min(), float(np.median(self.losses[allowed]))
        firsts = [[at for at in order[:count] if allowed[at]] for count in AFTER]
        found = [self.losses[own].min() if own else middle for own in firsts]
        return [float(own / best - 1.0) for own in found]


def main() -> None:
    """Print a line for each table, and the mean over the tables."""
    folder, wanted = Path(sys.argv[1]), sys.argv[2:]
    counts = " | ".join(map(str, AFTER))
    print(f"| table | candidates | search | {counts} |\n|---|---:|---|{'---:|' * len(AFTER)}")
    for table in tables(folder):
        if wanted and table.name not in wanted:
            continue
        for name, order in ORDERS.items():
            runs = [table.regrets(order(table, seed)) for seed in range(SEEDS)]
            cells = " | ".join(f"{100 * own:.1f}" for own in np.mean(runs, axis=0))
            print(f"| {table.name} | {len(table.losses)} | {name} | {cells} |", flush=True)


def tables(folder: Path) -> Iterator[Table]:
    """All tables, from reference bundles in a folder."""
    runs = Bundle.open(folder / "archgym").table("astrasim_network_proxy")
    knobs = [name for name in map(str, runs) if not name.startswith("observation")]
    times = runs["observation-1"].to_numpy(dtype=np.float64)
    yield Table("training cluster", _settings(runs[knobs]), times, {})
    designs = Bundle.open(folder / "hlsyn").table("designs")
    designs = designs[(designs["tool"] == "v18") & (designs["latency_cycles"] > 0)]
    for program, own in designs.groupby("kernel"):
        if len(own) >= FEWEST:
            shares = {
                name: (own[f"util_{name}"].to_numpy(dtype=np.float64), FULL)
                for name in ("bram", "dsp", "lut", "ff")
            }
            cycles = own["latency_cycles"].to_numpy(dtype=np.float64)
            directives = pd.DataFrame(map(json.loads, own["pragmas_json"]))
            yield Table(f"design {program}", _settings(directives), cycles, shares)
    bundle = Bundle.open(folder / "nas_latency")
    cells, latencies = bundle.table("nb201_archs"), bundle.table("nb201_latency")
    for device in CELLS:
        own = cells[cells["has_path"]].merge(latencies[latencies["device"] == device], on="arch_id")
        latency = own["latency_ms"].to_numpy(dtype=np.float64)
        limit = {"latency_ms": (latency, float(np.quantile(latency, LATENCY_SHARE)))}
        operators = own[[name for name in map(str, own) if name.startswith("op_")]].astype(str)
        yield Table(
            f"network {device}", _settings(operators), 1.0 / own["macs_m"].to_numpy(), limit
        )
    jobs = Bundle.open(folder / "zeus_powercap").table("power_trace_3gpus")
    for network in JOBS:
        own = jobs[jobs["network"] == network]
        seconds = own["time_per_epoch"].to_numpy(dtype=np.float64)
        limit = {"epoch_s": (seconds, float(np.median(seconds)))}
        chosen = own[["batch_size", "optimizer", "power_limit", "gpu"]]
        joules = seconds * own["average_power"].to_numpy()
        yield Table(f"energy {network}", _settings(chosen), joules, limit)


def _settings(frame: Any) -> list[dict[str, Any]]:
    """Columns that vary, with texts where any value is one."""
    texts = [name for name in frame if any(isinstance(own, str) for own in frame[name])]
    plain = frame.astype(dict.fromkeys(texts, str)).loc[:, frame.nunique() > 1]
    rows: list[dict[str, Any]] = plain.to_dict("records")
    return rows


def by_search(table: Table, seed: int) -> list[int]:
    """Candidates in the order in which `Search` asks for them."""
    of_key = {_key(own): at for at, own in enumerate(table.settings)}
    limits = {name: most for name, (_, most) in table.limited.items()}
    search = Search(list(table.settings), minimise="loss", limits=limits, seed=seed)
    order: list[int] = []
    while len(order) < AFTER[-1]:
        for own in search.ask(BATCH):
            order.append(of_key[_key(own)])
            search.tell(own, table.values(order[-1]))
    return order


def at_random(table: Table, seed: int) -> list[int]:
    """Candidates in a random order."""
    return list(np.random.default_rng(seed).permutation(len(table.losses))[: AFTER[-1]])


def by_tpe(table: Table, seed: int) -> list[int]:
    """Candidates that are nearest to what TPE proposes, each once."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        name: _distribution([own[name] for own in table.settings]) for name in table.settings[0]
    }
    limited = list(table.limited.items())
    sampler = optuna.samplers.TPESampler(seed=seed)
    study, order = optuna.create_study(sampler=sampler), list[int]()
    points = _points(table.settings, table.settings)
    for _ in range(AFTER[-1]):
        trial = study.ask(space)
        distances = np.abs(points - _points([trial.params], table.settings)).sum(axis=1)
        distances[order] = np.inf
        order.append(int(distances.argmin()))
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        nearest = optuna.trial.create_trial(
            params=dict(table.settings[order[-1]]),
            distributions=space,
            value=float(np.log(table.losses[order[-1]])),
            constraints={name: float(own[order[-1]] - most) for name, (own, most) in limited},
        )
        study.add_trial(nearest)
    return order


def _distribution(values: Sequence[Any]) -> Any:
    """One setting as Optuna has it: in logarithms where it is positive."""
    from optuna import distributions

    if isinstance(values[0], str):
        return distributions.CategoricalDistribution(sorted(set(values)))
    low, high = min(values), max(values)
    if all(isinstance(own, int) for own in values):
        return distributions.IntDistribution(low, high, log=low > 0)
    return distributions.FloatDistribution(low, high, log=low > 0)


def _points(settings: Sequence[Mapping[str, Any]], among: Sequence[Mapping[str, Any]]) -> Any:
    """Points whose summed distances count 1 for another choice and for the range of a number."""
    columns = []
    for name, first in among[0].items():
        every, own = [row[name] for row in among], [row[name] for row in settings]
        if isinstance(first, str):
            columns += [[0.5 * (value == choice) for value in own] for choice in sorted(set(every))]
            continue
        scale = finite_log if min(every) > 0 else np.asarray
        numbers = scale(np.array(every, dtype=np.float64))
        columns.append((scale(np.array(own, dtype=np.float64)) / np.ptp(numbers)).tolist())
    return np.array(columns).T


def _key(settings: Mapping[str, Any]) -> str:
    return json.dumps(settings, sort_keys=True)


ORDERS: Final[Mapping[str, Callable[[Table, int], list[int]]]] = {
    "random": at_random,
    "TPE": by_tpe,
    "Search": by_search,
}

if __name__ == "__main__":
    main()
