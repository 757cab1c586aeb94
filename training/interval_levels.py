"""Widths of intervals at other levels, from held-out rows.

`python -m forerun.training.interval_levels FILES` reads what `forerun evaluate DATASET --rows
DATASET.parquet` writes, and renews the ratios of `models/answers/interval_levels.json` and their
part of `docs/explanation/intervals.md`.

The score of a row is log(measured / predicted) over the half-width of its interval on that side. A
ratio is the quantile of scores at a level over that at the usual one, in which each dataset has the
same weight, and in it each group, the rows of one workload on one device. Coverage is checked on
the rows of each dataset by the ratios of the others.

The packaged ratios rest on `aiconfigurator_serving` (protocols `unseen_deployment_aggregated` and
`unseen_device_aggregated`), `torch_gpu` (`unseen_family`), and all protocols of `llm_cloud_runs`,
`llm_inference_bench`, `mlenergy`, `published_memory`, `published_training` and `splitwise`.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from forerun.data.columns import Column
from forerun.data.lazy import pd
from forerun.data.level import USUAL
from forerun.models.answers import interval_level
from forerun.models.conformal import group_weights, weighted_quantile
from forerun.training.evaluation.cells import GROUPS

LEVELS: Final = (50.0, 60.0, 70.0, 80.0, 85.0, USUAL, 92.5, 95.0, 97.0, 98.0, 99.0)
CHECKED: Final = (50.0, 80.0, USUAL, 95.0, 99.0)
FILE: Final = Path(interval_level.__file__).resolve().with_name(interval_level.FILE)
PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "intervals.md"
MARKS: Final = ("<!-- figures: levels -->\n", "<!-- end -->")
NOT_COUNTED: Final = ("replay/", "_random", "_suggested")
"""In names of tasks: percentiles of replays, and answers that were adapted first."""


def scored(file: Path) -> "pd.DataFrame":
    """The scores of a dataset's held-out rows.

    Returns:
        Columns `family`, `dataset`, `group`, `score`; each answer counts once.
    """
    table = pd.read_parquet(file)
    table = table[table["workload"].isin(interval_level.FAMILIES)].copy()
    named = next((table[name] for name in GROUPS if name in table), table["device"])
    kinds = zip(table["workload"], table["metric"], strict=True)
    table["family"] = [interval_level.family_of(*kind) for kind in kinds]
    table["dataset"] = file.stem
    table["group"] = file.stem + "/" + table["device"] + "/" + named.astype(str)
    counted = ~table["task"].str.contains("|".join(NOT_COUNTED))
    ends = ["measured", "predicted", "low", "high"]
    table = table[counted & (table[ends] > 0.0).all(axis=1)].drop_duplicates(
        ["group", "metric", *ends]
    )
    measured, predicted, low, high = (np.log(table[name].to_numpy(dtype=float)) for name in ends)
    side = np.where(measured > predicted, high, low) - predicted
    with np.errstate(all="ignore"):
        table["score"] = np.abs(measured - predicted) / np.abs(side)
    return table[["family", "dataset", "group", "score"]].dropna()


def ratios(rows: "pd.DataFrame") -> Column:
    """Half-widths at `LEVELS` over those at `USUAL`, (levels,)."""
    scores, weights = rows["score"].to_numpy(), _weights(rows)
    found = [weighted_quantile(scores, weights, level / 100.0) for level in LEVELS]
    return np.array(found) / found[LEVELS.index(USUAL)]


def _weights(rows: "pd.DataFrame") -> Column:
    """Weights with which datasets count alike, and so do the groups of each, (n,)."""
    weights = group_weights(rows["group"].to_numpy(dtype=str))
    sums = rows.assign(weights=weights).groupby("dataset")["weights"].transform("sum")
    return np.asarray(weights / sums.to_numpy())


def extrapolated(own: Column, every: Column, groups: int) -> Column:
    """The ratios, of which those above the most measured level grow as those of all families."""
    if groups >= interval_level.ENOUGH_GROUPS:
        return own
    last = LEVELS.index(interval_level.MOST_MEASURED)
    return np.where(np.arange(len(own)) <= last, own, own[last] * every / every[last])


def table_of(rows: "pd.DataFrame") -> dict[str, Any]:
    """The content of `FILE`."""
    found, every = {}, ratios(rows)
    for family, own in rows.groupby("family"):
        groups = own["group"].nunique()
        known = extrapolated(ratios(own), every, groups)
        found[str(family)] = {
            "groups": groups,
            "datasets": sorted(own["dataset"].unique()),
            "levels": list(LEVELS),
            "ratios": [round(float(ratio), 3) for ratio in known],
        }
    return found


def coverages(rows: "pd.DataFrame") -> dict[tuple[str, str], Column]:
    """Family and dataset -> coverage at `CHECKED` by ratios of other datasets, percent.

    They are those of the family's other datasets; of all others, where it has none.
    """
    found = {}
    for (family, dataset), own in rows.groupby(["family", "dataset"]):
        others = rows[rows["dataset"] != dataset]
        same = others[others["family"] == family]
        if not len(others):
            continue
        own_ratios = ratios(same if len(same) else others)
        held = [own["score"] <= own_ratios[LEVELS.index(level)] for level in CHECKED]
        shares = [100.0 * float(np.average(inside, weights=_weights(own))) for inside in held]
        found[str(family), str(dataset)] = np.array(shares)
    return found


def lines(table: Mapping[str, Any], checked: Mapping[tuple[str, str], Column]) -> str:
    """The figures of the page."""
    heads = [f"{level:g} %" for level in CHECKED]
    found = [f"|predictors|held out|groups|{'|'.join(heads)}|"]
    found.append(f"|---|---|---:|{'---:|' * len(heads)}")
    for family, own in table.items():
        places = [LEVELS.index(level) for level in CHECKED]
        widths = "|".join(f"x{own['ratios'][place]:.2f}" for place in places)
        found.append(f"|{family}|width|{own['groups']:,}|{widths}|")
        for (name, dataset), shares in checked.items():
            if name == family:
                cells = "|".join(f"{share:.0f}" for share in shares)
                found.append(f"||{dataset}||{cells}|")
    return "\n".join(found) + "\n"


def main(words: Sequence[str] | None = None) -> None:
    """Renew the ratios and their figures."""
    parser = argparse.ArgumentParser(prog="interval_levels", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="DATASET.parquet")
    rows = pd.concat(map(scored, parser.parse_args(words).files), ignore_index=True)
    table = table_of(rows)
    FILE.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARKS[0])
    after = rest.partition(MARKS[1])[2]
    figures = f"{MARKS[0]}{lines(table, coverages(rows))}{MARKS[1]}"
    PAGE.write_text(f"{before}{figures}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
