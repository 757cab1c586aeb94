"""Tables of figures in README and docs are what the stored evaluations say."""

import pytest

from forerun.data.errors import BadTable, InputError
from forerun.training.evaluation.stored import scoreboard
from forerun.training.reports.results_tables import (
    MARKED,
    documents,
    main,
    table,
    with_tables,
)
from forerun.training.reports.table_contents import TABLES
from tests.every import for_every
from tests.house.sources import REPOSITORY

MARK = "<!-- figures: torch_op_energy -->"
TASKS = [
    {"task": "unseen_operator/power", "device": "a30", "mape": 5.0, "baselines": {"constant": 9}},
    {"task": "unseen_operator/power", "device": "rtx-2080-ti", "mape": 8.0, "baselines": {}},
    {"task": "unseen_device/power", "device": "a30", "mape": 36.0, "baselines": {"constant": 30}},
    {"task": "unseen_device/power", "device": "rtx-2080-ti", "mape": None, "baselines": {}},
]
ROW = {"metric": "power_w", "n": 1234, "coverage_90": 89.16, "median_interval_ratio": 1.317}
STORED = [{"dataset": "torch_op_energy", "tasks": [ROW | task for task in TASKS]}]


@for_every("path", documents(REPOSITORY))
def test_marked_tables_are_up_to_date(path):
    text = path.read_text()
    if text != with_tables(text, scoreboard()):
        pytest.fail(f"figures of {path.name} are not those that are stored: run `make figures`")


def test_the_readme_has_marked_tables():
    assert MARKED.search((REPOSITORY / "README.md").read_text())


@for_every("name", TABLES)
def test_every_table_can_be_made_and_shows_coverage(name):
    head = table(name, scoreboard()).splitlines()[0]
    assert ("90 % intervals hold" in head and "forerun" in head) or head.startswith(
        ("Not scored", "Whole answers give no value")
    )


def test_a_line_shows_rows_errors_and_coverage_and_the_best_is_bold_whoever_it_is():
    lines = table("torch_op_energy", STORED).splitlines()
    assert lines[2] == "| unseen operators, A30 | 1,234 | **5.0 %** | 9.0 % | 89.2 % | 1.32 |"
    assert lines[3] == "| unseen operators, RTX 2080 Ti | 1,234 | 8.0 % |  | 89.2 % | 1.32 |"
    assert "| 36.0 % | **30.0 %** |" in lines[4], "a loss is seen"
    assert "| 1,234 |  |  |" in lines[5], "what was not scored is empty"


def test_a_column_without_a_figure_is_left_out_and_rows_without_an_answer_are_said():
    assert "median share" not in table("torch_op_energy", STORED)
    silent = [{**STORED[0], "tasks": [row | {"n": 0} for row in STORED[0]["tasks"]]}]
    assert table("torch_op_energy", silent) == "Whole answers give no value for any of these rows."


def test_what_stands_between_the_marks_is_replaced_and_nothing_else():
    before = f"# Title\n\n{MARK}\n| old |\n<!-- end -->\n\nText 5.4 %\n"
    after = with_tables(before, STORED)
    assert after.startswith(f"# Title\n\n{MARK}\n| held-out rows | n |")
    assert after.endswith("|\n<!-- end -->\n\nText 5.4 %\n")
    assert "| old |" not in after
    assert with_tables(after, STORED) == after, "twice is once"


def test_every_task_of_a_dataset_can_be_shown():
    lines = table("tasks torch_op_energy", STORED).splitlines()
    assert lines[0] == "| task | n | forerun | constant | 90 % intervals hold | high / low |"
    assert len(lines) == 2 + len(TASKS)


def test_what_is_not_scored_yet_is_named_with_the_command_that_scores_it():
    said = "Not scored so far: `make scoreboard TABLES={}`."
    assert table("torch_op_energy", []) == said.format("torch_op_energy")
    assert table("tasks nothing", STORED) == said.format("nothing")
    assert table("tasks torch_op_energy some", STORED) == said.format("torch_op_energy")
    one = table("tasks torch_op_energy unseen_device", STORED)
    assert len(one.splitlines()) == 4, "one protocol of two"


def test_wrong_marks_are_refused():
    with pytest.raises(InputError, match="'nope'; there are timm_bench"):
        with_tables("<!-- figures: nope -->\n<!-- end -->", STORED)
    with pytest.raises(BadTable, match="1 tables of figures begin, and 0"):
        with_tables(f"{MARK}\n| x |\n", STORED)


def test_the_command_renews_a_document(tmp_path, capsys):
    page = tmp_path / "page.md"
    page.write_text(f"{MARK}\n<!-- end -->\n")
    assert main([str(page)]) == 0
    assert "page.md: tables renewed" in capsys.readouterr().out
    assert page.read_text() == with_tables(page.read_text(), scoreboard())
