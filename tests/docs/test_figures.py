"""The figures of README and scoreboard are what the stored evaluations say."""

import pytest

from forerun.training.evaluation.stored import scoreboard
from forerun.training.reports.standings import MARKED, with_headlines
from forerun.training.scoreboard import checks, page
from tests.house.sources import REPOSITORY


def test_the_figures_are_up_to_date():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert MARKED.search(readme)
    board = (REPOSITORY / "docs/results/scoreboard.md").read_text(encoding="utf-8")
    now = with_headlines(readme, scoreboard()), page(scoreboard(), *checks())
    if (readme, board) != now:
        pytest.fail("figures are not those that are stored: run `make figures`")
