"""How close a search comes to the best candidate of a table."""

import numpy as np
import pytest

from forerun.training.reports.search import AFTER, Table, at_random, by_search, by_tpe, tables


def made_up(count=300):
    """Candidates whose loss is least, 1, at the first; every third breaks a limit."""
    random = np.random.default_rng(0)
    settings = [{"n": int(n), "kind": "ab"[n % 2]} for n in range(1, count + 1)]
    losses = np.arange(1.0, count + 1) * random.uniform(1.0, 1.1, count)
    losses[0] = 1.0
    return Table("mine", settings, losses, {"mib": (np.arange(count) % 3 * 1.0, 1.0)})


def test_the_regret_is_that_of_the_best_within_the_limits():
    table = Table(
        "mine",
        [{"n": n} for n in range(5)],
        np.array([1.0, 2.0, 3.0, 4.0, 8.0]),
        {"mib": (np.array([9.0, 1.0, 1.0, 1.0, 1.0]), 5.0)},
    )
    assert table.regrets([0, 4, 3]) == [1.0] * len(AFTER), "4 against 2; the first breaks the limit"
    assert table.regrets([0]) == [0.75] * len(AFTER), "nothing keeps the limit: the median, 3.5"


@pytest.mark.parametrize("order", [at_random, by_search, by_tpe])
def test_every_search_measures_each_candidate_once(order):
    if order is by_tpe:
        pytest.importorskip("optuna", reason="needs the extra `tune`")
    table = made_up()
    asked = order(table, 1)
    assert len(set(asked)) == len(asked) == AFTER[-1]
    assert table.regrets(asked) == sorted(table.regrets(asked), reverse=True)


def test_a_search_is_better_than_chance():
    table = made_up()
    found, by_chance = (
        np.mean([table.regrets(order(table, seed)) for seed in range(3)], axis=0)
        for order in (by_search, at_random)
    )
    assert found[1] < 0.5 * by_chance[1]


def test_tables_have_candidates_within_their_limits(reference):
    """For the reference bundles: settings vary, losses are positive, and some keep the limits."""
    if not (reference / "archgym").is_dir():
        pytest.skip("needs the reference bundles")
    found = list(tables(reference))
    assert len({own.name for own in found}) == len(found) >= 10
    for own in found:
        assert len(own.settings) == len(own.losses) > AFTER[-1]
        assert own.losses.min() > 0
        assert 0.05 < own.allowed.mean() <= 1
