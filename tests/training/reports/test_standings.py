"""Losses are listed as plainly as wins are counted."""

from forerun.training.evaluation.stored import scoreboard
from forerun.training.reports.results_tables import table
from forerun.training.reports.standings import comparisons, floors, headlines, losses, standings


def row(task, score="mape", n=1234, **fields):
    return {"task": task, "device": None, "metric": "latency_ms", "n": n, "score": score, **fields}


PERCENT = row("won", mape=5.0, baselines={"constant": 9.0, "roofline": 7.0})
LOST = row("lost", mape=8.04, baselines={"constant": 9.0, "published_other": 7.0, "none": None})
TIED = row("tied", mape=7.0, baselines={"constant": 7.03})
ALONE = row("alone", mape=7.0, baselines={"constant": None})
UNSCORED = row("unscored", mape=None, baselines={"constant": 3.0})
ABSOLUTE = row("own_scale", "mae", mae=0.2, mae_rule=0.1, mape=1.0, baselines={"rule": 50.0})
SQUARED = row("squares", "rmse", rmse=0.1, baselines={"c": 1.0}, baselines_rmse={"c": 0.3})
STORED = [
    {"dataset": "b", "tasks": [PERCENT, LOST, ALONE]},
    {"dataset": "a", "tasks": [TIED, UNSCORED, ABSOLUTE, SQUARED]},
]


def test_the_best_of_all_others_is_compared_and_what_has_no_rival_is_left_out():
    found = {one.task: (one.rival, one.outcome) for one in comparisons(STORED)}
    assert found == {
        "won latency_ms": ("roofline", "ahead"),
        "lost latency_ms": ("published_other", "behind"),
        "tied latency_ms": ("constant", "level"),
        "own_scale latency_ms": ("rule", "behind"),
        "squares latency_ms": ("c", "ahead"),
    }


def test_each_dataset_is_counted_once_and_all_of_them_together():
    assert standings(STORED).splitlines()[2:] == [
        "| `a` | 3 | 1 | 1 | 1 |",
        "| `b` | 2 | 1 | 0 | 1 |",
        "| all | 5 | 2 | 1 | 2 |",
    ]


def test_every_loss_has_a_line_with_both_errors():
    assert losses(STORED).splitlines()[2:] == [
        "| b | lost latency_ms | 1,234 | 8.0 % | published other | **7.0 %** |",
        "| a | own_scale latency_ms | 1,234 | 0.200 (mae) | rule | **0.100 (mae)** |",
    ]


def test_headlines_show_the_worst_beside_the_best_of_each_dataset():
    tables = [
        {
            "dataset": f"d{n:02}",
            "tasks": [
                row("p/easy", mape=float(n), coverage_90=90.0),
                row("p/middle", mape=n + 0.5),
                row("p/hard", mape=50.0 + n),
                row("few", mape=99.0, n=3),
                UNSCORED,
            ],
        }
        for n in range(1, 13)
    ]
    lines = headlines(tables).splitlines()[2:]
    assert len(lines) == 5
    best = "d01: easy latency (p) | 1,234 | 1.0 % | 90.0 % "
    assert lines[0].startswith(f"| {best}| d12: hard latency (p) | 1,234 | 62.0 %")
    assert [line.split(" | ")[4] for line in lines] == [
        f"d{n:02}: hard latency (p)" for n in range(12, 7, -1)
    ]
    assert headlines([]) == "No whole answers are scored so far: `make scoreboard`."


def test_a_floor_that_is_ahead_is_bold():
    assert floors(LOST) == "**7.0 %** (published other)"
    assert floors(PERCENT) == "7.0 % (roofline)"
    assert floors(ALONE) == ""


def test_amd_is_among_the_losses_that_are_published():
    text = table("losses", scoreboard())
    assert "published/e2e_amd" in text
    assert "mi210" in text
