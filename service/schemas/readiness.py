"""The answer of /readyz."""

from pydantic import BaseModel, Field


class ReadyOut(BaseModel):
    """Whether the service answers questions, and whether it can store what it is given."""

    status: str = Field(description="status of the service: ok")
    storing: bool = Field(description="whether graphs, devices and measurements can be stored")
    not_storing: str | None = Field(
        description="what keeps them from being stored and how to mend it; null where nothing does"
    )
