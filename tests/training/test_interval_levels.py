"""Ratios of half-widths by level, and their coverage on the rows of other datasets."""

import json

import numpy as np
import pandas as pd
import pytest

from forerun.training import interval_levels
from forerun.training.interval_levels import CHECKED, LEVELS, coverages, extrapolated, ratios

HALF_WIDTH = 0.2
"""Of intervals on a logarithmic scale, those of normal errors with 90 % coverage."""


def answers(groups, rows, seed, spread=HALF_WIDTH / 1.645):
    """Held-out answers to networks with normal errors."""
    error = np.random.default_rng(seed).normal(0.0, spread, groups * rows)
    model = np.repeat([f"model{at}" for at in range(groups)], rows)
    predicted = np.linspace(1.0, 2.0, groups * rows)
    ends = {"low": predicted * np.exp(-HALF_WIDTH), "high": predicted * np.exp(HALF_WIDTH)}
    facts = {"task": "unseen_model", "metric": "latency_ms", "workload": "network"}
    facts |= {"phase": "inference", "device": "l4", "model": model, "predicted": predicted}
    return pd.DataFrame({**facts, **ends, "measured": predicted * np.exp(error)})


@pytest.fixture
def files(tmp_path):
    found = [tmp_path / "one.parquet", tmp_path / "other.parquet"]
    for seed, file in enumerate(found):
        answers(60, 200, seed).to_parquet(file)
    return found


def test_widths_of_normal_errors_are_their_quantiles(files):
    found = ratios(interval_levels.scored(files[0]))
    assert found[LEVELS.index(90.0)] == 1.0
    assert found[LEVELS.index(50.0)] == pytest.approx(0.674 / 1.645, rel=0.05)
    assert found[LEVELS.index(99.0)] == pytest.approx(2.576 / 1.645, rel=0.05)
    assert (np.diff(found) > 0.0).all()


def test_ratios_of_one_dataset_hold_on_another_of_the_same_form(files):
    rows = pd.concat(map(interval_levels.scored, files))
    found = coverages(rows)
    assert set(found) == {("networks", "one"), ("networks", "other")}
    for shares in found.values():
        assert shares == pytest.approx(CHECKED, abs=1.5)


def test_a_group_counts_once_however_many_rows_it_has(files):
    rows = interval_levels.scored(files[0])
    many = rows[rows["group"] == rows["group"].iloc[0]]
    more = pd.concat([rows, *[many] * 50])
    assert ratios(more) == pytest.approx(ratios(rows), rel=0.02)


def test_adapted_answers_replays_and_repeated_rows_do_not_count(tmp_path):
    table = answers(3, 10, 0)
    adapted = table.assign(task="unseen_device/10_random", low=0.5)
    other = table.assign(workload="design", phase="")
    pd.concat([table, table, adapted, other]).to_parquet(tmp_path / "some.parquet")
    assert len(interval_levels.scored(tmp_path / "some.parquet")) == 30


def test_small_datasets_use_the_pooled_tail():
    own, every = np.linspace(0.5, 3.0, len(LEVELS)), np.linspace(0.4, 2.0, len(LEVELS))
    last = LEVELS.index(95.0)
    found = extrapolated(own, every, 98)
    assert (found[: last + 1] == own[: last + 1]).all()
    assert found[-1] == pytest.approx(own[last] * every[-1] / every[last])
    assert (extrapolated(own, every, 99) == own).all()


def test_the_command_renews_table_and_page(files, tmp_path, monkeypatch):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- figures: levels -->\nold\n<!-- end -->\nafter\n")
    monkeypatch.setattr(interval_levels, "PAGE", page)
    monkeypatch.setattr(interval_levels, "FILE", tmp_path / "table.json")
    interval_levels.main([*map(str, files)])
    own = json.loads((tmp_path / "table.json").read_text())["networks"]
    assert (own["groups"], own["datasets"]) == (120, ["one", "other"])
    text = page.read_text()
    assert text.startswith("before\n<!-- figures: levels -->\n|predictors|")
    assert text.endswith("<!-- end -->\nafter\n")
    assert "old" not in text
    assert f"|networks|width|120|x{own['ratios'][0]:.2f}|" in text
