"""Recommended serving layouts, compared with the best measured ones."""

import numpy as np
import pytest

from forerun.data.language_models.deployment import (
    Engine,
    LlmDeployment,
    Parallelism,
    Pool,
    RequestLoad,
)
from forerun.data.measurements import Measurements
from forerun.data.query import Query
from forerun.features.readers.language_model.reader import named_language_model
from forerun.training.reports.serving_plans import TIMES, deviations, settings, shares_of
from tests.devices import H100

MODEL = named_language_model("meta-llama/Llama-3.1-8B")
LAYOUTS = (1, 2, 4)
LOADS = (1.0, 8.0, 64.0)


def runs(releases: tuple[str, ...] = ("0.12.0",)) -> Measurements:
    """Made-up runs of three degrees: tokens take longer with more requests, less with devices."""
    queries, tpot = [], []
    for release in releases:
        for tensor in LAYOUTS:
            for load in LOADS:
                pool, engine = Pool(Parallelism(tensor)), Engine(version=release)
                own = LlmDeployment(MODEL, RequestLoad(1000.0, 101.0, load), engine, pool)
                queries.append(Query(own, H100))
                tpot.append((8.0 + load / 4.0) / tensor**0.5)
    times = {"tpot_ms": np.array(tpot), "ttft_ms": np.full(len(tpot), 50.0)}
    groups = {"model": np.full(len(tpot), "llama"), "mode": np.full(len(tpot), "agg")}
    return Measurements.of(queries, times, groups)


def test_only_layouts_of_the_same_release_are_compared() -> None:
    """Two releases are two settings; a single layout is none."""
    made = runs(("0.12.0", "0.15.1"))
    found = settings(made)
    assert len(found) == 2
    for one in found:
        assert {made.queries[row].deployment.engine.version for row in one.rows} in (
            {"0.12.0"},
            {"0.15.1"},
        )
        fast = {
            pool
            for row, pool in zip(one.rows, one.pools, strict=True)
            if made.column("tpot_ms")[row] <= one.limit_ms
        }
        assert len(fast) >= 2
    assert settings(made.take(np.arange(len(LOADS)))) == []


def test_perfect_predictions_recommend_the_best_layout() -> None:
    """The choice of opposite predictions is compared by its measured rate."""
    made = runs()
    (one,) = settings(made)
    measured = {name: made.column(name) for name in TIMES}
    unknown = {name: np.full(len(made), np.nan) for name in TIMES}
    right, both, *nothing, most, fewest = shares_of(one, made, measured, unknown)
    assert right == both == pytest.approx(1.0)
    assert np.isnan(nothing).all()
    assert most == pytest.approx(1.0)
    degree = np.array([query.deployment.pool.parallelism.tensor for query in made.queries])
    wrong = {**measured, "tpot_ms": measured["tpot_ms"] * np.where(degree == 1, 1e-3, 1e3)}
    chosen, better, *_ = shares_of(one, made, wrong, unknown)
    assert chosen == pytest.approx(fewest)
    assert chosen < better == pytest.approx(1.0)


def test_a_choice_that_misses_the_limit_scores_zero() -> None:
    """Its share is zero, however fast it is; the same applies to rules that ignore times."""
    made = runs()
    (one,) = settings(made)
    degree = np.array([query.deployment.pool.parallelism.tensor for query in made.queries])
    tpot = np.where(degree == 1, 1e4, made.column("tpot_ms"))
    slow = Measurements.of(made.queries, {**made.values, "tpot_ms": tpot}, dict(made.groups))
    own = {"tpot_ms": np.where(degree == 1, 1.0, 1e4), "ttft_ms": made.column("ttft_ms")}
    chosen, *_, fewest = shares_of(one, slow, own, own)
    assert (chosen, fewest) == (0.0, 0.0)


def test_errors_are_divided_between_settings_and_layouts() -> None:
    """One error factor per setting, and one per layout in both settings."""
    made = runs(("0.12.0", "0.15.1"))
    first = np.array([query.deployment.engine.version == "0.12.0" for query in made.queries])
    tensor = np.array([query.deployment.pool.parallelism.tensor for query in made.queries])
    logs = np.where(first, 0.3, -0.3) + 0.1 * (np.log2(tensor) - 1.0)
    between, within = deviations(settings(made), made, made.column("tpot_ms") * np.exp(logs))
    assert (between, within) == pytest.approx((0.3, 0.1 * (2 / 3) ** 0.5))
