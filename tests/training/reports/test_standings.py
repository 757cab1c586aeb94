"""The README shows the most and the least accurate whole answers."""

from forerun.training.scoreboard import headlines, with_headlines


def row(task, n=1234, **fields):
    return {"task": task, "device": None, "metric": "latency_ms", "n": n, **fields}


def test_headlines_show_the_best_and_the_worst_task_of_each_dataset():
    tables = [
        {
            "dataset": f"d{n:02}",
            "tasks": [
                row("p/easy", mape=float(n), coverage_90=90.0),
                row("p/middle", mape=n + 0.5),
                row("p/hard", mape=50.0 + n),
                row("few", mape=99.0, n=3),
                row("unscored", mape=None),
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


def test_task_names_spell_out_units_and_the_number_of_measurements():
    rate = {"device": None, "metric": "new_samples_per_s", "n": 50, "mape": 5.0}
    for task, words in (
        ("unseen_device/cpu", "d: cpu new samples per second (unseen device)"),
        (
            "unseen_device/new_samples_per_s/10_random",
            "d: new samples per second after 10 random measurements (unseen device)",
        ),
    ):
        assert words in headlines([{"dataset": "d", "tasks": [{"task": task, **rate}]}])


def test_only_the_table_of_a_document_is_replaced():
    before = "Text\n<!-- figures: headlines -->\n| old |\n<!-- end -->\n\nMore 5.4 %\n"
    after = with_headlines(before, [{"dataset": "d", "tasks": [row("p/x", mape=5.0)]}])
    assert after.startswith("Text\n<!-- figures: headlines -->\n| best | rows |")
    assert after.endswith("|\n<!-- end -->\n\nMore 5.4 %\n")
    assert "old" not in after
