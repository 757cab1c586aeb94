"""How close does a search come to the best of all candidates? Printed as a Markdown table.

`python -m forerun.training.reports.search FOLDER [TABLE ...]` takes exhaustively measured tables
from the reference bundles of `archgym`, `hlsyn`, `nas_latency` and `zeus_powercap` in a folder.
`Search`, random order and Optuna's TPE (Bergstra et al. 2011; extra `tune`) measure candidates, and
are compared after 20, 50 and 100 of them. TPE proposes one candidate at a time and gets the nearest
one in the table, since most combinations are in no table; `Search` is asked for five at a time. If
no measured candidate keeps the limits, the median loss of those that do counts as found.
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
"""Fewest labelled designs of a program that is used as a table."""
FULL: Final = 0.8
"""Share of each chip resource that a design may use."""
LATENCY_SHARE: Final = 0.3
"""Share of the networks that keep the latency limit."""
CELLS: Final = ("pixel3", "raspi4", "titan_rtx_32")
JOBS: Final = ("deepspeech2", "ncf", "shufflenetv2")


@dataclass(frozen=True)
class Table:
    """Candidates that were all measured.

    Attributes:
        name: name of the table.
        settings: settings of n candidates.
        losses: the objective to minimise, positive, shape (n,).
        limited: metric -> measured values, shape (n,), and their upper limit.
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
        """The measured values of one candidate."""
        limited = {name: float(values[at]) for name, (values, _) in self.limited.items()}
        return {"loss": float(self.losses[at]), **limited}

    def regrets(self, order: Sequence[int]) -> list[float]:
        """Relative excess of the best allowed loss so far over the best of all candidates."""
        allowed = self.allowed
        best, middle = self.losses[allowed].min(), float(np.median(self.losses[allowed]))
        firsts = [[at for at in order[:count] if allowed[at]] for count in AFTER]
        found = [self.losses[rows].min() if rows else middle for rows in firsts]
        return [float(rows / best - 1.0) for rows in found]


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
            cells = " | ".join(f"{100 * regret:.1f}" for regret in np.mean(runs, axis=0))
            print(f"| {table.name} | {len(table.losses)} | {name} | {cells} |", flush=True)


def tables(folder: Path) -> Iterator[Table]:
    """All tables, from reference bundles in a folder."""
    runs = Bundle.open(folder / "archgym").table("astrasim_network_proxy")
    knobs = [name for name in map(str, runs) if not name.startswith("observation")]
    times = runs["observation-1"].to_numpy(dtype=np.float64)
    yield Table("training cluster", _settings(runs[knobs]), times, {})
    designs = Bundle.open(folder / "hlsyn").table("designs")
    designs = designs[(designs["tool"] == "v18") & (designs["latency_cycles"] > 0)]
    for program, group in designs.groupby("kernel"):
        if len(group) >= FEWEST:
            shares = {
                name: (group[f"util_{name}"].to_numpy(dtype=np.float64), FULL)
                for name in ("bram", "dsp", "lut", "ff")
            }
            cycles = group["latency_cycles"].to_numpy(dtype=np.float64)
            directives = pd.DataFrame(map(json.loads, group["pragmas_json"]))
            yield Table(f"design {program}", _settings(directives), cycles, shares)
    bundle = Bundle.open(folder / "nas_latency")
    cells, latencies = bundle.table("nb201_archs"), bundle.table("nb201_latency")
    for device in CELLS:
        group = cells[cells["has_path"]].merge(
            latencies[latencies["device"] == device], on="arch_id"
        )
        latency = group["latency_ms"].to_numpy(dtype=np.float64)
        limit = {"latency_ms": (latency, float(np.quantile(latency, LATENCY_SHARE)))}
        operators = group[[name for name in map(str, group) if name.startswith("op_")]].astype(str)
        yield Table(
            f"network {device}", _settings(operators), 1.0 / group["macs_m"].to_numpy(), limit
        )
    jobs = Bundle.open(folder / "zeus_powercap").table("power_trace_3gpus")
    for network in JOBS:
        group = jobs[jobs["network"] == network]
        seconds = group["time_per_epoch"].to_numpy(dtype=np.float64)
        limit = {"epoch_s": (seconds, float(np.median(seconds)))}
        chosen = group[["batch_size", "optimizer", "power_limit", "gpu"]]
        joules = seconds * group["average_power"].to_numpy()
        yield Table(f"energy {network}", _settings(chosen), joules, limit)


def _settings(frame: Any) -> list[dict[str, Any]]:
    """The columns that vary; a column with any text becomes text."""
    texts = [name for name in frame if any(isinstance(value, str) for value in frame[name])]
    plain = frame.astype(dict.fromkeys(texts, str)).loc[:, frame.nunique() > 1]
    rows: list[dict[str, Any]] = plain.to_dict("records")
    return rows


def by_search(table: Table, seed: int) -> list[int]:
    """Candidates in the order in which `Search` asks for them."""
    of_key = {_key(candidate): at for at, candidate in enumerate(table.settings)}
    limits = {name: most for name, (_, most) in table.limited.items()}
    search = Search(list(table.settings), minimise="loss", limits=limits, seed=seed)
    order: list[int] = []
    while len(order) < AFTER[-1]:
        for candidate in search.ask(BATCH):
            order.append(of_key[_key(candidate)])
            search.tell(candidate, table.values(order[-1]))
    return order


def at_random(table: Table, seed: int) -> list[int]:
    """Candidates in a random order."""
    return list(np.random.default_rng(seed).permutation(len(table.losses))[: AFTER[-1]])


def by_tpe(table: Table, seed: int) -> list[int]:
    """The candidates nearest to the proposals of TPE, each at most once."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        name: _distribution([values[name] for values in table.settings])
        for name in table.settings[0]
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
            constraints={name: float(values[order[-1]] - most) for name, (values, most) in limited},
        )
        study.add_trial(nearest)
    return order


def _distribution(values: Sequence[Any]) -> Any:
    """The Optuna distribution of one setting, logarithmic if all values are positive."""
    from optuna import distributions

    if isinstance(values[0], str):
        return distributions.CategoricalDistribution(sorted(set(values)))
    low, high = min(values), max(values)
    if all(isinstance(value, int) for value in values):
        return distributions.IntDistribution(low, high, log=low > 0)
    return distributions.FloatDistribution(low, high, log=low > 0)


def _points(settings: Sequence[Mapping[str, Any]], among: Sequence[Mapping[str, Any]]) -> Any:
    """Points whose L1 distance is 1 for another choice, and 1 for the full range of a number."""
    columns = []
    for name, first in among[0].items():
        all_values, column = [row[name] for row in among], [row[name] for row in settings]
        if isinstance(first, str):
            columns += [
                [0.5 * (value == choice) for value in column] for choice in sorted(set(all_values))
            ]
            continue
        scale = finite_log if min(all_values) > 0 else np.asarray
        numbers = scale(np.array(all_values, dtype=np.float64))
        columns.append((scale(np.array(column, dtype=np.float64)) / np.ptp(numbers)).tolist())
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
