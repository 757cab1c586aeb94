"""GET /v1/leaderboard: stored scores of predictors; no evaluation is run."""

from typing import Annotated

from fastapi import APIRouter, Query

from forerun.service.http.state import TheState
from forerun.service.schemas.prediction import EntryOut, LeaderboardOut

router = APIRouter(prefix="/v1/leaderboard", tags=["models"])


@router.get("")
async def leaderboard(
    state: TheState,
    dataset: Annotated[list[str], Query(description="only these datasets; may be repeated")] = [],  # noqa: B006
) -> LeaderboardOut:
    """Stored scores of predictors and baselines, and published figures.

    The scores came with the predictors or were evaluated on this machine. A dataset without stored
    scores has no entries.
    """

    def read() -> LeaderboardOut:
        sections = state.leaderboard.board.only(dataset).sections()
        rows = [row for section in sections for row in section.rows]
        return LeaderboardOut(entries=[EntryOut.model_validate(row.to_json()) for row in rows])

    return await state.run(read)
