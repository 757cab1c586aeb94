"""GET /v1/leaderboard: stored scores of predictors; nothing is judged to answer."""

from typing import Annotated

from fastapi import APIRouter, Query

from forerun.service.http.state import TheState
from forerun.service.schemas.prediction import EntryOut, LeaderboardOut
from forerun.training.leaderboard.store import FOLDER, ResultStore, stored

router = APIRouter(prefix="/v1/leaderboard", tags=["models"])


@router.get("")
async def leaderboard(
    state: TheState,
    dataset: Annotated[list[str], Query(description="only these; repeat")] = [],  # noqa: B006
) -> LeaderboardOut:
    """Results that came with the predictors or were judged here, baselines and published figures.

    Of a dataset that nothing is stored of, there are no entries.
    """
    store = ResultStore(state.settings.home / FOLDER)

    def read() -> LeaderboardOut:
        rows = [row for s in stored(store).only(dataset).sections() for row in s.rows]
        return LeaderboardOut(entries=[EntryOut.model_validate(row.to_json()) for row in rows])

    return await state.run(read)
