"""What is known of a candidate on trial."""

from pydantic import BaseModel, Field


class DifferenceOut(BaseModel):
    """How far the answers of a candidate are from those of the champion."""

    answers: int = Field(description="answers of both that were compared")
    mean_percent: float = Field(
        description="mean absolute difference of the best estimates, percent of the champion's"
    )


class TrialOut(BaseModel):
    """A candidate on trial, and how its answers differ from the champion's."""

    version: str = Field(description="version of the candidate")
    canary_share: float = Field(description="share of the questions that it answers")
    shadow_share: float = Field(
        description="share of the questions that it answers as well, to be compared"
    )
    compared: int = Field(description="questions that both answered, since the service started")
    failed: int = Field(description="questions that the candidate alone did not answer")
    left_out: int = Field(description="questions that were not compared, for lack of time")
    differences: dict[str, DifferenceOut] = Field(description="metric -> difference of the answers")
