"""The leaderboard only compares entries on the same rows, and marks all others."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from forerun.data.errors import BadTable
from forerun.training.evaluation.stored import read_evaluations, scoreboard_file
from forerun.training.leaderboard.entries import (
    Entry,
    Leaderboard,
    cited,
    comparisons,
    gap_text,
    headline,
    outcome,
    score_text,
    score_value,
    summary_of,
    value_text,
)
from forerun.training.leaderboard.learning_curves import curves, draw, levels
from forerun.training.leaderboard.store import (
    ResultStore,
    score_of,
    shipped,
    shipped_entries,
    stored,
)
from forerun.training.published.figures import PUBLISHED

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


def board(*entries) -> Leaderboard:
    return Leaderboard().with_entries(entries)


def of(*entries):
    """The comparisons of the only section that the entries make."""
    (section,) = board(*entries).sections()
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


def test_our_entry_is_not_compared_if_it_answered_fewer_rows_than_another():
    assert of(replace(OURS, n=99), other("baseline", 20.0)) == ()


def test_a_cited_figure_is_kept_apart_and_does_not_decide():
    cited = other("published", 1.0, "paper", digest=None, n=None, over="rows of the paper")
    (comparison,) = of(OURS, other("baseline", 20.0), cited)
    assert comparison.cited == cited
    assert comparison.published is None
    assert comparison.outcome == "ahead"


def test_a_score_that_others_lack_is_replaced_by_the_percentage_error():
    ours = replace(OURS, score="mae", value=0.1, mape=20.0)
    (comparison,) = of(ours, other("baseline", 10.0))
    assert comparison.score == "mape"
    assert score_value(comparison.ours, "mape") == 20.0
    assert comparison.outcome == "behind"


def test_every_number_of_shots_is_a_separate_comparison():
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
def test_the_gap_is_described_in_words(one, two, score, word, text):
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


ENTRY = replace(OURS, predictor="ours", mape=None, n=None, seeds=1)


def named(name, value, **other) -> Entry:
    return replace(ENTRY, predictor=name, value=value, **other)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param(
            [named("c", 30.0), named("a", 10.0), named("b", 10.0)],
            [("a", 1, ""), ("b", 1, ""), ("c", 3, "")],
            id="less error ranks first and equals share their rank",
        ),
        *(
            pytest.param(
                [named("low", 0.5, score=score), named("high", 0.9, score=score)],
                [("high", 1, ""), ("low", 2, "")],
                id=f"more {score} ranks first",
            )
            for score in ("spearman", "r2", "within_10pct")
        ),
        pytest.param(
            [named("a", 30.0), named("b", 20.0), named("a", 5.0, shots=10)],
            [("b", 1, ""), ("a", 2, ""), ("a", 1, "")],
            id="every number of shots has ranks of its own",
        ),
        pytest.param(
            [named("old", 1.0, digest="b" * 64, date="2026-01-01"), ENTRY],
            [("old", None, "other data, bbbbbbbb"), ("ours", 1, "")],
            id="other data",
        ),
        pytest.param(
            [named("none", None), ENTRY],
            [("ours", 1, ""), ("none", None, "not measured")],
            id="what was not measured stands behind",
        ),
        pytest.param(
            [named("unsaid", 1.0, n=None), named("all", 5.0, n=1000)],
            [("unsaid", None, "answered an unknown number of 1,000 rows"), ("all", 1, "")],
            id="unknown number of rows",
        ),
        pytest.param(
            [named("few", 1.0, n=10), named("all", 5.0, n=1000)],
            [("few", None, "answered 10 of 1,000 rows"), ("all", 1, "")],
            id="fewer rows",
        ),
    ],
)
def test_comparable_entries_are_ranked_and_others_have_a_note(entries, expected):
    (section,) = board(*entries).sections()
    assert [(row.entry.predictor, row.rank, row.note) for row in section.rows] == expected


def test_a_cited_figure_joins_the_only_device_of_its_task_without_a_rank():
    figure = named("them", 1.0, kind="published", digest=None, seeds=None, citation="paper")
    (section,) = board(replace(ENTRY, device="t4"), figure).sections()
    assert [(r.entry.predictor, r.rank) for r in section.rows] == [("ours", 1), ("them", None)]
    assert section.rows[1].note.startswith("cited")


def test_a_figure_over_several_devices_is_not_compared_with_single_devices():
    figure = named("them", 1.0, kind="published", digest=None, seeds=None, citation="paper")
    found = board(replace(ENTRY, device="t4"), replace(ENTRY, device="v100"), figure).sections()
    assert [(s.device, len(s.rows)) for s in found] == [("t4", 1), ("v100", 1), (None, 1)]


def test_a_later_entry_replaces_only_the_entry_with_its_key():
    again = replace(ENTRY, value=8.0, seeds=3)
    kept = board(ENTRY, named("b", 1.0)).with_entries([again, replace(again, shots=5)])
    assert sorted((e.predictor, e.shots, e.value) for e in kept.entries) == [
        ("b", 0, 1.0), ("ours", 0, 8.0), ("ours", 5, 8.0),
    ]  # fmt: skip


def test_baselines_and_published_figures_stay_when_predictors_are_filtered():
    everyone = board(
        ENTRY,
        named("other", 2.0),
        named("constant", 3.0, kind="baseline"),
        named("them", 4.0, kind="published", digest=None),
    )
    kept = {e.predictor for e in everyone.only(predictors=["ours"], shots=[0]).entries}
    assert kept == {"ours", "constant", "them"}
    assert not everyone.only(datasets=["other"]).entries
    assert len(everyone.only(protocols=["unseen_device"]).entries) == 4


def test_one_seed_shows_no_standard_error_and_nothing_measured_shows_a_dash():
    assert value_text(ENTRY) == "10.0 %"
    assert value_text(replace(ENTRY, standard_error=0.5, seeds=3)) == "10.0 % ± 0.50"
    assert value_text(replace(ENTRY, value=None)) == "–"
    assert score_text("spearman", 0.91234) == "0.912"
    assert score_text("rmse_sum", 0.51234) == "0.5123"


numbers = st.none() | st.floats(allow_nan=False, allow_infinity=False)
entries = st.builds(
    Entry,
    dataset=st.text(),
    task=st.sampled_from(["a/x", "b/y"]),
    metric=st.text(),
    predictor=st.text(),
    kind=st.sampled_from(["ours", "baseline", "published"]),
    score=st.sampled_from(["mape", "spearman", "rmse_sum"]),
    value=numbers,
    standard_error=numbers,
    device=st.none() | st.sampled_from(["t4", "v100"]),
    n=st.none() | st.integers(0, 9),
    shots=st.integers(0, 100),
    seeds=st.none() | st.integers(1, 9),
    further=st.dictionaries(st.text(), numbers),
    digest=st.none() | st.text(),
)


@pytest.mark.slow
@given(st.lists(entries, max_size=4))
def test_a_leaderboard_survives_json_and_every_entry_is_in_a_section(found):
    leaderboard = board(*found)
    text = json.dumps(leaderboard.to_json(), allow_nan=False)
    again = Leaderboard.from_json(json.loads(text))
    assert {e.key: e for e in again.entries} == {e.key: e for e in leaderboard.entries}
    listed = {row.entry.key for section in leaderboard.sections() for row in section.rows}
    assert listed == {entry.key for entry in leaderboard.entries}


@pytest.mark.parametrize("content", [{}, [], {"format": 0}, {"format": 1, "entries": [{}]}])
def test_content_that_is_not_a_leaderboard_is_refused(content):
    with pytest.raises(BadTable):
        Leaderboard.from_json(content)


def test_every_published_figure_becomes_a_cited_entry():
    for figure in PUBLISHED:
        (entry,) = (
            e
            for e in cited(figure.dataset)
            if (e.task, e.predictor, e.over) == (figure.task, figure.system, figure.over)
        )
        assert (entry.value, entry.score, entry.citation) == (
            figure.value, figure.score, figure.citation,
        )  # fmt: skip
        assert (entry.kind == "baseline") is figure.own
        assert entry.command is None and entry.digest is None


def test_the_ranking_score_comes_from_the_row_or_the_literature():
    row = {"task": "t/x", "mape": 3.0, "spearman": 0.9, "rmse_sum": 1.0}
    assert score_of("toy", {**row, "score": "rmse_sum"}) == "rmse_sum"
    assert score_of("toy", row) == "mape"
    assert score_of("toy", {**row, "mape": None}) == "spearman"
    assert score_of("toy", {"task": "t/x", "mape": None}) == "mape"


def test_a_fresh_install_shows_the_shipped_scores_with_baselines(tmp_path):
    found = stored(ResultStore(tmp_path))
    if not shipped():
        pytest.skip("no bundled predictors in models/pretrained: `forerun train` makes them")
    assert {"neusight", "mlenergy", "contention"} <= set(found.datasets())
    assert {"ours", "baseline", "published"} == {entry.kind for entry in found.entries}
    several = {one["dataset"] for one in read_evaluations(scoreboard_file()) if one["seeds"] > 1}
    for entry in found.entries:
        assert entry.cited or (entry.command or "").startswith("forerun evaluate")
        assert entry.standard_error is None or entry.dataset in several, "one seed has none"
        assert not entry.cited or entry.citation
    assert not list(tmp_path.iterdir()), "reading makes nothing"


def test_curves_hold_ranked_entries_and_levels_hold_published_ones(tmp_path):
    leaderboard = board(
        ENTRY,
        named("ours", 4.0, shots=10, standard_error=0.5),
        named("constant", 30.0, kind="baseline"),
        named("old", 1.0, shots=5, digest="b", date="2026-01-01"),
        named("them", 8.0, kind="published", digest=None),
    )
    (section,) = leaderboard.sections()
    assert curves(section) == {
        "ours": {0: (10.0, None), 10: (4.0, 0.5)},
        "constant": {0: (30.0, None)},
    }
    assert levels(section) == [("them (published)", 8.0)]
    (picture,) = draw(leaderboard, tmp_path)
    assert picture.name == "toy-unseen_device-x-all-devices-latency_ms.png"
    assert picture.stat().st_size > 10_000
    assert draw(board(ENTRY), tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"value": "ten"}, "value"),
        ({"value": float("inf")}, "value"),
        ({"dataset": None}, "dataset"),
        ({"kind": "theirs"}, "kind"),
        ({"further": {"r2": []}}, "further.r2"),
    ],
)
def test_an_entry_with_a_field_of_the_wrong_type_is_refused_by_name(change, field):
    entry = named("mine", 10.0)
    content = entry.to_json()
    assert Entry.from_json(content | {"of a later version": 1}) == entry
    with pytest.raises(BadTable, match=field):
        Entry.from_json(content | change)
