"""The figures of README, scoreboard and model card are what the stored evaluations say."""

import pytest

from forerun.training.evaluation.stored import (
    SCORES_FILE,
    read_evaluations,
    released_artifact,
    scoreboard,
)
from forerun.training.scoreboard import MARKED, checks, page, with_headlines
from tests.house.sources import REPOSITORY


def test_the_figures_are_up_to_date():
    readme = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert MARKED.search(readme)
    board = (REPOSITORY / "docs/results/scoreboard.md").read_text(encoding="utf-8")
    now = with_headlines(readme, scoreboard()), page(scoreboard(), *checks())
    if (readme, board) != now:
        pytest.fail("figures are not those that are stored: run `make figures`")


def test_the_card_of_the_release_has_the_scores_of_the_scoreboard():
    """Scores are sealed with the predictors, and a later evaluation does not reach them."""
    board = {one["dataset"]: one for one in scoreboard()}
    sealed = read_evaluations(released_artifact() / SCORES_FILE)
    assert len(sealed) > 15
    older = [one["dataset"] for one in sealed if one != board.get(one["dataset"], one)]
    assert not older, f"seal the release again: the scores of {', '.join(older)} are newer"
