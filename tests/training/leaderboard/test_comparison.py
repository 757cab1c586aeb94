"""Who is ahead is said of entries on the same rows alone, and by a rule that does not see it."""

from dataclasses import replace

import pytest

from forerun.training.leaderboard.entries import (
    Entry,
    Leaderboard,
    comparisons,
    gap_text,
    headline,
    outcome,
    score_value,
    summary_of,
)
from forerun.training.leaderboard.store import shipped_entries

OURS = Entry(
    dataset="toy",
    task="unseen_device/x",
    metric="latency_ms",
    predictor="mine",
    kind="ours",
    score="mape",
    value=10.0,
    mape=10.0,
    n=100,
    date="2026-01-02",
    digest="a" * 64,
)


def other(kind, value, name="", **more) -> Entry:
    fields = {"value": value, "mape": value, "kind": kind, "predictor": name or kind}
    return replace(OURS, **(fields | more))


def of(*entries):
    """The comparisons of the only section that the entries make."""
    (section,) = Leaderboard().with_entries(entries).sections()
    return comparisons(section)


def test_the_best_of_each_kind_is_compared():
    found = of(
        OURS,
        other("ours", 12.0, "worse"),
        other("baseline", 40.0, "poor"),
        other("baseline", 20.0, "good"),
        other("published", 30.0),
    )
    (comparison,) = found
    assert comparison.ours == OURS
    assert (comparison.baseline.predictor, comparison.published.value) == ("good", 30.0)
    assert comparison.rival.predictor == "good"
    assert comparison.outcome == "ahead"


@pytest.mark.parametrize(
    "change",
    [{"digest": "b" * 64, "date": "2026-01-01"}, {"shots": 5}, {"n": 99}],
    ids=["other data", "other shots", "fewer rows"],
)
def test_an_entry_on_other_rows_is_no_rival(change):
    comparison = of(OURS, other("baseline", 1.0, **change))[0]
    assert comparison.baseline is None
    assert comparison.outcome is None


def test_ours_is_not_compared_where_it_answered_fewer_rows_than_another():
    assert of(replace(OURS, n=99), other("baseline", 20.0)) == ()


def test_a_cited_figure_is_kept_apart_and_does_not_decide():
    cited = other("published", 1.0, "paper", digest=None, n=None, over="rows of the paper")
    (comparison,) = of(OURS, other("baseline", 20.0), cited)
    assert comparison.cited == cited
    assert comparison.published is None
    assert comparison.outcome == "ahead"


def test_what_others_do_not_have_is_replaced_by_the_percentage_error_of_both():
    ours = replace(OURS, score="mae", value=0.1, mape=20.0)
    (comparison,) = of(ours, other("baseline", 10.0))
    assert comparison.score == "mape"
    assert score_value(comparison.ours, "mape") == 20.0
    assert comparison.outcome == "behind"


def test_every_number_of_shots_is_a_comparison_of_its_own():
    found = of(
        OURS,
        other("baseline", 20.0),
        replace(OURS, shots=10, value=8.0),
        other("baseline", 6.0, shots=10),
    )
    assert [(c.ours.shots, c.outcome) for c in found] == [(0, "ahead"), (10, "behind")]


@pytest.mark.parametrize(
    ("one", "two", "score", "word", "text"),
    [
        (10.0, 20.0, "mape", "ahead", "50 % less error"),
        (30.0, 20.0, "mape", "behind", "50 % more error"),
        (50.0, 20.0, "mape", "behind", "2.5 times the error"),
        (20.0, 20.05, "mape", "level", "level"),
        (0.9, 0.8, "spearman", "ahead", "+0.100"),
        (0.8, 0.9, "spearman", "behind", "−0.100"),
        (0.9, 0.9001, "spearman", "level", "level"),
    ],
)
def test_the_gap_is_said_in_words(one, two, score, word, text):
    ours, theirs = (replace(OURS, score=score, value=v, mape=None) for v in (one, two))
    assert outcome(ours, theirs, score) == word
    assert gap_text(ours, theirs, score) == text


def test_the_headline_prefers_published_systems_then_rows_and_never_the_outcome():
    def task(name, n, *others):
        ours = replace(OURS, task=name, n=n)
        return of(ours, *(replace(e, task=name, n=n if e.digest else None) for e in others))[0]

    baseline, published = other("baseline", 20.0), other("published", 1.0)
    cited = other("published", 30.0, digest=None)
    alone, simple = task("a/alone", 900), task("a/simple", 800, baseline)
    with_cited, small = task("a/cited", 50, cited), task("a/small", 5, published)
    lost = task("a/lost", 10, published, baseline)
    assert headline([alone, simple, with_cited, small, lost]) == lost
    assert headline([alone, simple, with_cited]) == with_cited
    assert headline([alone, simple]) == simple
    assert headline([alone]) == alone
    assert lost.outcome == "behind"


def test_a_summary_counts_every_comparison_once():
    ahead, behind = of(OURS, other("baseline", 20.0)), of(OURS, other("baseline", 5.0))
    level, alone = of(OURS, other("baseline", 10.0)), of(OURS)
    summary = summary_of([*ahead, *behind, *behind, *level, *alone])
    assert (summary.ahead, summary.behind, summary.level, summary.alone) == (1, 2, 1, 1)
    assert summary_of([]) is None


def test_baselines_have_every_score_that_was_stored_for_them():
    row = {"task": "unseen/x", "device": None, "metric": "lut", "predictor": "answers", "n": 9}
    row |= {"score": "rmse", "rmse": 0.2, "mape": 4.0, "baselines": {"constant": 30.0}}
    row |= {"baselines_rmse": {"constant": 0.5}}
    facts = {"seeds": 1, "shots": 0, "date": "2026-01-01", "commit": "abc", "digest": "d"}
    ours, theirs = shipped_entries([{"dataset": "toy", **facts, "tasks": [row]}])
    assert (ours.predictor, ours.value, ours.protocol) == ("answers", 0.2, "unseen")
    assert (theirs.predictor, theirs.score, theirs.value) == ("constant", "rmse", 0.5)
    assert theirs.mape == 30.0 and theirs.digest == "d"
